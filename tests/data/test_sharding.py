"""Cutting and reading back: nothing lost, nothing changed, whole batches, the same every time."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.data import shards
from crowdgrad.data.dataset import DataSet, from_arrays
from crowdgrad.data.sharding import cut, cut_into, ranges
from crowdgrad.data.shards import (
    MAX_MANIFEST_BYTES,
    decode_manifest,
    encode_manifest,
    shard_arrays,
)
from crowdgrad.domain.data import MIN_CHUNK_BYTES, Card, ChunkHash, Manifest, Split
from crowdgrad.errors import DataError, DataMalformed


def joined(manifest: Manifest, chunks: dict[ChunkHash, bytes], number: int) -> bytes:
    return b"".join(chunks[chunk.hash] for chunk in manifest.shards[number].chunks)


def small(records: int = 100) -> DataSet:
    x = np.arange(records * 3, dtype=np.uint8).reshape(records, 3)
    return from_arrays({"train": (x, np.arange(records)), "test": (x[:7], np.arange(7))})


@settings(max_examples=40, deadline=None)
@given(
    records=st.integers(1, 300),
    width=st.integers(1, 5),
    batch_size=st.integers(1, 40),
    shard_bytes=st.integers(1, 3000),
    seed=st.integers(0, 2**64 - 1),
    dtype=st.sampled_from(
        ["float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"]
    ),
)
def test_every_record_comes_back_once(
    records: int, width: int, batch_size: int, shard_bytes: int, seed: int, dtype: str
) -> None:
    ids = np.arange(records, dtype=np.int64)
    x = np.random.default_rng(0).integers(0, 2, (records, width)).astype(dtype)
    manifest, chunks = cut(
        from_arrays(x, ids), seed=seed, batch_size=batch_size, shard_bytes=shard_bytes
    )
    seen: list[int] = []
    for number in manifest.numbers("train"):
        data = joined(manifest, dict(chunks), number)
        got, got_ids = shard_arrays(manifest, number, memoryview(data))
        assert np.array_equal(got, x[got_ids])
        assert got.dtype == dtype
        seen.extend(got_ids.tolist())
    assert sorted(seen) == ids.tolist()


@settings(max_examples=100, deadline=None)
@given(records=st.integers(1, 2000), batch=st.integers(1, 50), batches=st.integers(1, 10))
def test_shards_hold_whole_batches(records: int, batch: int, batches: int) -> None:
    found = ranges(records, per_shard=batch * batches, batch_size=batch)
    assert [stop for _, stop in found[:-1]] == [start for start, _ in found[1:]]
    assert (found[0][0], found[-1][1]) == (0, records)
    assert all((stop - start) == batch * batches for start, stop in found[:-1])
    if len(found) > 1:
        assert 2 * (found[-1][1] - found[-1][0]) >= batch


def test_a_small_remainder_joins_the_shard_before() -> None:
    assert ranges(104, per_shard=50, batch_size=10) == [(0, 50), (50, 104)]
    assert ranges(105, per_shard=50, batch_size=10) == [(0, 50), (50, 100), (100, 105)]
    assert ranges(3, per_shard=50, batch_size=10) == [(0, 3)]


def test_the_largest_multiple_of_the_batch_that_fits() -> None:
    manifest, _ = cut(small(), seed=0, batch_size=10, shard_bytes=11 * 25)
    assert [shard.records for shard in manifest.shards] == [20, 20, 20, 20, 20, 7]
    manifest, _ = cut(small(), seed=0, batch_size=64, shard_bytes=1)
    assert [shard.records for shard in manifest.shards] == [64, 36, 7]


def test_cutting_is_deterministic_and_shuffles_each_split_by_seed() -> None:
    (first, chunks), (again, _), (other, _) = (
        cut(small(), seed=seed, batch_size=10) for seed in (5, 5, 6)
    )
    assert first == again
    assert encode_manifest(first) != encode_manifest(other)
    for split in ("train", "test"):
        number = first.numbers(split)[0]
        _, ids = shard_arrays(first, number, joined(first, dict(chunks), number))
        assert ids.tolist() != sorted(ids.tolist())


def test_chunks_are_named_by_their_content_and_only_the_last_is_short() -> None:
    x = np.random.default_rng(1).integers(0, 256, (900, 1000), dtype=np.uint8)
    manifest, chunks = cut(from_arrays(x), seed=1, batch_size=300, chunk_bytes=MIN_CHUNK_BYTES)
    (shard,) = manifest.shards
    assert [chunk.bytes for chunk in shard.chunks] == [MIN_CHUNK_BYTES] * 3 + [113568]
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in chunks.items())


def test_cut_into_streams_the_same_chunks() -> None:
    got: dict[ChunkHash, bytes] = {}
    manifest = cut_into(got.__setitem__, small(), seed=1, batch_size=8)
    assert (manifest, got) == cut(small(), seed=1, batch_size=8)


def test_what_people_should_know_travels_on_the_card() -> None:
    data = replace(small(), classes=("a", "b\n", "x" * 99), licence="CC0", source="made\tup")
    y = np.array([0, 1, 1, 2])
    data = replace(data, note="two\nlines", splits={"train": (data.splits["train"][0][:4], y)})
    manifest, _ = cut(data, seed=1, batch_size=2)
    assert manifest.card == Card(
        source="made up",
        licence="CC0",
        classes=("a", "b", "x" * 63 + "…"),
        counts=(1, 2, 1),
        notes=("two lines",),
    )
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert cut(replace(data, classes=("a", "b")), seed=1, batch_size=2)[0].card.counts == ()
    assert cut(replace(data, classes=("c",) * 5000), seed=1, batch_size=2)[0].card.classes == ()


def test_bytes_on_the_wire_are_little_endian_columns() -> None:
    dataset = from_arrays(np.array([258], np.int32), np.array([[1, 2]], np.uint8))
    manifest, chunks = cut(dataset, seed=0, batch_size=1)
    assert joined(manifest, dict(chunks), 0) == bytes([2, 1, 0, 0, 1, 2])


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"shard_bytes": 0}, {"chunk_bytes": 1 << 30}])
def test_senseless_sizes_are_refused(wrong: dict[str, int]) -> None:
    arguments = {"seed": 0, "batch_size": 8} | wrong
    with pytest.raises(ValueError, match=next(iter(wrong))):
        cut(small(), **arguments)


def test_arrays_are_views_and_cannot_be_written() -> None:
    manifest, chunks = cut(small(), seed=0, batch_size=10)
    buffer = bytearray(joined(manifest, dict(chunks), 0))
    x, ids = shard_arrays(manifest, 0, memoryview(buffer))
    before = int(x[0, 0])
    buffer[0] ^= 255
    assert x[0, 0] == before ^ 255
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1


@pytest.mark.parametrize("change", [-1, 1])
def test_a_buffer_of_the_wrong_size_is_refused(change: int) -> None:
    manifest, _ = cut(small(), seed=0, batch_size=10)
    with pytest.raises(DataMalformed, match="1,100 bytes"):
        shard_arrays(manifest, 0, bytes(manifest.shards[0].bytes + change))


def test_a_manifest_survives_the_wire() -> None:
    manifest, _ = cut(small(), seed=0, batch_size=10)
    data = encode_manifest(manifest)
    assert decode_manifest(data) == decode_manifest(memoryview(data)) == manifest


def test_a_manifest_that_contradicts_itself_is_refused() -> None:
    manifest, _ = cut(small(), seed=0, batch_size=10)
    raw = msgspec.msgpack.decode(encode_manifest(manifest))
    raw["shards"][0]["records"] += 1
    with pytest.raises(DataMalformed, match="1100 bytes for 101 records"):
        decode_manifest(msgspec.msgpack.encode(raw))


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=400), cut_at=st.integers(0, 500), flip=st.integers(0, 500))
def test_no_bytes_make_the_decoder_fail_otherwise(data: bytes, cut_at: int, flip: int) -> None:
    good = bytearray(encode_manifest(cut(small(20), seed=0, batch_size=10)[0]))
    good[flip % len(good)] ^= 0x41
    for bad in (data, bytes(good), bytes(good[:cut_at])):
        with contextlib.suppress(DataError):
            assert isinstance(decode_manifest(bad), Manifest)


def test_depth_and_length_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataMalformed):
        decode_manifest(b"\x81\xa1q" + b"\x91" * 100_000)
    monkeypatch.setattr(shards, "MAX_MANIFEST_BYTES", 50)
    manifest, _ = cut(small(), seed=0, batch_size=10)
    with pytest.raises(DataMalformed, match="longer than 50"):
        decode_manifest(bytes(51))
    with pytest.raises(DataMalformed, match="more than 50"):
        encode_manifest(manifest)


def _manifest_of(fields: bytes, shards: bytes) -> bytes:
    """A manifest of which the two lists are any bytes."""
    return b"\x83\xa5title\xa1t\xa6fields" + fields + b"\xa6shards" + shards


def _list(count: int, item: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + item * count


FIELD = msgspec.msgpack.encode({"name": "x", "dtype": "int8", "shape": []})
SHARD = msgspec.msgpack.encode(
    {"split": "train", "records": 1, "chunks": [{"hash": "a" * 64, "bytes": 1}]}
)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_manifest_of(_list(300_000, FIELD), _list(1, SHARD)), "fields take more than"),
        (_manifest_of(_list(300, FIELD), _list(1, SHARD)), "300 fields"),
        (_manifest_of(_list(1, FIELD), _list(140_000, SHARD)), "in 140000 shards"),
        (_manifest_of(b"\xdd\xff\xff\xff\xff", _list(1, SHARD)), "truncated"),
        (_manifest_of(_list(1, FIELD), b"\x91" * 100_000), "."),
        (_manifest_of(_list(1, FIELD), _list(1, SHARD)) + b"\xc0", "trailing"),
        (b"\x84\xa4more\xc0" + _manifest_of(_list(1, FIELD), _list(1, SHARD))[1:], "unknown"),
    ],
    ids=["bytes of fields", "fields", "shards", "promise", "depth", "trailing", "more"],
)
def test_what_a_stranger_may_announce_is_bounded_before_objects_are_made(
    data: bytes, reason: str
) -> None:
    assert decode_manifest(_manifest_of(_list(1, FIELD), _list(1, SHARD))).fields[0].name == "x"
    tracemalloc.start()
    try:
        with pytest.raises(DataMalformed, match=reason) as refused:
            decode_manifest(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(str(refused.value)) < 400
    assert peak < 8 * MAX_MANIFEST_BYTES


def test_the_trainer_s_reader_is_light() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, crowdgrad.data.shards; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = {"torch", "onnx", "onnxruntime", "sklearn", "rich", "fastapi", "subprocess", "asyncio"}
    assert not heavy & set(loaded)


def test_all_splits_are_cut() -> None:
    manifest, _ = cut(from_arrays(np.arange(50), validation=5, test=6), seed=0, batch_size=4)
    counts: dict[Split, int] = {"train": 39, "validation": 5, "test": 6}
    assert {split: manifest.records(split) for split in counts} == counts


@given(st.integers(1, 400), st.integers(1, 6), st.integers(1, 12), st.integers(1, 4))
def test_no_shard_is_smaller_than_the_smallest_batch(
    records: int, batches: int, batch_size: int, smallest: int
) -> None:
    found = ranges(
        records, per_shard=batches * batch_size, batch_size=batch_size, smallest=smallest
    )
    assert found[0][0] == 0
    assert found[-1][1] == records
    if len(found) > 1 and batch_size >= smallest:
        assert min(stop - start for start, stop in found) >= smallest
