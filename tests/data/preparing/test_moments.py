"""Means and deviations as numpy finds them, of whatever parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.data.preparing.fitting import FieldPlan, Source
from crowdgrad.data.preparing.moments import joined, mean_and_std, moments

EACH = FieldPlan("x", "float32", (3,), "dense", (Source("x"),), normal="each")


def cut(values: np.ndarray, pieces: int) -> tuple[object, object]:
    parts = (moments(part, EACH) for part in np.array_split(values, pieces))
    return mean_and_std(joined(parts), EACH)


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 2**32), st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_as_numpy_and_the_same_for_any_parts(seed: int, centre: float, width: float) -> None:
    values = np.random.default_rng(seed).normal(centre, width, (300, 3)).astype(np.float32)
    whole = cut(values, 1)
    exact = values.astype(np.float64)
    assert np.allclose(whole[0], exact.mean(axis=0), rtol=1e-6, atol=1e-6 * width)  # type: ignore[arg-type]
    if (exact.std(axis=0) > 1e-5 * np.abs(exact.mean(axis=0))).all():
        assert np.allclose(whole[1], exact.std(axis=0), rtol=1e-5)  # type: ignore[arg-type]
    assert all(cut(values, pieces) == whole for pieces in (2, 3, 7, 299))


@pytest.mark.parametrize("value", [0.0, 0.1, -1e-20, 16777217.3, 1e30])
def test_what_never_changes_stays_as_it_is(value: float) -> None:
    """Rounding leaves a deviation of 1e-17 that would blow up the next rounding's rest."""
    values = np.full((999, 3), value, np.float32)
    for pieces in (1, 7, 50):
        assert cut(values, pieces)[1] == (1.0, 1.0, 1.0)


def test_a_mean_of_almost_nothing_is_nothing() -> None:
    values = np.random.default_rng(0).normal(0, 1, (500, 3)).astype(np.float32)
    values = np.concatenate([values, -values])
    assert all(cut(values, pieces)[0] == (0.0, 0.0, 0.0) for pieces in (1, 3, 11))
