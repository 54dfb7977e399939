"""How much a late update counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.numerics.staleness import weight

STALENESS = st.integers(0, 10**9)
PATIENCE = st.floats(1e-6, 1e9)


@pytest.mark.parametrize(
    ("staleness", "patience", "expected"),
    [(0, 1, 1), (1, 1, 1), (2, 1, 0.5), (10, 1, 0.1), (4, 4, 1), (8, 4, 0.5), (10, 2.5, 0.25)],
)
def test_by_hand(staleness: int, patience: float, expected: float) -> None:
    assert weight(staleness, patience) == expected


@given(STALENESS, st.floats(max_value=0.0, allow_nan=False))
def test_without_patience_all_count_in_full(staleness: int, patience: float) -> None:
    assert weight(staleness, patience) == 1.0


@given(STALENESS)
def test_with_a_patience_of_one_the_rate_is_divided_by_the_staleness(staleness: int) -> None:
    assert weight(staleness, 1.0) == 1 / max(1, staleness)


@given(STALENESS, PATIENCE)
def test_it_is_a_share_and_never_grows_with_staleness(staleness: int, patience: float) -> None:
    assert 0 < weight(staleness + 1, patience) <= weight(staleness, patience) <= 1
    assert weight(staleness, 2 * patience) >= weight(staleness, patience)
    if staleness > patience:
        assert weight(2 * staleness, patience) == pytest.approx(weight(staleness, patience) / 2)
