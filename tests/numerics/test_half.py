"""Half-precision differences: how near they come, how little they take."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.numerics import vectors
from crowdgrad.numerics.half import HalfDifference
from crowdgrad.numerics.vectors import BLOCK, Vector

LARGEST = 0.999 * float(np.finfo(np.float32).max)
"""The rest rounds up to what float32 has not."""


def there_and_back(vector: Vector, reference: Vector) -> Vector:
    out = np.full_like(vector, 77.0)
    HalfDifference.of(vector, reference).restore(reference, out)
    return out


@settings(max_examples=60)
@given(st.integers(1, 3 * BLOCK), st.floats(-40, 36), st.floats(0, 12), st.integers(0, 10**6))
def test_the_error_is_a_small_part_of_the_blocks_largest_difference(
    length: int, exponent: float, spread: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    sizes = 10.0 ** (exponent - spread * random.uniform(size=length))
    difference = (sizes * random.normal(size=length)).astype(np.float32)
    reference = np.zeros(length, np.float32)
    error = np.abs(there_and_back(difference, reference).astype(np.float64) - difference)
    for here in vectors.blocks(length):
        largest = float(np.abs(difference[here]).max())
        assert error[here].max() <= largest * 2.0**-11 + 2.0**-149


@settings(max_examples=30)
@given(st.integers(1, 2 * BLOCK), st.floats(-9, 0), st.integers(0, 10**6))
def test_what_the_reference_loses_is_float32s_own_rounding(
    length: int, exponent: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    reference = random.normal(size=length).astype(np.float32)
    moved = reference + 10.0**exponent * random.normal(size=length)
    vector = moved.astype(np.float32)
    error = np.abs(there_and_back(vector, reference).astype(np.float64) - vector)
    largest = np.abs(vector.astype(np.float64) - reference).max()
    rounding = 2.0**-23 * np.abs(vector).max()
    assert error.max() <= largest * 2.0**-11 + rounding


def test_differences_below_what_fp16_has_survive() -> None:
    reference, vector = np.zeros(4, np.float32), np.array([1e-9, -3e-10, 0, 2e-12], np.float32)
    assert not vector.astype(np.float16).any()
    np.testing.assert_allclose(there_and_back(vector, reference), vector, rtol=2.0**-11)


def test_blocks_do_not_share_their_scale() -> None:
    vector = np.full(2 * BLOCK, 1e-12, np.float32)
    vector[:BLOCK] = 1e12
    np.testing.assert_allclose(there_and_back(vector, np.zeros_like(vector)), vector, rtol=2.0**-11)


def test_it_takes_half_the_memory() -> None:
    vector = np.ones(10 * BLOCK, np.float32)
    tracemalloc.start()
    difference = HalfDifference.of(vector, vector)
    kept, peak = tracemalloc.get_traced_memory()
    difference.restore(vector, vector)
    _, peak_of_both = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert vector.nbytes / 2 <= difference.bytes < vector.nbytes / 2 + 200
    assert abs(kept - difference.bytes) < 2_000
    assert peak <= peak_of_both < kept + 4 * BLOCK + 100_000


def test_no_difference_is_none() -> None:
    vector = np.random.default_rng(0).normal(size=BLOCK + 3).astype(np.float32)
    assert np.array_equal(there_and_back(vector, vector), vector)
    assert there_and_back(np.empty(0, np.float32), np.empty(0, np.float32)).size == 0


def test_it_may_be_restored_into_the_reference_and_keeps_neither() -> None:
    vector, reference = np.full(70_000, 3.0, np.float32), np.full(70_000, 1.0, np.float32)
    difference = HalfDifference.of(vector, reference)
    vector[:] = 50.0
    difference.restore(reference, reference)
    assert (reference == 3.0).all()


@pytest.mark.parametrize("value", [LARGEST, -LARGEST, 2.0**-149, -(2.0**-149), 2.0**-126])
def test_the_ends_of_float32(value: float) -> None:
    vector = np.array([value, 0.0], np.float32)
    np.testing.assert_allclose(there_and_back(vector, np.zeros(2, np.float32)), vector, rtol=5e-4)


@pytest.mark.parametrize("size", [1e-12, 1e9])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_harm_only_themselves(bad: float, size: float) -> None:
    vector = np.linspace(-size, size, 100, dtype=np.float32)
    vector[7] = bad
    back = there_and_back(vector, np.zeros_like(vector))
    np.testing.assert_allclose(back, vector, rtol=5e-4)
    everything = np.full(5, bad, np.float32)
    assert not np.isfinite(there_and_back(everything, np.zeros_like(everything))).any()


def test_a_difference_too_large_for_float32_becomes_infinite() -> None:
    vector, reference = np.array([3e38, 1.0], np.float32), np.array([-3e38, 0.0], np.float32)
    assert there_and_back(vector, reference).tolist() == [np.inf, 1.0]
