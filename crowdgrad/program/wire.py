"""A small reader of the protobuf wire format, so that strangers' bytes meet our code first.

It reads one message at a time against a table of the fields we know, and refuses everything else:
unknown fields, groups, and a second occurrence of a field that may come once (a full protobuf
parser would merge the two, and the runtime would run another graph than the one we checked). It
also refuses what is valid but not how our capture writes it, fields out of order and numbers with
needless bytes: a message then has one encoding only, and no two parsers can disagree on it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from crowdgrad.errors import ProgramRefused

Kind = Literal["int", "float", "bytes", "text", "ints", "message", "messages"]
Value = int | float | bytes | str
Message = dict[str, list[Value]]

VARINT: Final = 0
LENGTH: Final = 2
FIXED32: Final = 5
MAX_NAME_BYTES: Final = 512
_REPEATED: Final = frozenset({"ints", "messages"})
_WIRE: Final[dict[Kind, int]] = {
    "int": VARINT, "ints": VARINT, "float": FIXED32, "bytes": LENGTH, "text": LENGTH,
    "message": LENGTH, "messages": LENGTH,
}  # fmt: skip
_FLOAT: Final = struct.Struct("<f")


@dataclass(frozen=True, slots=True)
class Known:
    """A field we read. Plural kinds may repeat."""

    name: str
    kind: Kind
    most: int = 256
    """How many bytes a text or bytes may have, or how many values a plural kind."""


def read(data: bytes, what: str, table: Mapping[int, Known]) -> Message:
    """The fields of one message, each a list of values; fields that do not occur are absent."""
    message: Message = {}
    at, end, last = 0, len(data), 0
    while at < end:
        tag, at = varint(data, at, end, what)
        number, wire = tag >> 3, tag & 7
        known = table.get(number)
        if known is None or number < last:
            raise _odd_field(what, number, known)
        if wire != _WIRE[known.kind]:
            raise _odd_wire(what, wire, known)
        if wire == VARINT:
            raw, at = varint(data, at, end, what)
            value: Value = raw - (1 << 64) if raw >> 63 else raw
        else:
            size, at = (4, at) if wire == FIXED32 else varint(data, at, end, what)
            if size > end - at:
                raise ProgramRefused(f"{what} is cut short.")
            value = _value(data[at : at + size], known, what)
            at += size
        _enter(message, known, value, what)
        last = number
    return message


def varint(data: bytes, at: int, end: int, what: str) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends: before `end`."""
    if at < end and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for index, byte in enumerate(data[at : min(at + 10, end)]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >> 64:
                raise ProgramRefused(f"{what} has a number of more than 64 bits.")
            if byte == 0:
                raise ProgramRefused(f"{what} has a number with needless bytes.")
            return value, at + index + 1
    cut = at + 10 > end
    raise ProgramRefused(f"{what} {'is cut short' if cut else 'has a number that does not end'}.")


def text(raw: bytes, most: int, what: str, name: str) -> str:
    """Bytes as a text that can be shown to a person."""
    if len(raw) > most:
        raise ProgramRefused(f"{what}: {name!r} has {len(raw)} bytes, more than {most}.")
    try:
        found = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProgramRefused(f"{what}: {name!r} is not UTF-8.") from error
    if not found.isprintable():
        raise ProgramRefused(f"{what}: {name!r} holds characters that cannot be shown.")
    return found


def _value(raw: bytes, known: Known, what: str) -> Value:
    if known.kind == "text":
        return text(raw, known.most, what, known.name)
    if known.kind == "float":
        value: float = _FLOAT.unpack(raw)[0]
        return value
    if known.kind == "bytes" and len(raw) > known.most:
        raise ProgramRefused(
            f"{what}: {known.name!r} has {len(raw)} bytes, more than {known.most}."
        )
    return raw


def _enter(message: Message, known: Known, value: Value, what: str) -> None:
    values = message.get(known.name)
    if values is None:
        message[known.name] = [value]
        return
    if known.kind not in _REPEATED:
        raise ProgramRefused(f"{what}: field {known.name!r} occurs twice.")
    if len(values) >= known.most:
        raise ProgramRefused(f"{what} has more than {known.most} of {known.name!r}.")
    values.append(value)


def _odd_field(what: str, number: int, known: Known | None) -> ProgramRefused:
    if known is None:
        return ProgramRefused(f"{what} has field {number}, which no program of ours has there.")
    return ProgramRefused(f"{what}: field {known.name!r} is out of order.")


def _odd_wire(what: str, wire: int, known: Known) -> ProgramRefused:
    if wire not in (VARINT, LENGTH, FIXED32):
        return ProgramRefused(f"{what} uses wire type {wire}, which no program of ours does.")
    return ProgramRefused(f"{what}: field {known.name!r} is encoded in a wrong way.")
