"""Flat vectors: the look for numbers that are none, and bytes without copies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.numerics.vectors import BLOCK, all_finite, as_bytes, as_vector, blocks

LARGEST = np.finfo(np.float32).max


@given(st.integers(0, 5 * BLOCK))
def test_blocks_cover_a_vector_once(length: int) -> None:
    covered = [part for here in blocks(length) for part in [range(length)[here]]]
    assert [part.start for part in covered] == list(range(0, length, BLOCK))
    assert sum(len(part) for part in covered) == length


@pytest.mark.parametrize("length", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_number_anywhere_is_found(length: int, bad: float) -> None:
    for at in {0, length // 2, length - 1}:
        vector = np.ones(length, np.float32)
        assert all_finite(vector)
        vector[at] = bad
        assert not all_finite(vector)


def test_a_sum_that_overflows_is_not_mistaken_for_a_bad_number() -> None:
    assert all_finite(np.full(3 * BLOCK, LARGEST, np.float32))
    mixed = np.tile(np.array([LARGEST, LARGEST, -LARGEST, -LARGEST], np.float32), BLOCK)
    assert all_finite(mixed)
    mixed[-1] = np.nan
    assert not all_finite(mixed)


def test_infinities_that_cancel_are_found() -> None:
    vector = np.zeros(2 * BLOCK, np.float32)
    vector[[3, 9]] = np.inf, -np.inf
    assert not all_finite(vector)
    assert all_finite(np.empty(0, np.float32))


@given(st.lists(st.floats(width=32, allow_nan=True), max_size=50))
def test_it_agrees_with_looking_at_each(values: list[float]) -> None:
    vector = np.array(values, np.float32)
    assert all_finite(vector) == bool(np.isfinite(vector).all())


def test_bytes_and_vectors_share_their_memory() -> None:
    vector = np.arange(5, dtype=np.float32)
    view = as_bytes(vector)
    assert (view.format, len(view), view.readonly) == ("B", 20, False)
    back = as_vector(view)
    back[2] = 99.0
    assert vector[2] == 99.0
    assert bytes(view[:8]) == vector[:2].tobytes()
    assert len(as_bytes(np.empty(0, np.float32))) == 0


def test_what_has_no_bytes_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        as_bytes(np.arange(6, dtype=np.float32)[::2])
    with pytest.raises(ValueError, match="multiple"):
        as_vector(b"12345")
