"""Buckets: what is granted in any span of time is bounded, and so is what is remembered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.matchmaker.limits import Buckets, Rates


def test_a_burst_and_then_a_steady_rate() -> None:
    buckets = Buckets(2.0, 5.0)
    assert [buckets.take("a", 0.0) for _ in range(10)] == [0.0] * 10
    assert buckets.take("a", 0.0) == pytest.approx(0.5)
    assert buckets.take("a", 0.25) == pytest.approx(0.25)
    assert buckets.take("a", 0.5) == 0.0
    assert buckets.take("a", 0.5) > 0.0
    assert buckets.take("b", 0.5) == 0.0, "everybody has their own"
    assert [buckets.take("a", 100.0) for _ in range(11)] == [0.0] * 10 + [pytest.approx(0.5)]


def test_who_waits_as_told_is_let_in() -> None:
    buckets, now = Buckets(3.0, 0.0), 0.0
    assert buckets.take("a", now) == 0.0
    for _ in range(50):
        wait_s = buckets.take("a", now)
        assert wait_s > 0
        now += wait_s
        assert buckets.take("a", now) == 0.0


@given(
    per_s=st.floats(0.1, 50),
    burst_s=st.floats(0, 20),
    steps=st.lists(st.floats(0, 3), min_size=1, max_size=120),
)
def test_never_more_than_the_rate_and_one_burst(
    per_s: float, burst_s: float, steps: list[float]
) -> None:
    buckets, now, granted = Buckets(per_s, burst_s), 0.0, []
    for step in steps:
        now += step
        if buckets.take("a", now) == 0.0:
            granted.append(now)
    for first in range(len(granted)):
        for last in range(first, len(granted)):
            span = granted[last] - granted[first]
            most = per_s * (span + max(burst_s, 1 / per_s))
            assert last - first + 1 <= most + 1e-3


@given(st.lists(st.tuples(st.integers(0, 300), st.floats(0, 0.1)), max_size=400))
def test_the_table_never_grows_beyond_its_size(visits: list[tuple[int, float]]) -> None:
    buckets, now = Buckets(1.0, 10.0, most=16), 0.0
    for who, step in visits:
        now += step
        buckets.take(str(who), now)
        assert len(buckets) <= 16


def test_full_buckets_are_forgotten_and_others_are_not() -> None:
    buckets = Buckets(1.0, 3.0)
    for who in range(1000):
        buckets.take(str(who), 0.0)
    assert len(buckets) == 1000
    buckets.take("late", 0.5)
    assert len(buckets) == 1001
    buckets.take("later", 1.6)
    assert len(buckets) == 1


def test_a_clock_that_jumps_back_locks_nobody_out() -> None:
    buckets = Buckets(1.0, 2.0)
    for _ in range(3):
        buckets.take("a", 1e6)
    assert buckets.take("a", 0.0) <= 1.0
    assert buckets.take("a", 1.0) == 0.0


def test_rates_are_rates() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Rates(joins_per_s=0)
    with pytest.raises(ValueError, match="a second"):
        Buckets(0, 1)
    rates = Rates(joins_per_s=1, address_joins_per_s=1, key_joins_per_s=1)
    many = (rates.in_all(), 2), (rates.by_address(), 10), (rates.by_key(), 20)
    for buckets, burst in many:
        taken = [buckets.take("", 0.0) for _ in range(burst + 1)]
        assert taken == [0.0] * burst + [pytest.approx(1.0)]
