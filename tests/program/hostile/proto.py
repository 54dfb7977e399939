"""A writer of the protobuf wire format that refuses nothing.

The `onnx` package writes only what makes some sense. A stranger is not so polite: here every field
number, wire type, length and byte can be written as it comes, and whole ONNX messages by the few
functions below.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

FLOAT, UINT8, INT8, INT16, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE = (
    1, 2, 3, 5, 6, 7, 8, 9, 10, 11,
)  # fmt: skip
Size = int | str | None


def varint(value: int) -> bytes:
    """Of 64 bits in two's complement, as protobuf writes negative numbers."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def number(field: int, value: int) -> bytes:
    return tag(field, 0) + varint(value)


def block(field: int, content: bytes | str) -> bytes:
    """A text, some bytes or a message inside."""
    raw = content.encode() if isinstance(content, str) else content
    return tag(field, 2) + varint(len(raw)) + raw


def fixed32(field: int, value: float) -> bytes:
    return tag(field, 5) + struct.pack("<f", value)


def fixed64(field: int, value: float) -> bytes:
    return tag(field, 1) + struct.pack("<d", value)


def blocks(field: int, contents: Iterable[bytes | str]) -> bytes:
    return b"".join(block(field, content) for content in contents)


def in_order(*fields: bytes) -> bytes:
    """One message of these fields, each given once or repeated, by their numbers.

    Our reader wants them in order; a case that is about something else keeps to that.
    """
    return b"".join(sorted((field for field in fields if field), key=_field_number))


def _field_number(field: bytes) -> int:
    value = 0
    for index, byte in enumerate(field):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    return value >> 3


# -- attributes -------------------------------------------------------------------------------


class Tensor(bytes):
    """The bytes of a TensorProto, told apart from a text."""


Attribute = int | float | str | bytes | Tensor | Sequence[int] | Sequence[float]


def attribute(name: str, value: Attribute) -> bytes:
    """An AttributeProto with the field and the type that belong to the value."""
    content, kind = _value(value)
    return block(1, name) + content + number(20, kind)


def _value(value: Attribute) -> tuple[bytes, int]:
    if isinstance(value, Tensor):
        return block(5, value), 4
    if isinstance(value, (str, bytes)):
        return block(4, value), 3
    if isinstance(value, int):
        return number(3, value), 2
    if isinstance(value, float):
        return fixed32(2, value), 1
    if any(isinstance(part, float) for part in value):
        return b"".join(fixed32(7, part) for part in value), 6
    return b"".join(number(8, int(part)) for part in value), 7


# -- graphs -----------------------------------------------------------------------------------


def node(op: str, inputs: str, outputs: str, *, more: bytes = b"", **values: Attribute) -> bytes:
    """A NodeProto; names are separated by spaces, `-` is one that is left out."""
    named = blocks(5, (attribute(name, value) for name, value in values.items()))
    ports = blocks(1, _names(inputs)), blocks(2, _names(outputs))
    return in_order(*ports, block(4, op), named, more)


def _names(text: str) -> list[str]:
    return ["" if name == "-" else name for name in text.split()]


def tensor(name: str, element: int, dims: Sequence[int], data: bytes, more: bytes = b"") -> Tensor:
    sizes = b"".join(number(1, size) for size in dims)
    named = block(8, name) if name else b""
    return Tensor(in_order(sizes, number(2, element), named, block(9, data), more))


def int64s(name: str, *values: int) -> Tensor:
    return tensor(name, INT64, (len(values),), struct.pack(f"<{len(values)}q", *values))


def int64(name: str, value: int) -> Tensor:
    return tensor(name, INT64, (), struct.pack("<q", value))


def float32(name: str, value: float) -> Tensor:
    return tensor(name, FLOAT, (), struct.pack("<f", value))


def shape(dims: Sequence[Size]) -> bytes:
    """A TensorShapeProto; None is a size of which nothing is said."""
    sizes = (
        b"" if size is None else block(2, size) if isinstance(size, str) else number(1, size)
        for size in dims
    )
    return blocks(1, sizes)


def port(name: str, element: int, dims: Sequence[Size]) -> bytes:
    return block(1, name) + block(2, block(1, number(1, element) + block(2, shape(dims))))


def strange_port(name: str, kind: bytes) -> bytes:
    """A ValueInfoProto with any bytes as its type."""
    return block(1, name) + block(2, kind)
