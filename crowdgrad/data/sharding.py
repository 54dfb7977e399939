"""From a data set to shards and chunks: shuffle by seed, cut, name every piece by its hash.

Records are shuffled before the cut, so a shard of any split is a fair sample of it and a volunteer
that holds few shards still sees every class. Even MNIST needs it: the pixels of its even training
records have a standard deviation of 76.1, those of its odd ones 80.9.

Every shard but the last of a split holds a whole number of batches; a remainder under half a batch
joins the shard before it, because a gradient of a handful of samples is mostly noise; so does one
that is smaller than the smallest batch the program can train on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from crowdgrad.data.dataset import SPLITS, Arrays, DataSet, shuffled
from crowdgrad.data.shards import content_hash
from crowdgrad.domain.data import (
    MAX_CARD_NAME,
    MAX_CARD_NAMES,
    MAX_CARD_WORDS,
    MAX_CHUNK_BYTES,
    MIN_CHUNK_BYTES,
    Card,
    Chunk,
    ChunkHash,
    Manifest,
    Shard,
)
from crowdgrad.errors import DataMalformed

Sink = Callable[[ChunkHash, bytes], object]


def cut(
    dataset: DataSet,
    *,
    seed: int,
    batch_size: int,
    smallest_batch: int = 1,
    shard_bytes: int = 1 << 20,
    chunk_bytes: int = 1 << 20,
) -> tuple[Manifest, Mapping[ChunkHash, bytes]]:
    """The manifest and all chunks in memory; the same for the same arguments."""
    chunks: dict[ChunkHash, bytes] = {}
    manifest = cut_into(
        chunks.__setitem__,
        dataset,
        seed=seed,
        batch_size=batch_size,
        smallest_batch=smallest_batch,
        shard_bytes=shard_bytes,
        chunk_bytes=chunk_bytes,
    )
    return manifest, chunks


def cut_into(
    sink: Sink,
    dataset: DataSet,
    *,
    seed: int,
    batch_size: int,
    smallest_batch: int = 1,
    shard_bytes: int = 1 << 20,
    chunk_bytes: int = 1 << 20,
) -> Manifest:
    """Like `cut`, but hands each chunk to `sink` (a chunk store's `put`) as soon as it is made."""
    if batch_size < 1 or shard_bytes < 1:
        raise ValueError(f"batch_size {batch_size} and shard_bytes {shard_bytes} are positive")
    if not MIN_CHUNK_BYTES <= chunk_bytes <= MAX_CHUNK_BYTES:
        raise ValueError(
            f"chunk_bytes {chunk_bytes} is not between {MIN_CHUNK_BYTES} and {MAX_CHUNK_BYTES}"
        )
    per_shard = max(1, shard_bytes // dataset.record_bytes // batch_size) * batch_size
    shards: list[Shard] = []
    for number, split in enumerate(SPLITS):
        if split not in dataset.splits:
            continue
        arrays, records = dataset.splits[split], dataset.records(split)
        order = shuffled(records, seed, number)
        sizes = {"per_shard": per_shard, "batch_size": batch_size, "smallest": smallest_batch}
        for start, stop in ranges(records, **sizes):
            data = _columns(arrays, order[start:stop])
            chunks = tuple(_chunks(data, chunk_bytes, sink))
            shards.append(Shard(split=split, records=stop - start, chunks=chunks))
    try:
        return Manifest(
            title=dataset.title, fields=dataset.fields, shards=tuple(shards), card=card(dataset)
        )
    except ValueError as error:
        raise DataMalformed(
            f"{dataset.title!r} cannot be cut: {error}.", advice="Raise shard_bytes."
        ) from error


def card(dataset: DataSet) -> Card:
    """What people should know of it. Longer texts are cut, longer lists of classes left out."""
    classes = tuple(_line(name, MAX_CARD_NAME) for name in dataset.classes)
    if len(classes) > MAX_CARD_NAMES:
        classes = ()
    listed = len(dataset.vocabulary) <= MAX_CARD_NAMES
    listed = listed and all(len(token) <= MAX_CARD_NAME for token in dataset.vocabulary)
    return Card(
        source=_line(dataset.source),
        licence=_line(dataset.licence),
        classes=classes,
        counts=_counts(dataset, len(classes)),
        vocabulary=dataset.vocabulary if listed else (),
        notes=(_line(dataset.note),) if dataset.note else (),
    )


def _line(text: str, most: int = MAX_CARD_WORDS) -> str:
    words = "".join(c if c.isprintable() else " " for c in text).split()
    line = " ".join(words)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _counts(dataset: DataSet, classes: int) -> tuple[int, ...]:
    """Records of each class in all splits, where the last field is a whole number below them."""
    target = dataset.fields[-1]
    if not classes or target.shape or np.dtype(target.dtype).kind not in "iu":
        return ()
    labels = np.concatenate([arrays[-1] for arrays in dataset.splits.values()])
    if labels.min() < 0 or labels.max() >= classes:
        return ()  # padding, or weights behind the target: not the classes themselves
    return tuple(np.bincount(labels, minlength=classes).tolist())


def ranges(
    records: int, *, per_shard: int, batch_size: int, smallest: int = 1
) -> list[tuple[int, int]]:
    """Where the shards of a split begin and end; none but a sole one holds under `smallest`."""
    starts = list(range(0, records, per_shard))
    rest = records - starts[-1] if starts else 0
    if len(starts) > 1 and (2 * rest < batch_size or rest < smallest):
        starts.pop()
    return list(zip(starts, [*starts[1:], records], strict=True))


def _columns(arrays: Arrays, rows: np.ndarray) -> bytes:
    return b"".join(
        array[rows].astype(array.dtype.newbyteorder("<"), copy=False).tobytes() for array in arrays
    )


def _chunks(data: bytes, chunk_bytes: int, sink: Sink) -> Iterator[Chunk]:
    for start in range(0, len(data), chunk_bytes):
        piece = data[start : start + chunk_bytes]
        name = content_hash(piece)
        sink(name, piece)
        yield Chunk(hash=name, bytes=len(piece))
