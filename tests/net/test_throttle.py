"""A token bucket, in time that is written down: no more passes than it says, and no less either."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.net.throttle import BURST_S, LEAST_PART_BYTES, PART_S, Throttle, of_mbps

rates = st.floats(1e3, 1e9)
bursts = st.floats(0.01, 1.0)
parts = st.integers(1, 1 << 20)
gaps = st.floats(0.0, 2.0)


def excess(passed: list[tuple[float, int]], rate: float) -> float:
    """By how much any stretch goes beyond the rate, the worst of them."""
    worst = total = 0.0
    least = math.inf
    for at, count in passed:
        least = min(least, total - rate * at)
        total += count
        worst = max(worst, total - rate * at - least)
    return worst


@given(rates, bursts, st.lists(st.tuples(gaps, parts), max_size=60))
def test_over_any_stretch_no_more_than_the_rate_a_burst_and_one_part(
    rate: float, burst_s: float, tries: list[tuple[float, int]]
) -> None:
    throttle, now = Throttle(rate, burst_s=burst_s), 100.0
    passed = []
    for gap, part in tries:
        now += gap
        if not throttle.wait_s(now):
            throttle.take(now, part)
            passed.append((now, part))
    largest = max((part for _, part in passed), default=0)
    assert excess(passed, rate) <= (rate * burst_s + largest) * (1 + 1e-6) + 1


@given(rates, bursts, parts, st.floats(0.0, 1e6))
def test_who_was_idle_has_saved_up_a_burst_and_no_more(
    rate: float, burst_s: float, part: int, idle_s: float
) -> None:
    throttle = Throttle(rate, burst_s=burst_s)
    throttle.take(0.0, 0)
    part = max(part, int(rate * burst_s / 100))  # so that it ends
    passed = 0
    while not throttle.wait_s(idle_s):
        throttle.take(idle_s, part)
        passed += part
    assert passed <= rate * burst_s + part + 1


@given(rates, parts, gaps)
def test_after_the_wait_nothing_is_owed_and_before_it_something_is(
    rate: float, count: int, before_s: float
) -> None:
    throttle = Throttle(rate)
    wait_s = throttle.take(before_s, count + int(rate * 0.2))
    assert wait_s > 0
    assert throttle.wait_s(before_s) == wait_s
    assert throttle.wait_s(before_s + 0.9 * wait_s) > 0
    assert throttle.wait_s(before_s + wait_s) == pytest.approx(0.0, abs=1e-6)


@given(rates, st.lists(st.floats(0.0, 0.09), min_size=10, max_size=100))
def test_a_late_timer_costs_nothing_while_it_is_within_a_burst(
    rate: float, pauses: list[float]
) -> None:
    throttle, now, passed = Throttle(rate, burst_s=0.1), 0.0, 0.0
    part = max(1, int(rate * 0.01))
    throttle.take(0.0, int(rate * 0.1))
    for pause_s in pauses:
        now += pause_s
        while not throttle.wait_s(now):
            throttle.take(now, part)
            passed += part
    assert passed >= rate * now * (1 - 1e-6) - 2


@given(
    st.lists(
        st.tuples(gaps, st.one_of(parts, st.just(0)), st.one_of(st.none(), st.just(0.0), rates)),
        max_size=60,
    )
)
def test_a_rate_may_change_at_any_time(steps: list[tuple[float, int, float | None]]) -> None:
    """A step: a pause, a part that is passed where it may, and the rate from then on."""
    rate: float | None = 1e6
    throttle, now = Throttle(rate), 0.0
    allowed = passed = largest_part = largest_burst = 0.0
    for gap, part, new in steps:
        now += gap
        if rate is not None:
            allowed += rate * gap
            largest_burst = max(largest_burst, rate * BURST_S)
            if not throttle.wait_s(now):
                throttle.take(now, part)
                passed, largest_part = passed + part, max(largest_part, part)
        assert (throttle.wait_s(now) == math.inf) == (rate == 0)
        throttle.set_rate(now, new)
        rate = new
        assert throttle.bytes_per_s == rate
    assert passed <= (allowed + largest_burst + largest_part) * (1 + 1e-6) + len(steps)


def test_without_a_limit_nobody_waits_and_nothing_is_owed_later() -> None:
    throttle = Throttle(None)
    assert throttle.take(0.0, 1 << 40) == throttle.wait_s(0.0) == 0.0
    throttle.set_rate(5.0, 1000)
    assert throttle.wait_s(5.0) == 0.0
    assert throttle.take(5.0, 500) == 0.5  # nothing is saved up either


def test_nothing_moves_until_it_may_and_what_is_owed_stays_owed() -> None:
    throttle = Throttle(1000, burst_s=0.1)
    assert throttle.take(0.0, 1100) == 1.0
    throttle.set_rate(0.5, 0)
    assert throttle.wait_s(99.0) == math.inf
    throttle.set_rate(100.0, 100)
    assert throttle.wait_s(100.0) == 5.0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    throttle = Throttle(1000, burst_s=0.1)
    assert throttle.take(10.0, 1100) == 1.0
    assert throttle.wait_s(5.0) == 1.0
    assert throttle.wait_s(10.5) == 0.5


def test_parts_are_small_where_little_passes() -> None:
    assert Throttle(None).part(1 << 20) == 1 << 20
    assert Throttle(0).part(1 << 20) == Throttle(1000).part(1 << 20) == LEAST_PART_BYTES
    assert Throttle(1e7).part(1 << 20) == int(1e7 * PART_S)
    assert Throttle(1e9).part(1 << 20) == 1 << 20
    assert Throttle(1e9).part(10) == 10


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf])
def test_a_rate_is_a_number_from_nothing_on(rate: float) -> None:
    with pytest.raises(ValueError, match="bytes a second"):
        Throttle(rate)
    with pytest.raises(ValueError, match="bytes a second"):
        Throttle(1).set_rate(0.0, rate)


def test_a_setting_of_0_is_no_cap() -> None:
    assert of_mbps(0.0) is None
    capped = of_mbps(8.0)
    assert capped is not None
    assert capped.bytes_per_s == 1e6
