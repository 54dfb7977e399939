"""Packed files: what goes in comes out, and nothing else does."""

from __future__ import annotations

import errno
import hashlib
import struct
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.errors import DataAltered, DataError, DataMalformed, DataMissing
from crowdgrad.files import REAL
from crowdgrad.store import packed
from tests.disks import WatchedDisk

PARTS = st.dictionaries(
    st.text(min_size=1, max_size=20).filter(str.isprintable), st.binary(max_size=300), max_size=6
)
SAMPLE = b"".join(packed.pack(b"header", {"one": b"1234", "größe": b"", "two": bytes(range(200))}))
HEAD = struct.Struct("<8sIIQQ")


def sealed(body: bytes) -> bytes:
    """With a hash that is right, as a forger would."""
    return body + hashlib.sha256(body).digest()


def forged(
    table: object,
    *,
    header: bytes = b"",
    rest: bytes = b"",
    version: int = packed.FORMAT,
    lengths: tuple[int, int] | None = None,
) -> bytes:
    packed_table = table if isinstance(table, bytes) else msgspec.msgpack.encode(table)
    header_bytes, table_bytes = lengths or (len(header), len(packed_table))
    inside = header + packed_table + rest
    total = HEAD.size + len(inside) + 32
    head = HEAD.pack(packed.MAGIC, version, header_bytes, table_bytes, total)
    return sealed(head + inside)


@given(header=st.binary(max_size=100), parts=PARTS)
def test_what_was_packed_is_unpacked(header: bytes, parts: dict[str, bytes]) -> None:
    found = packed.unpack(b"".join(packed.pack(header, parts)))
    assert found.header == header
    assert list(found.parts.items()) == list(parts.items())


def test_a_file_goes_to_the_disk_and_comes_back(tmp_path: Path) -> None:
    parts = {"large": bytes(3 * packed.PIECE + 5), "small": bytearray(b"x"), "none": b""}
    size = packed.write(REAL, tmp_path / "file", b"header", parts)
    assert (tmp_path / "file").stat().st_size == size
    found = packed.read(REAL, tmp_path / "file")
    assert found.header == b"header"
    assert {name: bytes(part) for name, part in found.parts.items()} == parts
    assert all(part.readonly for part in found.parts.values())


def test_large_parts_are_not_joined(tmp_path: Path) -> None:
    part = bytes(4 * packed.PIECE)
    pieces = list(packed.pack(b"", {"part": part}))
    assert max(len(piece) for piece in pieces) == packed.PIECE
    views = [piece for piece in pieces if isinstance(piece, memoryview)]
    assert len(views) == 4
    assert all(view.obj is part for view in views)


def test_every_flipped_bit_is_noticed() -> None:
    for at in range(len(SAMPLE)):
        for bit in (0x01, 0x80):
            altered = bytearray(SAMPLE)
            altered[at] ^= bit
            with pytest.raises((DataAltered, DataMalformed)):
                packed.unpack(bytes(altered))


def test_every_torn_file_is_noticed() -> None:
    for length in range(len(SAMPLE)):
        with pytest.raises(DataAltered):
            packed.unpack(SAMPLE[:length])
        with pytest.raises((DataAltered, DataMalformed)):  # as long as it was, but of zeros
            packed.unpack(SAMPLE[:length] + bytes(len(SAMPLE) - length))


@given(more=st.binary(min_size=1, max_size=100))
def test_every_longer_file_is_noticed(more: bytes) -> None:
    with pytest.raises(DataAltered):
        packed.unpack(SAMPLE + more)


@given(data=st.binary(max_size=300))
def test_whatever_the_bytes_are_they_are_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        packed.unpack(data)


@settings(max_examples=300)
@given(data=st.data())
def test_whatever_a_forger_changes_the_answer_is_ours(data: st.DataObject) -> None:
    body = bytearray(SAMPLE[:-32])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    body[24:32] = struct.pack("<Q", len(body) + 32)
    try:
        found = packed.unpack(sealed(bytes(body)))
    except DataError:
        return
    again = b"".join(packed.pack(found.header, found.parts))
    assert packed.unpack(again) == found


NESTED = b"\x91" * 100_000 + b"\x00"


@pytest.mark.parametrize(
    "data",
    [
        forged([("a", 1 << 63)]),
        forged([("a", -1)]),
        forged([("a", 1)]),
        forged([("a", 0), ("a", 0)], rest=bytes(64)),
        forged([("a\n", 0)], rest=bytes(64)),
        forged([("", 0)], rest=bytes(64)),
        forged([("a" * 129, 0)], rest=bytes(200)),
        forged([(f"{number}", 0) for number in range(packed.MAX_PARTS + 1)], rest=bytes(64)),
        forged([("a", "1")]),
        forged({"a": 1}),
        forged(NESTED),
        forged(b"\xdd\xff\xff\xff\xff"),
        forged([], rest=b"more"),
        forged([("a", 1)], rest=b"\x01" * 64),
        forged([], lengths=(1 << 31, 1)),
        forged([], lengths=(0, 1 << 63)),
        forged([], lengths=(5, 5)),
    ],
    ids=lambda data: f"{len(data)} bytes",
)
def test_what_nobody_packs_is_refused_though_its_hash_is_right(data: bytes) -> None:
    with pytest.raises(DataMalformed):
        packed.unpack(data)


def test_a_later_format_is_refused_with_advice() -> None:
    with pytest.raises(DataMalformed, match="format 9") as caught:
        packed.unpack(forged([], version=9))
    assert "Use the crowdgrad" in caught.value.advice


@pytest.mark.parametrize(
    ("header", "parts"),
    [
        (b"", {"": b""}),
        (b"", {"a\x00": b""}),
        (b"", {"n" * 129: b""}),
        (b"", dict.fromkeys(map(str, range(packed.MAX_PARTS + 1)), b"")),
        (bytes(packed.MAX_HEADER_BYTES + 1), {}),
    ],
    ids=["empty", "control", "long", "many", "header"],
)
def test_what_could_not_be_read_is_not_written(
    header: bytes, parts: dict[str, bytes], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="part"):
        packed.write(REAL, tmp_path / "file", header, parts)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="nowhere"):
        packed.read(REAL, tmp_path / "nowhere")
    with pytest.raises(DataMissing):
        packed.read(REAL, tmp_path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(packed.MAX_BYTES + 1)  # a hole: it takes no room
    with pytest.raises(DataMalformed, match="at most"):
        packed.read(REAL, tmp_path / "file")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    disk = WatchedDisk()
    packed.write(disk, tmp_path / "file", b"old", {})
    disk.refuse["write"] = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        packed.write(disk, tmp_path / "file", b"new", {"part": b"x"})
    assert packed.read(disk, tmp_path / "file").header == b"old"
