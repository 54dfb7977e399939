"""A packed file: a header and many named parts, of which not a byte can change unnoticed.

    magic, format, lengths   32 bytes
    header                   whatever its owner wants
    table                    msgpack: the name and length of every part
    parts                    raw, each at a multiple of 64 bytes, zeros in between
    sha256                   over everything before it

Packed files travel between machines, so what is read is a stranger's: every length is compared with
what is there before anything is made of it, nothing is executed, and whatever the bytes are, the
answer is what they hold or one of our errors. The hash finds accidents, not forgers.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from crowdgrad.errors import DataAltered, DataMalformed, DataMissing
from crowdgrad.files import Bytes, Disk, write_parts

MAGIC = b"\x89CGpack\n"
"""Not text, and altered by whoever takes it for text."""
FORMAT = 1
MAX_HEADER_BYTES = 64 << 20
MAX_TABLE_BYTES = 32 << 20
MAX_PARTS = 1 << 18
MAX_NAME = 128
MAX_BYTES = 1 << 36
"""Of a whole file: 64 GiB, to be read into memory."""
ALIGN = 64
PIECE = 1 << 20
"""What is hashed and written at a time."""

_HEAD = struct.Struct("<8sIIQQ")  # magic, format, header's length, table's length, the whole
_HASH_BYTES = hashlib.sha256().digest_size
_TABLE = msgspec.msgpack.Decoder(list[tuple[str, int]])
N = TypeVar("N", bound=str)
ADVICE = "Take an older one, or copy the run again."


@dataclass(frozen=True, slots=True)
class Packed:
    header: bytes
    parts: dict[str, memoryview]
    """In the order in which they were written; they share the memory of the file's bytes."""


def write(disk: Disk, path: Path, header: bytes, parts: Mapping[N, Bytes]) -> int:
    """All of it or nothing new; it lasts when this returns. Returns its bytes. Raises OSError."""
    return write_parts(disk, path, pack(header, parts))


def read(disk: Disk, path: Path, *, most_bytes: int = MAX_BYTES) -> Packed:
    """Raises DataMissing, DataMalformed or DataAltered."""
    try:
        size = disk.size(path)
        if size > most_bytes:
            raise DataMalformed(
                f"{path} has {size:,} bytes; at most {most_bytes:,} are read.", advice=ADVICE
            )
        data = disk.read(path)
    except OSError as error:
        raise DataMissing(f"Cannot read {path}: {error.strerror or error}.") from error
    return unpack(data, str(path))


def pack(header: bytes, parts: Mapping[N, Bytes]) -> Iterator[Bytes]:
    """The file's bytes in pieces. Raises ValueError for what `unpack` would refuse."""
    table = msgspec.msgpack.encode([(name, _length(part)) for name, part in parts.items()])
    _check(header, table, parts)
    end = _HEAD.size + len(header) + len(table)
    for part in parts.values():
        end = _aligned(end) + _length(part)
    digest = hashlib.sha256()
    for piece in _pieces(header, table, parts, end + _HASH_BYTES):
        digest.update(piece)
        yield piece
    yield digest.digest()


def _pieces(header: bytes, table: bytes, parts: Mapping[N, Bytes], total: int) -> Iterator[Bytes]:
    yield _HEAD.pack(MAGIC, FORMAT, len(header), len(table), total) + header + table
    at = _HEAD.size + len(header) + len(table)
    for part in parts.values():
        yield bytes(_aligned(at) - at)
        yield from _cut(part)
        at = _aligned(at) + _length(part)


def _cut(part: Bytes) -> Iterator[Bytes]:
    view = memoryview(part)
    if view.nbytes:  # `cast` refuses an empty one
        view = view.cast("B")
        for start in range(0, len(view), PIECE):
            yield view[start : start + PIECE]


def _check(header: bytes, table: bytes, parts: Mapping[N, Bytes]) -> None:
    if len(header) > MAX_HEADER_BYTES or len(table) > MAX_TABLE_BYTES or len(parts) > MAX_PARTS:
        raise ValueError(
            f"a header of {len(header):,} bytes and {len(parts):,} parts are too much for one file"
        )
    for name in parts:
        if wrong := _wrong_name(name):
            raise ValueError(wrong)


def _wrong_name(name: str) -> str:
    if 0 < len(name) <= MAX_NAME and name.isprintable():
        return ""
    return f"a part's name has 1 to {MAX_NAME} printable characters, not {name[:20]!r}"


def unpack(data: bytes, what: str = "the file") -> Packed:
    """What the bytes hold. Raises DataMalformed or DataAltered; `what` is named in them."""
    if len(data) < _HEAD.size + _HASH_BYTES:
        raise DataAltered(f"{what} ends after {len(data)} bytes.", advice=ADVICE)
    magic, version, header_bytes, table_bytes, total = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise DataMalformed(f"{what} is not a packed file.", advice=ADVICE)
    if version != FORMAT:
        raise DataMalformed(
            f"{what} has format {version}, and this crowdgrad reads {FORMAT}.",
            advice="Use the crowdgrad it was written with.",
        )
    if total != len(data):
        raise DataAltered(f"{what} has {len(data):,} of {total:,} bytes.", advice=ADVICE)
    view = memoryview(data)
    found = hashlib.sha256(view[:-_HASH_BYTES]).digest()
    if found != data[-_HASH_BYTES:]:
        raise DataAltered(f"{what} was altered: its bytes do not match their hash.", advice=ADVICE)
    try:
        return _parse(view[:-_HASH_BYTES], header_bytes, table_bytes)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataMalformed(f"{what} cannot be understood: {error}.", advice=ADVICE) from None


def _parse(view: memoryview, header_bytes: int, table_bytes: int) -> Packed:
    """Raises ValueError for what `pack` did not write."""
    if header_bytes > MAX_HEADER_BYTES or table_bytes > MAX_TABLE_BYTES:
        raise ValueError(f"a header of {header_bytes:,} and a table of {table_bytes:,} bytes")
    at = _HEAD.size + header_bytes + table_bytes
    if at > len(view):
        raise ValueError("header and table end after the file")
    header = view[_HEAD.size : _HEAD.size + header_bytes].tobytes()
    table = _TABLE.decode(view[_HEAD.size + header_bytes : at])
    if len(table) > MAX_PARTS:
        raise ValueError(f"{len(table):,} parts; at most {MAX_PARTS:,} are taken")
    parts: dict[str, memoryview] = {}
    for name, length in table:
        if wrong := _wrong_name(name):
            raise ValueError(wrong)
        start = _aligned(at)
        if name in parts or not 0 <= length <= len(view) - start or any(view[at:start]):
            raise ValueError(f"part {name!r} of {length} bytes at {start} does not fit")
        at = start + length
        parts[name] = view[start:at]
    if at != len(view):
        raise ValueError(f"{len(view) - at} bytes belong to no part")
    return Packed(header, parts)


def _aligned(at: int) -> int:
    return -(-at // ALIGN) * ALIGN


def _length(part: Bytes) -> int:
    return memoryview(part).nbytes
