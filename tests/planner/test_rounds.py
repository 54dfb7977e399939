"""A round closes with all, or a moment after there are enough, and never before anybody."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.work import VolunteerId
from crowdgrad.planner.rounds import Barrier, Round

ADA, BEN, CY, DEE = PEOPLE = tuple(map(VolunteerId, ("ada", "ben", "cy", "dee")))
NOBODY: frozenset[VolunteerId] = frozenset()
some_people = st.sets(st.sampled_from(PEOPLE))
barriers = st.builds(
    Barrier,
    quorum=st.floats(0.01, 1.0),
    backup=st.integers(0, 5),
    grace_s=st.sampled_from([0.0, 1.0, 5.0]),
)


def four(delivered: int) -> Round:
    """Four take part; so many of them have delivered."""
    return Round(working=set(PEOPLE[delivered:]), delivered=set(PEOPLE[:delivered]))


# -- by hand ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("barrier", "delivered", "closes", "reason"),
    [
        (Barrier(), 0, False, "nobody has delivered yet"),
        (Barrier(), 3, False, "3 of the 4 needed have delivered"),
        (Barrier(), 4, True, "all 4 have delivered"),
        (Barrier(quorum=0.5), 1, False, "1 of the 2 needed have delivered"),
        (Barrier(quorum=0.5), 2, True, "2 of 4 have delivered, enough"),
        (Barrier(quorum=0.5), 3, True, "3 of 4 have delivered, enough"),
        (Barrier(quorum=0.51), 2, False, "2 of the 3 needed have delivered"),
        (Barrier(quorum=0.01), 0, False, "nobody has delivered yet"),
        (Barrier(quorum=0.01), 1, True, "1 of 4 have delivered, enough"),
        (Barrier(backup=1), 2, False, "2 of the 3 needed have delivered"),
        (Barrier(backup=1), 3, True, "3 of 4 have delivered, enough"),
        (Barrier(backup=9), 0, False, "nobody has delivered yet"),
        (Barrier(backup=9), 1, True, "1 of 4 have delivered, enough"),
        (Barrier(quorum=0.5, backup=1), 2, True, "2 of 4 have delivered, enough"),
        (Barrier(quorum=0.5, backup=3), 1, True, "1 of 4 have delivered, enough"),
    ],
)
def test_a_round_of_four(barrier: Barrier, delivered: int, closes: bool, reason: str) -> None:
    assert four(delivered).should_close(0.0, barrier, NOBODY) == (closes, reason)


@pytest.mark.parametrize(
    ("quorum", "at_work", "needed"),
    [(0.07, 100, 7), (0.14, 100, 14), (0.55, 100, 55), (2 / 3, 3, 2)],
)
def test_a_quorum_is_not_spoiled_by_rounding(quorum: float, at_work: int, needed: int) -> None:
    assert Barrier(quorum=quorum).needed(at_work) == needed


def test_the_others_have_a_moment_once_there_are_enough() -> None:
    barrier = Barrier(quorum=0.5, grace_s=2.0)
    now = four(2)
    assert now.should_close(10.0, barrier, NOBODY) == (
        False,
        "enough have delivered; 2 more have a moment left",
    )
    assert not now.should_close(11.9, barrier, NOBODY)[0]
    assert now.should_close(12.0, barrier, NOBODY) == (True, "2 of 4 have delivered, enough")


def test_when_all_have_delivered_nobody_needs_the_moment() -> None:
    barrier = Barrier(quorum=0.5, grace_s=2.0)
    now = four(3)
    assert not now.should_close(10.0, barrier, NOBODY)[0]
    now.working.remove(DEE)
    now.delivered.add(DEE)
    assert now.should_close(10.1, barrier, NOBODY) == (True, "all 4 have delivered")


def test_the_moment_begins_anew_when_newcomers_make_it_too_few() -> None:
    barrier = Barrier(quorum=0.5, grace_s=2.0)
    now = Round(working={CY}, delivered={ADA})
    assert not now.should_close(10.0, barrier, NOBODY)[0]
    assert now.should_close(11.0, barrier, {DEE, BEN}) == (
        False,
        "1 of the 2 needed have delivered",
    )
    assert not now.should_close(12.0, barrier, NOBODY)[0]
    assert not now.should_close(13.9, barrier, NOBODY)[0]
    assert now.should_close(14.0, barrier, NOBODY)[0]


def test_nobody_waits_for_those_who_left() -> None:
    now = four(2)
    assert not now.should_close(0.0, Barrier(), NOBODY)[0]
    now.working -= {CY, DEE}
    assert now.should_close(0.0, Barrier(), NOBODY) == (True, "all 2 have delivered")


def test_those_who_left_make_fewer_enough() -> None:
    barrier = Barrier(quorum=0.5)
    now = four(1)
    assert not now.should_close(0.0, barrier, NOBODY)[0]
    now.working -= {CY, DEE}
    assert now.should_close(0.0, barrier, NOBODY) == (True, "1 of 2 have delivered, enough")


def test_when_all_at_work_left_a_round_without_updates_stays_open() -> None:
    assert Round().should_close(0.0, Barrier(), NOBODY) == (False, "nobody has delivered yet")
    assert not Round().should_close(0.0, Barrier(backup=2), {ADA})[0]


def test_who_will_ask_for_a_unit_is_waited_for() -> None:
    now = Round(delivered={ADA})
    assert not now.should_close(0.0, Barrier(), {ADA, BEN})[0]
    assert now.should_close(0.0, Barrier(), {ADA}) == (True, "all 1 have delivered")


def test_one_unit_each_in_a_round() -> None:
    now = Round(working={ADA}, delivered={BEN})
    assert now.may_begin(ADA) == (False, "waiting for the others of this round")
    assert now.may_begin(BEN) == (False, "waiting for the others of this round")
    assert now.may_begin(CY) == (True, "a unit of this round")


@pytest.mark.parametrize(
    ("quorum", "backup", "grace_s"),
    [
        (0.0, 0, 0.0),
        (1.1, 0, 0.0),
        (math.nan, 0, 0.0),
        (1.0, -1, 0.0),
        (1.0, 0, -1.0),
        (1.0, 0, math.inf),
        (1.0, 0, math.nan),
    ],
)
def test_a_barrier_that_makes_no_sense(quorum: float, backup: int, grace_s: float) -> None:
    with pytest.raises(ValueError, match=r"quorum|backup"):
        Barrier(quorum=quorum, backup=backup, grace_s=grace_s)


# -- always -----------------------------------------------------------------------------------


@given(barriers, st.integers(1, 200))
def test_what_suffices(barrier: Barrier, at_work: int) -> None:
    needed = barrier.needed(at_work)
    assert 1 <= needed <= at_work
    assert needed <= barrier.needed(at_work + 1)
    assert needed <= max(1, at_work - barrier.backup)
    share = Fraction(needed, at_work)
    if needed < at_work - barrier.backup:
        assert share >= Fraction(barrier.quorum) - Fraction(1, 10**6), "a quorum"
    if needed > 1:
        assert Fraction(needed - 1, at_work) < Fraction(barrier.quorum), "and no more than that"


@given(barriers, some_people, some_people, some_people, st.lists(st.floats(0.0, 20.0), min_size=1))
def test_when_a_round_closes(
    barrier: Barrier,
    working: set[VolunteerId],
    delivered: set[VolunteerId],
    expected: set[VolunteerId],
    times: list[float],
) -> None:
    now = Round(working=working - delivered, delivered=set(delivered))
    missing = (working | expected) - delivered
    at_work = len(missing | delivered)
    enough = len(delivered) >= barrier.needed(at_work) if at_work else False
    first = min(times)
    for time in sorted(times):
        closes, reason = now.should_close(time, barrier, expected)
        assert reason
        due = bool(delivered) and enough and time - first >= barrier.grace_s
        assert closes == (due or (bool(delivered) and not missing))
    assert now.delivered == delivered, "a question changes nobody's place"
    assert now.working == working - delivered


@given(some_people, some_people, barriers, st.sampled_from(PEOPLE))
def test_an_update_more_never_keeps_a_round_open(
    working: set[VolunteerId], delivered: set[VolunteerId], barrier: Barrier, who: VolunteerId
) -> None:
    before = Round(working=working - delivered, delivered=set(delivered))
    after = Round(working=working - delivered - {who}, delivered=delivered | {who})
    if before.should_close(0.0, barrier, {who})[0]:
        assert after.should_close(0.0, barrier, NOBODY)[0]
