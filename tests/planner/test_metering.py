"""Visits and bytes stay within their limits in any stretch of time, and what is remembered of them
is bounded and forgotten harmlessly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.planner.metering import BURST_S, DAY_S, LEAST_PIECE, Bucket, Buckets, Meter, Meters

pauses = st.floats(0.0, 3.0)
wishes = st.integers(1, 1 << 20)


@given(
    st.floats(1e3, 1e9),
    st.lists(st.tuples(pauses, wishes), max_size=60),
)
def test_within_any_stretch_no_more_passes_than_the_rate_and_one_burst(
    rate: float, steps: list[tuple[float, int]]
) -> None:
    now, meter = 0.0, Meter(rate, 0, 0.0)
    passed: list[tuple[float, int]] = []
    for pause_s, wish in steps:
        now += pause_s
        count = min(meter.room(now), wish)
        if count:
            meter.passed(count, now)
            passed.append((now, count))
    burst = max(rate * BURST_S, LEAST_PIECE)
    for first in range(len(passed)):
        total = 0
        for at, count in passed[first:]:
            total += count
            assert total <= burst + rate * (at - passed[first][0]) + 1


@given(st.integers(1, 1 << 30), st.lists(st.tuples(st.floats(0, 1e5), wishes), max_size=60))
def test_a_days_allowance_is_kept_to_the_byte(per_day: int, steps: list[tuple[float, int]]) -> None:
    now, meter, day_at, today = 0.0, Meter(0.0, per_day, 0.0), None, 0
    for pause_s, wish in steps:
        now += pause_s
        count = min(meter.room(now), wish)
        if day_at is not None and now - day_at >= DAY_S:
            day_at, today = None, 0
        if count:
            meter.passed(count, now)
            day_at = now if day_at is None else day_at
            today += count
        assert today <= per_day
        assert meter.left_today(now) == per_day - today


def test_waiting_as_long_as_it_says_is_enough() -> None:
    meter = Meter(1e6, 0, 0.0)
    meter.passed(meter.room(0.0), 0.0)
    assert meter.room(0.0) == 0
    wait_s = meter.wait_s(0.0)
    assert 0 < wait_s < 1
    assert meter.room(wait_s + 1e-6) >= meter.piece - 1


def test_without_a_limit_there_is_always_room() -> None:
    meter = Meter(0.0, 0, 0.0)
    meter.passed(1 << 40, 0.0)
    assert meter.room(0.0) > 1 << 40
    assert meter.wait_s(0.0) == 0.0
    assert meter.bytes == 1 << 40


def test_the_last_bytes_of_a_day_are_given_though_they_are_no_whole_piece() -> None:
    meter = Meter(1e6, LEAST_PIECE + 10, 0.0)
    meter.passed(LEAST_PIECE, 0.0)
    assert meter.room(0.0) == 10


def test_what_is_not_there_is_not_given() -> None:
    bucket = Bucket(1.0, 2.0, 0.0)
    assert bucket.take(2.0, 0.0)
    assert not bucket.take(0.5, 0.0)
    assert bucket.level(0.0) == 0.0
    assert bucket.take(0.5, 0.5)
    assert bucket.level(-1.0) == 0.0, "a clock that goes back gives nothing"
    assert bucket.level(0.0) == 1.0, "… and nobody waits until it is there again"


def test_buckets_that_are_full_are_forgotten_and_never_more_than_so_many_held() -> None:
    buckets = Buckets(1.0, 2.0, most=3)
    for name in "abc":
        buckets.of(name, 0.0).take(1.0, 0.0)
    assert len(buckets) == 3
    buckets.of("d", 0.1).take(1.0, 0.1)
    assert len(buckets) == 3
    buckets.of("e", 100.0)
    assert len(buckets) == 1


# -- how often somebody comes ----------------------------------------------------------------


def test_a_burst_and_then_a_steady_rate() -> None:
    buckets = Buckets(2.0, 10.0)
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
    brim=st.floats(0, 200),
    steps=st.lists(st.floats(0, 3), min_size=1, max_size=120),
)
def test_nobody_comes_more_often_than_the_rate_and_one_burst(
    per_s: float, brim: float, steps: list[float]
) -> None:
    buckets, now, granted = Buckets(per_s, brim), 0.0, []
    for step in steps:
        now += step
        if buckets.take("a", now) == 0.0:
            granted.append(now)
    for first in range(len(granted)):
        for last in range(first, len(granted)):
            span = granted[last] - granted[first]
            most = max(brim, 1.0) + per_s * span
            assert last - first + 1 <= most + 1e-3


@given(st.lists(st.tuples(st.integers(0, 300), st.floats(0, 0.1)), max_size=400))
def test_never_more_names_are_remembered_than_allowed(visits: list[tuple[int, float]]) -> None:
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


def test_rates_and_sizes_of_buckets_are_checked() -> None:
    for rate, brim, most in ((0.0, 1.0, 1), (1.0, -1.0, 1), (1.0, 1.0, 0)):
        with pytest.raises(ValueError, match="a second"):
            Buckets(rate, brim, most=most)


# -- how much passes, by key -----------------------------------------------------------------


def meters(**limits: float) -> Meters:
    given = {"key_per_s": 1000.0, "key_per_day": 5000, "per_s": 0.0, **limits}
    return Meters(now=0.0, most=2, **given)  # type: ignore[arg-type]


def test_all_who_use_a_key_share_its_meter_for_as_long_as_anybody_does() -> None:
    held = meters()
    first = held.hold("a", 0.0)
    assert held.hold("a", 1.0) is first
    held.release("a", 2.0)
    for name in "bcde":
        held.hold(name, 3.0)
        held.release(name, 3.0)
    assert held.hold("a", 4.0) is first, "it is in use: whatever else is forgotten"


def test_what_a_key_has_had_is_remembered_while_it_is_away() -> None:
    held = meters()
    held.hold("a", 0.0).passed(400, 0.0)
    held.release("a", 0.0)
    assert held.left_today("a", 10.0) == 4600
    assert held.left_today("somebody", 10.0) == 5000
    held.hold("b", DAY_S + 1)
    held.release("b", DAY_S + 1)
    assert len(held) == 0, "a day later both are as if they had never been here"


def test_never_more_keys_are_remembered_than_allowed() -> None:
    held = meters()
    for number in range(10):
        held.hold(str(number), 0.0).passed(400, 0.0)
        held.release(str(number), 0.0)
    assert len(held) == 2
    assert held.left_today("9", 0.0) == 4600


@pytest.mark.parametrize("per_s", [1.0, 1e3, 1e6, 1e12])
def test_every_limit_can_be_used(per_s: float) -> None:
    meter = Meter(per_s, 0, 0.0)
    assert meter.room(0.0) >= LEAST_PIECE
