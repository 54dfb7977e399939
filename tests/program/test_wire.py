from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.wire import Known, read

TABLE = {
    1: Known("count", "int"),
    2: Known("name", "text", 8),
    3: Known("sizes", "ints", 4),
    4: Known("rate", "float"),
    5: Known("parts", "messages", 2),
    6: Known("rates", "floats", 4),
}


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def block(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


@given(st.integers(-(2**63), 2**63 - 1), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4))
def test_numbers_are_read_packed_and_unpacked(count, sizes):
    unpacked = b"".join(b"\x18" + varint(size) for size in sizes)
    packed = block(3, b"".join(map(varint, sizes)))
    for body in (unpacked, packed):
        message = read(b"\x08" + varint(count) + body, "it", TABLE)
        assert message["count"] == [count]
        assert message.get("sizes", []) == sizes


def test_texts_floats_and_parts():
    data = block(2, b"ab") + b"\x25\x00\x00\x80\x3f" + block(5, b"x") + block(5, b"y")
    data += block(6, b"\x00\x00\x80\x3f\x00\x00\x00\x40")
    message = read(data, "it", TABLE)
    wanted = {"name": ["ab"], "rate": [1.0], "parts": [b"x", b"y"], "rates": [1.0, 2.0]}
    assert message == wanted


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "cut short"),
        (block(2, b"ab")[:-1], "cut short"),
        (b"\x12\xff\xff\xff\xff\x0f", "cut short"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "does not end"),
        (b"\x08" + b"\xff" * 9 + b"\x7f", "64 bits"),
        (block(9, b""), "field 9"),
        (b"\x00\x00", "field 0"),
        (b"\x0b", "wire type 3"),
        (b"\x09" + bytes(8), "wire type 1"),
        (b"\x10\x01", "wrong way"),
        (b"\x08\x01\x08\x01", "twice"),
        (block(2, b"123456789"), "more than 8"),
        (block(2, b"\xff"), "UTF-8"),
        (block(3, bytes(5)), "more than 4"),
        (block(6, bytes(5)), "cut short"),
        (block(5, b"") * 3, "more than 2"),
    ],
)
def test_anything_else_is_refused_with_the_reason(data, reason):
    with pytest.raises(ProgramRefused, match=reason):
        read(data, "it", TABLE)
