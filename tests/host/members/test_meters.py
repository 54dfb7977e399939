"""Rates, and where a member's time goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.work import UnitId
from crowdgrad.host.members.meters import MAX_HELD, Growth, Sums, Times

A, B = UnitId(1), UnitId(2)


def split(times: Times, now: float) -> tuple[float, float, float]:
    return times.compute_s, times.exchange_s, times.waited_s(now)


def test_time_is_waiting_until_a_unit_comes_and_work_until_its_update() -> None:
    times = Times()
    times.come(10.0)
    assert split(times, 12.0) == (0.0, 0.0, 2.0)
    times.begin(13.0, A)
    times.end(20.0, A, compute_s=5.0)
    assert split(times, 20.0) == (5.0, 2.0, 3.0)
    times.idle(20.0)
    assert split(times, 24.0) == (5.0, 2.0, 7.0)
    times.go(24.0)
    assert split(times, 99.0) == (5.0, 2.0, 7.0), "it is not here"


def test_units_that_overlap_are_counted_once() -> None:
    times = Times()
    times.come(0.0)
    times.begin(0.0, A)
    times.begin(0.0, B)
    times.end(4.0, A, compute_s=4.0)
    times.end(8.0, B, compute_s=4.0)
    assert split(times, 8.0) == (8.0, 0.0, 0.0)


def test_nobody_computes_longer_than_we_waited() -> None:
    times = Times()
    times.come(0.0)
    times.begin(1.0, A)
    times.end(3.0, A, compute_s=1e9)
    times.end(3.0, B, compute_s=1e9)  # never given
    assert split(times, 3.0) == (2.0, 0.0, 1.0)


def test_a_unit_it_never_answers_for_does_not_make_it_busy_for_ever() -> None:
    times = Times()
    times.come(0.0)
    times.begin(0.0, A)
    times.idle(2.0)
    assert split(times, 5.0) == (0.0, 2.0, 3.0)


def test_what_is_remembered_is_bounded() -> None:
    times = Times()
    times.come(0.0)
    for number in range(10 * MAX_HELD):
        times.begin(0.0, UnitId(number))
    assert len(times._held) == MAX_HELD


STEP = st.tuples(
    st.sampled_from(["come", "go", "begin", "end", "idle"]),
    st.floats(0, 10),
    st.integers(0, 3),
    st.floats(0, 20),
)
STEPS = st.lists(STEP, max_size=40)


@given(STEPS)
def test_the_parts_are_never_more_than_the_time_it_was_here(steps: list[tuple]) -> None:
    times, now, here_s, here = Times(), 0.0, 0.0, False
    for what, passed, unit, compute_s in steps:
        now += passed
        here_s += passed * here
        if what == "come":
            if not here:
                times.come(now)
            here = True
        elif what == "go":
            times.go(now)
            here = False
        elif what == "idle":
            times.idle(now)
        elif what == "begin":
            times.begin(now, UnitId(unit))
        else:
            times.end(now, UnitId(unit), compute_s)
        parts = split(times, now)
        assert min(parts) >= 0
        assert sum(parts) <= here_s + 1e-6


def test_growth_is_that_of_the_last_seconds() -> None:
    growth = Growth(window_s=5.0)
    assert growth.rate(0.0, 1000.0) == 0.0
    for second in range(1, 20):
        found = growth.rate(float(second), 1000.0 + 100.0 * second)
    assert found == pytest.approx(100.0)
    for second in range(20, 30):
        found = growth.rate(float(second), 2900.0)
    assert found == 0.0
    assert growth.rate(31.0, 0.0) == 0.0, "a total that begins anew does not shrink"


def test_growth_remembers_little() -> None:
    growth = Growth()
    for step in range(10_000):
        growth.rate(step * 0.001, float(step))
    assert len(growth._seen) <= 5.0 / 0.05 + 3


@given(st.lists(st.tuples(st.integers(0, 2), STEP), max_size=60))
def test_the_sums_are_those_of_all_members(steps: list[tuple[int, tuple]]) -> None:
    sums, now = Sums(), 0.0
    members = [Times(sums=sums) for _ in range(3)]
    for number, (what, later_s, unit, compute_s) in steps:
        now += later_s
        arguments = {"begin": (UnitId(unit),), "end": (UnitId(unit), compute_s)}.get(what, ())
        getattr(members[number], what)(now, *arguments)
        then = now + 1.0
        told = (sums.compute_s, sums.exchange_s, sums.waited_s(then))
        wanted = [sum(parts) for parts in zip(*(split(m, then) for m in members), strict=True)]
        assert told == pytest.approx(wanted, abs=1e-6)
