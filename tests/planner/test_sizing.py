"""Slow members get smaller units, so that all take about as long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.planner.sizing import unit_batches

seconds = st.floats(1e-6, 1e6)
sizes = st.integers(1, 1 << 16)


@pytest.mark.parametrize(
    ("most", "mine_s", "usual_s", "batches", "reason"),
    [
        (8, None, 0.5, 8, "full size, 8: not measured yet"),
        (8, 0.5, None, 8, "full size, 8: not measured yet"),
        (8, 0.0, 0.5, 8, "full size, 8: not measured yet"),
        (8, 0.5, 0.5, 8, "full size, 8: as fast as the others"),
        (8, 0.4, 0.5, 8, "full size, 8: as fast as the others"),
        (8, 1.0, 0.5, 4, "4 of 8: others are 2.0 times as fast"),
        (10, 3.0, 1.0, 3, "3 of 10: others are 3.0 times as fast"),
        (10, 100.0, 1.0, 1, "1 of 10: others are 100.0 times as fast"),
        (1, 5.0, 1.0, 1, "1 of 1: others are 5.0 times as fast"),
    ],
)
def test_by_hand(
    most: int, mine_s: float | None, usual_s: float | None, batches: int, reason: str
) -> None:
    assert unit_batches(most, mine_s, usual_s) == (batches, reason)


@given(sizes, seconds, seconds)
def test_never_more_than_most_never_none_and_as_long_as_is_usual(
    most: int, mine_s: float, usual_s: float
) -> None:
    batches, reason = unit_batches(most, mine_s, usual_s)
    assert reason
    assert 1 <= batches <= most
    if batches > 1 and mine_s > usual_s:
        assert abs(batches * mine_s - most * usual_s) <= 0.51 * mine_s


@given(sizes, seconds, seconds, seconds)
def test_the_slower_the_fewer(most: int, one_s: float, other_s: float, usual_s: float) -> None:
    quick, slow = sorted((one_s, other_s))
    assert unit_batches(most, quick, usual_s)[0] >= unit_batches(most, slow, usual_s)[0]
