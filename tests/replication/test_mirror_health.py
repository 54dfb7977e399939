"""Which mirrors are asked: whatever happens to one, a rule of a few lines holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import (
    CrowdgradError,
    DataAltered,
    DataMalformed,
    DataMissing,
    MissingExtra,
    NotAgreed,
    NotDialled,
    Unreachable,
)
from crowdgrad.replication.mirrors import NEW, MirrorHealth, after_failure, after_success, may_ask
from crowdgrad.replication.mirrors.health import (
    FINAL,
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    MOST_WRONG,
    wait_s,
)

PASSING = (DataMissing, DataMalformed, Unreachable)
Event = tuple[float, type[CrowdgradError] | None]
"""Seconds since the one before, and what went wrong; None: nothing did."""
EVENTS = st.lists(
    st.tuples(
        st.floats(0.0, 2 * LONGEST_WAIT_S), st.sampled_from([None, *PASSING, DataAltered, *FINAL])
    ),
    max_size=60,
)


def lived(events: list[Event]) -> tuple[MirrorHealth, float]:
    health, now = NEW, 1000.0
    for since, error in events:
        now += since
        if error is None:
            health = after_success(health)
        else:
            health = after_failure(health, error("It did not work."), now)
    return health, now


def test_a_new_one_is_asked() -> None:
    assert may_ask(NEW, 0.0) == (True, "nothing speaks against it")


def test_after_each_failure_it_is_left_alone_twice_as_long() -> None:
    health, now, waits = NEW, 0.0, []
    for _ in range(10):
        health = after_failure(health, Unreachable("Nobody answers."), now)
        waits.append(health.not_before - now)
        asked, why = may_ask(health, now)
        assert not asked
        assert why.endswith("Nobody answers.")
        now = health.not_before
        assert may_ask(health, now)[0]
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert may_ask(after_success(health), now) == (True, "nothing speaks against it")


def test_the_reason_says_how_often_and_how_long() -> None:
    once = after_failure(NEW, DataMissing("It is not there."), 10.0)
    assert may_ask(once, 11.0) == (
        False,
        "it failed once, so it has 1 s more: It is not there.",
    )
    twice = after_failure(once, DataMissing("It is not there."), 12.0)
    assert may_ask(twice, 12.0)[1].startswith("it failed 2 times in a row, so it has 4 s more")


def test_what_was_asked_at_once_fails_as_one() -> None:
    health = NEW
    for moment in (5.0, 5.1, 5.2, 6.9):
        health = after_failure(health, Unreachable("Nobody answers."), moment)
    assert (health.failures, health.not_before) == (1, 7.0)


def test_three_times_wrong_is_for_good_whatever_comes_between() -> None:
    health = NEW
    for number in range(MOST_WRONG):
        assert may_ask(health, 1e6 * number)[0]
        health = after_success(after_failure(health, DataAltered("Other bytes."), 1e6 * number))
    asked, why = may_ask(after_success(health), 1e9)
    assert not asked
    assert why == "it sent wrong bytes 3 times: it is not asked again"


@pytest.mark.parametrize("error", FINAL)
def test_what_cannot_change_is_for_good(error: type[CrowdgradError]) -> None:
    health = after_success(after_failure(NEW, error("It cannot be."), 0.0))
    assert not may_ask(health, 1e9)[0]


def test_that_is_all_that_is_for_good() -> None:
    assert set(FINAL) == {MissingExtra, NotAgreed, NotDialled}


@given(events=EVENTS, later=st.floats(0.0, 1e6))
def test_whatever_happens_it_is_asked_again_unless_it_is_for_good(
    events: list[Event], later: float
) -> None:
    health, now = lived(events)
    kinds = [error for _, error in events]
    for_good = kinds.count(DataAltered) >= MOST_WRONG or any(kind in FINAL for kind in kinds)
    asked, why = may_ask(health, now + later)
    assert why
    assert not (for_good and asked)
    if not for_good:
        assert may_ask(health, now + LONGEST_WAIT_S)[0], "never longer than that"
        assert asked or may_ask(health, now)[0] is False, "once it may be asked, it stays so"
    if kinds[-1:] == [None]:
        assert asked != for_good, "what works is not left alone"


@given(events=EVENTS, error=st.sampled_from([*PASSING, DataAltered]))
def test_a_failure_is_never_followed_by_the_next_question_at_once(
    events: list[Event], error: type[CrowdgradError]
) -> None:
    health, now = lived(events)
    health = after_failure(health, error("It did not work."), max(now, health.not_before))
    assert not may_ask(health, max(now, health.not_before - FIRST_WAIT_S))[0]


@given(failures=st.integers(1, 10**6))
def test_waits_double_up_to_the_longest(failures: int) -> None:
    assert FIRST_WAIT_S <= wait_s(failures) <= LONGEST_WAIT_S
    assert wait_s(failures + 1) == min(2 * wait_s(failures), LONGEST_WAIT_S)
