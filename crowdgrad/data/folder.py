"""A prepared data set on disk: a manifest, its seal, and the chunks it names.

    manifest          fields, shards, chunks and the card, as it travels
    seals/….json      the root of its hash tree, signed; named after the manifest's hash
    chunks/ab/ab…     the chunks, each named by its hash
    growing           there while somebody adds to it

Whoever adds to it writes the new chunks first, then the seal, then the manifest; shards are only
ever added at the end. So a reader sees one data set or a longer one, never half of either.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from crowdgrad.data.sealing import check_seal
from crowdgrad.data.shards import content_hash, decode_manifest, encode_manifest, shard_arrays
from crowdgrad.domain.data import (
    MAX_CHUNK_BYTES,
    ChunkHash,
    Manifest,
    Seal,
    Shard,
    Split,
    check_hash,
)
from crowdgrad.errors import DataAltered, DataMalformed, DataMissing
from crowdgrad.files import disk_errors, write_whole

MANIFEST, SEALS, CHUNKS, GROWING = "manifest", "seals", "chunks", "growing"
MAX_SEAL_BYTES = 4096


class DataFolder:
    """What `open_folder` found; it does not change when the folder grows: see `newer`."""

    def __init__(self, path: Path, manifest: Manifest, seal: Seal, raw: bytes) -> None:
        self.path = path
        self.manifest = manifest
        self.seal = seal
        self.raw = raw
        """The manifest as it lies there, and as it travels."""
        self.name: ChunkHash = content_hash(raw)

    @property
    def growing(self) -> bool:
        """Whether somebody adds to it, or was killed while doing so."""
        return (self.path / GROWING).exists()

    @property
    def chunks(self) -> Mapping[ChunkHash, bytes]:
        """All its chunks by name, each read and verified when it is asked for."""
        return ChunkFiles(self.path, self.manifest)

    def columns(self, number: int) -> tuple[np.ndarray, ...]:
        """A shard's records, an array for each field. Raises DataError."""
        chunks = self.manifest.shards[number].chunks
        data = b"".join(read_chunk(self.path, chunk.hash) for chunk in chunks)
        return shard_arrays(self.manifest, number, data)

    def some(self, split: Split, records: int) -> tuple[np.ndarray, ...]:
        """The first so many records of a split, or all it has. Raises DataError."""
        found: list[tuple[np.ndarray, ...]] = []
        for number in self.manifest.numbers(split):
            if sum(len(columns[0]) for columns in found) >= records:
                break
            found.append(self.columns(number))
        if not found:
            raise DataMissing(f"{self.path} has no {split} records.", advice="Prepare it anew.")
        return tuple(np.concatenate(parts)[:records] for parts in zip(*found, strict=True))

    def newer(self) -> DataFolder | None:
        """What the folder has become, if it has grown since. Raises DataError."""
        raw = _read(self.path / MANIFEST)
        if raw == self.raw:
            return None
        grown = open_folder(self.path)
        check_grown(self.manifest, grown.manifest)
        return grown


def check_grown(before: Manifest, after: Manifest) -> None:
    """Whether one is the other with more shards at its end. Raises DataAltered."""
    if after.fields != before.fields or after.shards[: len(before.shards)] != before.shards:
        raise DataAltered(
            f"{after.title!r} is no longer what it was: its fields or its first shards changed.",
            advice="Data that is trained on may only grow; prepare other data in another folder.",
        )


class ChunkFiles(Mapping[ChunkHash, bytes]):
    """The chunks of a manifest, read from the folder they lie in. Reading raises DataError."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._names = dict.fromkeys(
            chunk.hash for shard in manifest.shards for chunk in shard.chunks
        )

    def __getitem__(self, name: ChunkHash) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        return read_chunk(self._folder, name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[ChunkHash]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def is_folder(path: Path) -> bool:
    """Whether a prepared data set lies there."""
    return (path / MANIFEST).is_file() and (path / CHUNKS).is_dir()


def open_folder(path: Path) -> DataFolder:
    """Manifest and seal, checked against each other; chunks are when they are read.

    Raises DataMissing, DataMalformed, DataAltered.
    """
    raw = _read(path / MANIFEST)
    manifest = decode_manifest(raw)
    seal = _decode_seal(_read(seal_path(path, content_hash(raw)), MAX_SEAL_BYTES), path)
    check_seal(manifest, seal)
    return DataFolder(path, manifest, seal, raw)


def chunk_path(folder: Path, name: ChunkHash) -> Path:
    check_hash(name)
    return folder / CHUNKS / name[:2] / name


def seal_path(folder: Path, manifest: ChunkHash) -> Path:
    """A seal lies under the name of what it seals: two files cannot be replaced in one step."""
    return folder / SEALS / f"{manifest[:32]}.json"


def read_chunk(folder: Path, name: ChunkHash) -> bytes:
    """Raises DataMissing, DataAltered."""
    path = chunk_path(folder, name)
    data = _read(path, MAX_CHUNK_BYTES)
    if hashlib.sha256(data).hexdigest() != name:
        raise DataAltered(
            f"{path} was altered: its bytes do not match its name.",
            advice="Remove it and prepare the data again: what is whole is kept.",
        )
    return data


def write_chunk(folder: Path, data: bytes, *, sync: bool = False) -> ChunkHash:
    """Unless it is there already. `sync`: it lasts when this returns.

    Raises DiskFull, CannotWrite.
    """
    name = content_hash(data)
    path = chunk_path(folder, name)
    with disk_errors(path):
        if _size(path) != len(data) or path.read_bytes() != data:
            write_whole(path, data, sync=sync)
    return name


def write_manifest(folder: Path, manifest: Manifest, seal: Seal) -> None:
    """All chunks are there already. Raises DiskFull, CannotWrite, DataMalformed."""
    raw = encode_manifest(manifest)
    sealed = {
        "root": seal.root,
        "key": base64.b64encode(seal.key).decode(),
        "signature": base64.b64encode(seal.signature).decode(),
    }
    with disk_errors(folder):
        write_whole(
            seal_path(folder, content_hash(raw)),
            msgspec.json.format(msgspec.json.encode(sealed)) + b"\n",
        )
        write_whole(folder / MANIFEST, raw)
        for old in (folder / SEALS).glob("*.json"):
            if old != seal_path(folder, content_hash(raw)):
                old.unlink(missing_ok=True)


def missing_chunks(folder: Path, shards: tuple[Shard, ...]) -> list[ChunkHash]:
    """Those that are not there in their length; only reading one looks at its bytes."""
    sizes = {chunk.hash: chunk.bytes for shard in shards for chunk in shard.chunks}
    return [name for name, size in sizes.items() if _size(chunk_path(folder, name)) != size]


def altered_since(folder: Path, shards: tuple[Shard, ...], moment_ns: int) -> list[ChunkHash]:
    """Those that were written to after a moment and are no longer what they were."""
    found = []
    for name in dict.fromkeys(chunk.hash for shard in shards for chunk in shard.chunks):
        path = chunk_path(folder, name)
        if path.stat().st_mtime_ns > moment_ns and content_hash(path.read_bytes()) != name:
            found.append(name)
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _read(path: Path, most: int | None = None) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read() if most is None else file.read(most + 1)
    except OSError as error:
        raise DataMissing(
            f"{path} cannot be read: {error.strerror}.",
            advice="`crowdgrad data prepare SOURCE --out FOLDER` makes a prepared data set.",
        ) from error
    if most is not None and len(data) > most:
        raise DataMalformed(f"{path} is longer than {most:,} bytes.", advice="Prepare it anew.")
    return data


def _decode_seal(data: bytes, folder: Path) -> Seal:
    try:
        return msgspec.json.decode(data, type=Seal)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataMalformed(
            f"the seal of {folder} cannot be understood: {error}.", advice="Prepare it anew."
        ) from None
