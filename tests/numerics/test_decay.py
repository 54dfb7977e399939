"""Weights that shrink, and those that do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.numerics import vectors
from crowdgrad.numerics.decay import decay
from crowdgrad.numerics.vectors import BLOCK


def test_everything_shrinks_in_place() -> None:
    w = np.ones(BLOCK + 100, np.float32)
    view = w[-1:]
    decay(w, 0.25, None)
    assert (w == 0.75).all()
    decay(w, 0.5, None)
    assert view.tolist() == [0.375]
    decay(w, 0.0, None)
    assert (w == 0.375).all()
    assert w.dtype == np.float32


@given(st.integers(1, 400), st.lists(st.integers(0, 400), max_size=8), st.integers(1, 50))
def test_only_within_the_slices_whatever_the_blocks(
    length: int, cuts: list[int], block: int
) -> None:
    ends = sorted({min(cut, length) for cut in cuts})
    trained = tuple(slice(a, b) for a, b in zip(ends[::2], ends[1::2], strict=False))
    before = np.random.default_rng(length).normal(size=length).astype(np.float32)
    expected, w = before.astype(np.float64), before.copy()
    for part in trained:
        expected[part] *= 0.9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "BLOCK", block)
        decay(w, 0.1, trained[::-1])
    np.testing.assert_allclose(w, expected, rtol=1e-6)
    untouched = expected == before
    assert np.array_equal(w[untouched], before[untouched])


def test_no_slices_at_all_is_not_everything() -> None:
    w = np.ones(5, np.float32)
    decay(w, 0.5, ())
    assert w.tolist() == [1.0] * 5


def test_an_overflow_is_left_to_whoever_looks_at_the_result() -> None:
    w = np.full(3, 1e38, np.float32)
    decay(w, 1e39, None)
    assert not np.isfinite(w).any()
