"""Protobuf by hand, for files that the `onnx` package would not write."""

from __future__ import annotations


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def block(number: int, content: bytes) -> bytes:
    """A field that is a text, bytes or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content
