"""Every unit is leased, finished exactly once, and never lost, whatever volunteers do."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from crowdgrad.domain.work import Unit, UnitId, Version, VolunteerId
from crowdgrad.planner.batches import BatchPlan, cut
from crowdgrad.planner.leases import LeaseBook

LEASE_S = 10.0
BASE = Version(incarnation=0, count=0)
ADA, BEN, CY, DEE = (VolunteerId(name) for name in ("ada", "ben", "cy", "dee"))


def batch_plan() -> BatchPlan:
    return cut((3, 7), (25, 10), 10)


def lease_book(*, epochs: int = 2, batches_per_unit: int = 1) -> LeaseBook:
    return LeaseBook(
        batch_plan(),
        kind="train",
        batches_per_unit=batches_per_unit,
        epochs=epochs,
        shard_order=lambda epoch: (3, 7) if epoch % 2 == 0 else (7, 3),
        lease_s=LEASE_S,
    )


def take(book: LeaseBook, who: VolunteerId, now: float = 0.0) -> Unit:
    unit, reason = book.lease(now, who, BASE)
    assert unit is not None, reason
    return unit


def test_units_stay_within_a_shard_and_cover_the_epoch() -> None:
    book = lease_book(epochs=1, batches_per_unit=2)
    units = [take(book, ADA) for _ in range(3)]
    covered = sorted(b for u in units for b in range(u.first_batch, u.first_batch + u.batches))
    assert covered == [0, 1, 2, 3]
    assert all(batch_plan().shard_of(u.first_batch + u.batches - 1) == u.shard for u in units)
    assert book.lease(0.0, ADA, BASE) == (None, "the last 3 units are with others")


def test_a_volunteer_gets_units_of_the_shard_it_holds() -> None:
    book = lease_book(epochs=1)
    unit, reason = book.lease(0.0, ADA, BASE, holds=(7,))
    assert unit is not None
    assert (unit.shard, reason) == (7, "of a shard you hold")


def test_newcomers_are_spread_over_the_shards() -> None:
    book = lease_book(epochs=1)
    assert {take(book, ADA).shard, take(book, BEN).shard} == {3, 7}


def test_the_end_of_an_epoch_is_no_barrier() -> None:
    book = lease_book(epochs=2)
    assert [take(book, ADA).epoch for _ in range(8)] == [0] * 4 + [1] * 4


def test_the_first_valid_update_wins_and_a_late_lease_is_honoured() -> None:
    book = lease_book()
    unit = take(book, ADA)
    assert book.lapse(LEASE_S) == [(unit.id, ADA)]
    assert take(book, BEN, LEASE_S) == unit
    assert book.finish(unit.id, ADA, BASE, 0) == (unit, None)
    assert book.finish(unit.id, BEN, BASE, 0) == (None, "already_done")
    assert book.done_units == 1


@pytest.mark.parametrize(
    ("unit", "who", "base", "incarnation", "refusal"),
    [
        (UnitId(99), ADA, BASE, 0, "unknown_unit"),
        (UnitId(0), BEN, BASE, 0, "not_yours"),
        (UnitId(0), ADA, Version(incarnation=0, count=5), 0, "wrong_base"),
        (UnitId(0), ADA, BASE, 1, "other_incarnation"),
    ],
)
def test_refusals(
    unit: UnitId, who: VolunteerId, base: Version, incarnation: int, refusal: str
) -> None:
    book = lease_book()
    take(book, ADA)
    assert book.finish(unit, who, base, incarnation) == (None, refusal)
    assert book.done_units == 0


def test_a_unit_that_fails_on_three_volunteers_is_set_aside_with_its_story() -> None:
    book = lease_book(epochs=1)
    unit = take(book, ADA)
    for who, following in ((ADA, BEN), (BEN, CY)):
        book.give_back(unit.id, who, "not_finite", failed=True)
        assert take(book, following) == unit
    book.give_back(unit.id, CY, "not_finite", failed=True)
    assert [entry.unit for entry in book.set_aside] == [unit]
    assert "failed on 3 volunteers" in book.set_aside[0].story
    assert take(book, DEE) != unit


def test_who_failed_a_unit_gets_it_again_only_when_nobody_else_is_left() -> None:
    book = lease_book(epochs=1)
    unit = take(book, ADA)
    book.give_back(unit.id, ADA, "trainer died", failed=True)
    others = [take(book, ADA) for _ in range(3)]
    assert unit not in others
    again, reason = book.lease(0.0, ADA, BASE)
    assert (again, "nobody else" in reason) == (unit, True)


def test_who_is_merely_slow_is_not_given_the_same_unit_again() -> None:
    book = lease_book(epochs=1)
    unit = take(book, ADA)
    book.lapse(LEASE_S)
    assert unit not in [take(book, ADA, LEASE_S) for _ in range(3)]
    assert book.lease(LEASE_S, ADA, BASE)[0] is None
    assert book.finish(unit.id, ADA, BASE, 0) == (unit, None)


def test_who_comes_back_may_have_it_again() -> None:
    book = lease_book(epochs=1)
    unit = take(book, ADA)
    book.lapse(LEASE_S)
    book.leave(ADA, "laptop closed")
    assert take(book, ADA, LEASE_S) == unit


def test_holding_counts_what_is_under_way() -> None:
    book = lease_book(epochs=1)
    units = [take(book, ADA) for _ in range(3)]
    assert book.holding(ADA) == 3
    book.finish(units[0].id, ADA, BASE, 0)
    book.give_back(units[1].id, ADA, "because", failed=False)
    assert book.holding(ADA) == 1
    book.lapse(LEASE_S)
    assert book.holding(ADA) == 0


def test_whoever_leaves_gives_everything_back() -> None:
    book = lease_book(epochs=1)
    units = {take(book, ADA).id for _ in range(4)}
    assert set(book.leave(ADA, "laptop closed")) == units
    assert {take(book, BEN).id for _ in range(4)} == units


def test_an_illegal_transition_tells_the_story() -> None:
    book = lease_book()
    unit = take(book, ADA)
    entry, _ = book.judge(unit.id, ADA, BASE, 0)
    assert entry is not None
    with pytest.raises(AssertionError, match=r"leased → leased.*after leased to ada"):
        entry.become("leased", "twice")


class Crowd(RuleBasedStateMachine):
    """Any order of leasing, finishing, doubling, giving back, leaving and waiting."""

    leased = Bundle("leased")
    people = st.sampled_from([ADA, BEN, CY, DEE])

    def __init__(self) -> None:
        super().__init__()
        self.book = lease_book(epochs=3)
        self.now = 0.0
        self.finished: list[UnitId] = []
        self.promised: dict[tuple[UnitId, VolunteerId], Unit] = {}

    @rule(target=leased, who=people, holds=st.sets(st.sampled_from([3, 7])))
    def lease(self, who: VolunteerId, holds: set[int]) -> tuple[UnitId, VolunteerId]:
        unit, reason = self.book.lease(self.now, who, BASE, holds)
        assert reason
        if unit is None:
            return UnitId(10**6), who
        self.promised[unit.id, who] = unit
        return unit.id, who

    @rule(pair=leased)
    def finish(self, pair: tuple[UnitId, VolunteerId]) -> None:
        unit, refusal = self.book.finish(*pair, BASE, 0)
        assert (unit is None) != (refusal is None)
        if unit is not None:
            assert unit == self.promised[pair]
            self.finished.append(unit.id)
        elif pair in self.promised:
            gone = {entry.unit.id for entry in self.book.set_aside} | set(self.finished)
            assert pair[0] in gone, f"a valid update was refused: {refusal}"

    @rule(pair=consumes(leased), failed=st.booleans())
    def give_back(self, pair: tuple[UnitId, VolunteerId], failed: bool) -> None:
        self.book.give_back(*pair, "because", failed=failed)

    @rule(who=people)
    def leave(self, who: VolunteerId) -> None:
        self.book.leave(who, "gone")
        assert self.book.held_by(who) == []

    @rule(seconds=st.sampled_from([0.5, LEASE_S, 3 * LEASE_S]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.book.lapse(self.now)

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        assert len(set(self.finished)) == len(self.finished) == self.book.done_units
        for who in (ADA, BEN, CY, DEE):
            assert self.book.holding(who) == len(self.book.held_by(who))

    def teardown(self) -> None:
        """However it went, whoever is left can finish the job, and every lease has ended."""
        finisher = VolunteerId("finisher")
        self.book.lapse(self.now + 10 * LEASE_S)
        while (unit := self.book.lease(self.now, finisher, BASE)[0]) is not None:
            assert self.book.finish(unit.id, finisher, BASE, 0) == (unit, None)
            self.finished.append(unit.id)
        assert self.book.finished
        assert self.book.leased == 0
        everything = set(self.finished) | {entry.unit.id for entry in self.book.set_aside}
        assert everything == set(range(3 * batch_plan().total))
        assert len(self.finished) == len(set(self.finished))


TestCrowd = Crowd.TestCase
TestCrowd.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
