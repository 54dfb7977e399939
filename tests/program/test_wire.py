from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.wire import Known, read
from tests.program.protobuf import block, varint

TABLE = {
    1: Known("count", "int"),
    2: Known("name", "text", 8),
    3: Known("sizes", "ints", 4),
    4: Known("rate", "float"),
    5: Known("parts", "messages", 2),
    7: Known("data", "bytes", 3),
}


@given(st.integers(-(2**63), 2**63 - 1), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4))
def test_numbers(count, sizes):
    body = b"".join(b"\x18" + varint(size) for size in sizes)
    message = read(b"\x08" + varint(count) + body, "it", TABLE)
    assert message["count"] == [count]
    assert message.get("sizes", []) == sizes


def test_texts_floats_and_parts():
    data = block(2, "aβ".encode()) + b"\x25\x00\x00\x80\x3f" + block(5, b"x") + block(5, b"y")
    data += block(7, b"\x00\xff")
    assert read(data, "it", TABLE) == {
        "name": ["aβ"],
        "rate": [1.0],
        "parts": [b"x", b"y"],
        "data": [b"\x00\xff"],
    }


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "cut short"),
        (b"\x08\x80", "cut short"),
        (block(2, b"ab")[:-1], "cut short"),
        (b"\x12\xff\xff\xff\xff\x0f", "cut short"),
        (b"\x25\x00\x00\x80", "cut short"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "does not end"),
        (b"\x08" + b"\xff" * 9 + b"\x7f", "64 bits"),
        (b"\x08\x81\x00", "needless bytes"),
        (b"\x88\x00\x01", "needless bytes"),
        (b"\x12\x82\x00ab", "needless bytes"),
        (block(9, b""), "field 9"),
        (b"\x00\x00", "field 0"),
        (b"\x0b", "wire type 3"),
        (b"\x09" + bytes(8), "wire type 1"),
        (b"\x10\x01", "wrong way"),
        (block(1, b"\x01"), "wrong way"),
        (block(3, b"\x01\x02"), "wrong way"),  # packed: our capture writes one by one
        (b"\x08\x01\x08\x01", "twice"),
        (block(2, b"a") + b"\x08\x01", "out of order"),
        (block(2, b"123456789"), "more than 8"),
        (block(2, b"\xff"), "UTF-8"),
        (block(2, b"\xc0\x80"), "UTF-8"),
        (block(2, b"a\nb"), "cannot be shown"),
        (block(2, b"a\x00b"), "cannot be shown"),
        (block(2, "\u202ea".encode()), "cannot be shown"),
        (b"\x18\x01" * 5, "more than 4"),
        (block(5, b"") * 3, "more than 2"),
        (block(7, b"1234"), "more than 3"),
    ],
)
def test_anything_else_is_refused_with_the_reason(data, reason):
    with pytest.raises(ProgramRefused, match=reason):
        read(data, "it", TABLE)
