"""Every codec against a slow and obvious one, on every pattern and on whatever hypothesis finds."""

from __future__ import annotations

import math
import struct
import typing
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdgrad.domain.work import CODED_BYTES, CodecName
from crowdgrad.numerics.codecs import CODECS
from crowdgrad.numerics.vectors import BLOCK, Vector

HALVES: tuple[CodecName, ...] = ("fp16", "bf16")
EVERY_PATTERN = np.arange(1 << 16, dtype=np.uint16)
LARGEST = {"fp16": 65504.0, "bf16": float.fromhex("0x1.fep127")}
SMALLEST_STEP = {"fp16": 2.0**-24, "bf16": 2.0**-133}
BITS = {"fp16": 11, "bf16": 8}
"""Significant ones."""
FLOATS = st.floats(width=32)
EDGES = [
    0.0, -0.0, 1.0, -1.0, 65504.0, 65519.0, 65520.0, -65520.0, 1e10, -1e38, 3.4e38, -3.4e38,
    2.0**-14, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 6e-8, 1e-30, -1e-45, math.inf, -math.inf,
    math.nan,
]  # fmt: skip


def encoded(name: CodecName, values: Vector) -> NDArray[np.uint16]:
    out = np.empty(len(values), CODECS[name].dtype)
    CODECS[name].encode(values, out)
    return out.view(np.uint16)


def decoded(name: CodecName, bits: NDArray[np.uint16]) -> Vector:
    out = np.full(len(bits), 7.0, np.float32)
    CODECS[name].decode(bits.view(CODECS[name].dtype), out)
    return out


def there_and_back(name: CodecName, values: list[float]) -> list[float]:
    found = decoded(name, encoded(name, np.array(values, np.float32)))
    return [float(value) for value in found]


def slow_bf16(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<HH", 0, bits))[0])


def slow_fp16(bits: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", bits))[0])


SLOW: dict[str, Callable[[int], float]] = {"fp16": slow_fp16, "bf16": slow_bf16}


@pytest.mark.parametrize("name", HALVES)
def test_every_pattern_means_what_it_should(name: CodecName) -> None:
    found = decoded(name, EVERY_PATTERN)
    expected = np.array([SLOW[name](int(bits)) for bits in EVERY_PATTERN], np.float64)
    np.testing.assert_array_equal(found, expected)
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(found)].all()


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("shift", [0, 5])
def test_every_pattern_stays_what_it_is(name: CodecName, shift: int) -> None:
    """Also where a block has no odd numbers in it, and so goes another way."""
    values = decoded(name, EVERY_PATTERN)
    for chosen in (np.isfinite(values), np.ones(len(values), bool)):
        bits = np.roll(EVERY_PATTERN[chosen], shift)
        again, nan = encoded(name, values[bits]), np.isnan(values[bits])
        assert (again[~nan] == bits[~nan]).all()
        assert np.isnan(decoded(name, again[nan])).all()


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("sign", [0, 0x8000])
def test_between_any_two_neighbours_the_nearer_one_is_taken(name: CodecName, sign: int) -> None:
    bits = np.flatnonzero(np.isfinite(decoded(name, EVERY_PATTERN[:0x8000]))).astype(np.uint16)
    near, far = bits[:-1] | sign, bits[1:] | sign
    ends = decoded(name, near), decoded(name, far)
    middle = (ends[0] + (ends[1] - ends[0]) / 2).astype(np.float32)
    even = np.where(near % 2 == 0, near, far)
    assert (encoded(name, middle) == even).all()
    assert (encoded(name, np.nextafter(middle, ends[0])) == near).all()
    assert (encoded(name, np.nextafter(middle, ends[1])) == far).all()


def nearest(name: CodecName, value: float) -> float:
    """Worked out in fractions; of two that are as near, the even one."""
    exact, step = Fraction(value), Fraction(SMALLEST_STEP[name])
    while abs(exact) >= step * 2 ** BITS[name]:
        step *= 2
    return float(round(exact / step) * step)


@pytest.mark.parametrize("name", HALVES)
@given(values=st.lists(FLOATS | st.sampled_from(EDGES), min_size=1, max_size=20))
def test_it_rounds_to_the_nearest_and_ties_to_even(name: CodecName, values: list[float]) -> None:
    for value, found in zip(values, there_and_back(name, values), strict=True):
        if math.isnan(value):
            assert math.isnan(found)
        elif math.isinf(value):
            assert found == value
        elif abs(value) >= LARGEST[name]:
            assert found == math.copysign(LARGEST[name], value)
        else:
            expected = nearest(name, float(np.float32(value)))
            assert found == max(-LARGEST[name], min(LARGEST[name], expected))
            assert math.copysign(1, found) == math.copysign(1, value)


@given(values=st.lists(FLOATS | st.sampled_from(EDGES), min_size=1, max_size=20))
def test_half_precision_is_numpys_unless_that_would_be_infinite(values: list[float]) -> None:
    vector = np.array(values, np.float32)
    with np.errstate(over="ignore"):
        expected = vector.astype(np.float16)
    found = encoded("fp16", vector).view(np.float16)
    same = np.isnan(vector) | (np.isfinite(vector) & np.isinf(expected))
    assert (found.view(np.uint16) == expected.view(np.uint16))[~same].all()


@pytest.mark.parametrize("name", HALVES)
@given(values=st.lists(FLOATS, min_size=1, max_size=20))
def test_twice_is_once(name: CodecName, values: list[float]) -> None:
    once = there_and_back(name, values)
    np.testing.assert_array_equal(there_and_back(name, once), once)


@pytest.mark.parametrize("name", HALVES)
@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_error_is_bounded(name: CodecName, value: float) -> None:
    (found,) = there_and_back(name, [value])
    if abs(value) <= LARGEST[name]:
        bound = max(abs(value) * 2.0 ** -BITS[name], SMALLEST_STEP[name] / 2)
        assert abs(found - value) <= bound
    assert math.isfinite(found)


@pytest.mark.parametrize("name", typing.get_args(CodecName))
@pytest.mark.parametrize("odd", [None, math.nan, math.inf, -math.inf, 1e38])
@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 2 * BLOCK])
def test_long_vectors_block_by_block(name: CodecName, odd: float | None, at: int) -> None:
    """What is odd in one block is found there, and the others are as they would be without."""
    dice = np.random.default_rng(5)
    length = 2 * BLOCK + 77
    vector = (dice.standard_normal(length) * 10.0 ** dice.uniform(-9, 3, length)).astype(np.float32)
    out, back = np.empty(length, CODECS[name].dtype), np.empty_like(vector)
    CODECS[name].encode(vector, out)
    expected = out.copy()
    if odd is not None:
        vector[at] = odd
    before = vector.copy()
    CODECS[name].encode(vector, out)
    np.testing.assert_array_equal(vector, before)  # only read
    CODECS[name].decode(out, back)
    others = np.arange(length) != at
    assert (out.view(np.uint8) == expected.view(np.uint8)).reshape(length, -1)[others].all()
    those, found = vector[others], back[others]
    assert (np.abs(found - those) <= 2.0**-8 * np.abs(those) + 2.0**-25).all()
    if odd is not None and not math.isfinite(odd):
        np.testing.assert_array_equal(back[at], vector[at])
    elif odd is not None:
        assert np.isfinite(back[at])


@pytest.mark.parametrize("name", typing.get_args(CodecName))
def test_nothing_is_as_good_as_anything(name: CodecName) -> None:
    assert CODECS[name].dtype.itemsize == CODED_BYTES[name]
    CODECS[name].encode(np.empty(0, np.float32), np.empty(0, CODECS[name].dtype))
    CODECS[name].decode(np.empty(0, CODECS[name].dtype), np.empty(0, np.float32))
