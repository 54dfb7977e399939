"""A small reader of the protobuf wire format, so that strangers' bytes meet our code first.

It reads one message at a time against a table of the fields we know, and refuses everything else:
unknown fields, groups, and a second occurrence of a field that may come once (a full protobuf
parser would merge the two, and the runtime would run another graph than the one we checked).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from crowdgrad.errors import ProgramRefused

Kind = Literal["int", "float", "bytes", "text", "ints", "floats", "message", "messages", "texts"]
Value = int | float | bytes | str
Message = dict[str, list[Value]]

VARINT: Final = 0
LENGTH: Final = 2
FIXED32: Final = 5
_REPEATED: Final = frozenset({"ints", "floats", "messages", "texts"})
_WIRE: Final[dict[Kind, tuple[int, ...]]] = {
    "int": (VARINT,), "ints": (VARINT, LENGTH), "float": (FIXED32,), "floats": (FIXED32, LENGTH),
    "bytes": (LENGTH,), "text": (LENGTH,), "texts": (LENGTH,), "message": (LENGTH,),
    "messages": (LENGTH,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Known:
    """A field we read. Plural kinds may repeat."""

    name: str
    kind: Kind
    most: int = 256
    """How long a text, or how many values of a plural kind."""


def read(data: bytes, what: str, table: Mapping[int, Known]) -> Message:
    """The fields of one message, each a list of values; fields that do not occur are absent."""
    message: Message = {}
    for number, wire, raw in _fields(data, what):
        known = table.get(number)
        if known is None:
            raise ProgramRefused(f"{what} has field {number}, which no program of ours uses.")
        if wire not in _WIRE[known.kind]:
            raise ProgramRefused(f"{what}: field {known.name!r} is encoded in a wrong way.")
        values = message.setdefault(known.name, [])
        if values and known.kind not in _REPEATED:
            raise ProgramRefused(f"{what}: field {known.name!r} occurs twice.")
        values.extend(_values(raw, wire, known, what))
        if len(values) > known.most and known.kind in _REPEATED:
            raise ProgramRefused(f"{what} has more than {known.most} of {known.name!r}.")
    return message


def _values(raw: int | bytes, wire: int, known: Known, what: str) -> Iterator[Value]:
    if isinstance(raw, int):
        yield _signed(raw)
    elif wire == FIXED32:
        yield struct.unpack("<f", raw)[0]
    elif len(raw) > 10 * known.most and known.kind in ("ints", "floats"):
        raise ProgramRefused(f"{what} has more than {known.most} of {known.name!r}.")
    elif known.kind == "ints":
        yield from _packed_ints(raw, what)
    elif known.kind == "floats":
        if len(raw) % 4:
            raise ProgramRefused(f"{what}: field {known.name!r} is cut short.")
        yield from (value for (value,) in struct.iter_unpack("<f", raw))
    elif known.kind in ("text", "texts"):
        yield _text(raw, known, what)
    else:
        yield raw


def _text(raw: bytes, known: Known, what: str) -> str:
    most = known.most if known.kind == "text" else 512
    if len(raw) > most:
        raise ProgramRefused(f"{what}: {known.name!r} has {len(raw)} bytes, more than {most}.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProgramRefused(f"{what}: {known.name!r} is not UTF-8.") from error


def _fields(data: bytes, what: str) -> Iterator[tuple[int, int, int | bytes]]:
    """(field number, wire type, integer or bytes) of every field of a message."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at, what)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(data, at, what)
            yield number, wire, value
            continue
        if wire == LENGTH:
            size, at = _varint(data, at, what)
        elif wire == FIXED32:
            size = 4
        else:
            raise ProgramRefused(f"{what} uses wire type {wire}, which no program of ours does.")
        if size > end - at:
            raise ProgramRefused(f"{what} is cut short.")
        yield number, wire, data[at : at + size]
        at += size


def _packed_ints(raw: bytes, what: str) -> Iterator[int]:
    at = 0
    while at < len(raw):
        value, at = _varint(raw, at, what)
        yield _signed(value)


def _varint(data: bytes, at: int, what: str) -> tuple[int, int]:
    value = 0
    for index in range(10):
        if at + index >= len(data):
            raise ProgramRefused(f"{what} is cut short.")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >> 64:
                raise ProgramRefused(f"{what} has a number of more than 64 bits.")
            return value, at + index + 1
    raise ProgramRefused(f"{what} has a number that does not end.")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
