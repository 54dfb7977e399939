"""Every unit is leased, finished exactly once, and never lost, whatever volunteers do."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from crowdgrad.domain.work import MAX_BATCHES, Unit, UnitId, Version, VolunteerId
from crowdgrad.planner.batches import EpochPlans
from crowdgrad.planner.leases import BookState, LeaseBook
from crowdgrad.planner.ranges import Ranges
from crowdgrad.planner.segments import Segments

LEASE_S = 10.0
BASE = Version(incarnation=0, count=0)
LATER = Version(incarnation=0, count=5)
ADA, BEN, CY, DEE = PEOPLE = tuple(VolunteerId(name) for name in ("ada", "ben", "cy", "dee"))


def plans(*batch_sizes: int) -> EpochPlans:
    """25 + 10 records; the last size holds for all later epochs."""
    return EpochPlans((3, 7), (25, 10), lambda epoch: batch_sizes[: epoch + 1][-1])


def ranges(*, epochs: int = 2, batch_sizes: tuple[int, ...] = (10,)) -> LeaseBook:
    assignment = Ranges(
        plans(*batch_sizes),
        epochs=epochs,
        shard_order=lambda epoch: (3, 7) if epoch % 2 == 0 else (7, 3),
    )
    return LeaseBook(assignment, kind="train", lease_s=LEASE_S)


def segments(
    *here: VolunteerId, epochs: int = 1, batch_sizes: tuple[int, ...] = (10,)
) -> LeaseBook:
    book = LeaseBook(Segments(plans(*batch_sizes), epochs=epochs), kind="train", lease_s=LEASE_S)
    book.members(here)
    return book


def take(
    book: LeaseBook, who: VolunteerId, now: float = 0.0, *, base: Version = BASE, batches: int = 1
) -> Unit:
    unit, reason = book.lease(now, who, base, batches=batches)
    assert unit is not None, reason
    return unit


def numbers(unit: Unit) -> range:
    return range(unit.first_batch, unit.first_batch + unit.batches)


# -- leases -----------------------------------------------------------------------------------


def test_the_first_valid_update_wins_and_a_late_lease_is_honoured() -> None:
    book = ranges()
    unit = take(book, ADA)
    assert book.lapse(LEASE_S) == [(unit.id, ADA)]
    assert take(book, BEN, LEASE_S) == unit
    assert book.finish(unit.id, ADA, BASE, 0) == (unit, None)
    assert book.finish(unit.id, BEN, BASE, 0) == (None, "already_done")
    assert book.done_units == 1


def test_what_somebody_in_doubt_is_at_is_offered_at_once_and_honoured_all_the_same() -> None:
    book = ranges()
    first, second = take(book, ADA), take(book, ADA)
    kept = take(book, BEN)
    assert book.offer_again(1.0, ADA, "nothing heard for 5 s") == [first.id, second.id]
    assert book.offer_again(1.0, ADA, "nothing heard for 5 s") == []
    assert (book.holding(ADA), book.holding(BEN)) == (0, 1)
    assert [take(book, CY, 1.0), take(book, CY, 1.0)] == [first, second]
    assert book.finish(first.id, ADA, BASE, 0) == (first, None)
    assert book.finish(first.id, CY, BASE, 0) == (None, "already_done")
    assert book.finish(second.id, CY, BASE, 0) == (second, None)
    assert book.finish(kept.id, BEN, BASE, 0) == (kept, None)


@pytest.mark.parametrize(
    ("unit", "who", "base", "incarnation", "refusal"),
    [
        (UnitId(99), ADA, BASE, 0, "unknown_unit"),
        (UnitId(0), BEN, BASE, 0, "not_yours"),
        (UnitId(0), ADA, LATER, 0, "wrong_base"),
        (UnitId(0), ADA, BASE, 1, "other_incarnation"),
        (UnitId(99), ADA, BASE, 1, "other_incarnation"),
    ],
)
def test_refusals(
    unit: UnitId, who: VolunteerId, base: Version, incarnation: int, refusal: str
) -> None:
    book = ranges()
    take(book, ADA)
    assert book.finish(unit, who, base, incarnation) == (None, refusal)
    assert book.done_units == 0


def test_a_unit_that_fails_on_three_volunteers_is_set_aside_with_its_story() -> None:
    book = ranges(epochs=1)
    unit = take(book, ADA)
    for who, following in ((ADA, BEN), (BEN, CY)):
        book.give_back(unit.id, who, "not_finite", failed=True)
        assert take(book, following) == unit
    book.give_back(unit.id, CY, "not_finite", failed=True)
    assert [entry.unit for entry in book.set_aside] == [unit]
    assert book.set_aside[0].story[-2:] == ["not_finite", "failed on 3 volunteers"]
    assert take(book, DEE) != unit


def test_one_failure_may_be_decisive() -> None:
    book = ranges(epochs=1)
    unit = take(book, ADA)
    book.lapse(LEASE_S)
    book.give_back(unit.id, ADA, "not_finite", failed=True, decisive=True)
    assert [entry.unit for entry in book.set_aside] == [unit]
    assert book.set_aside[0].story[-2:] == ["not_finite", "failed on 1 volunteers"]


def test_what_is_set_aside_is_not_done_but_does_not_keep_it_from_the_end() -> None:
    book = ranges(epochs=1)
    units = [take(book, ADA) for _ in range(4)]
    book.give_back(units[0].id, ADA, "not_finite", failed=True, decisive=True)
    assert not book.finished
    for unit in units[1:]:
        book.finish(unit.id, ADA, BASE, 0)
    assert book.finished
    assert book.done_samples == 35 - book.samples(units[0])
    assert book.epochs_done == book.done_samples / 35


def test_who_failed_a_unit_gets_it_again_only_when_nobody_else_is_left() -> None:
    book = ranges(epochs=1)
    unit = take(book, ADA)
    book.give_back(unit.id, ADA, "trainer died", failed=True)
    others = [take(book, ADA) for _ in range(3)]
    assert unit not in others
    again, reason = book.lease(0.0, ADA, BASE)
    assert (again, "nobody else" in reason) == (unit, True)


def test_who_is_merely_slow_is_not_given_the_same_unit_again() -> None:
    book = ranges(epochs=1)
    unit = take(book, ADA)
    book.lapse(LEASE_S)
    others = [take(book, ADA, LEASE_S) for _ in range(3)]
    assert unit not in others
    for other in others:
        book.finish(other.id, ADA, BASE, 0)
    assert book.lease(LEASE_S, ADA, BASE) == (None, "the last unit is with others")
    assert book.finish(unit.id, ADA, BASE, 0) == (unit, None)


def test_a_unit_lost_on_its_way_to_the_only_volunteer_is_given_again_in_the_end() -> None:
    book = ranges(epochs=1)
    unit = take(book, ADA)
    for other in [take(book, ADA) for _ in range(3)]:
        book.finish(other.id, ADA, BASE, 0)
    book.lapse(LEASE_S)
    assert book.lease(1.9 * LEASE_S, ADA, BASE)[0] is None
    again, reason = book.lease(2.0 * LEASE_S, ADA, BASE)
    assert (again, "nobody else has taken it" in reason) == (unit, True)
    assert book.lapse(3.9 * LEASE_S) == []
    assert book.lapse(4.0 * LEASE_S) == [(unit.id, ADA)], "the slow get more time"


def test_who_comes_back_may_have_it_again() -> None:
    book = ranges(epochs=1)
    unit = take(book, ADA)
    book.lapse(LEASE_S)
    book.leave(ADA, "laptop closed")
    assert take(book, ADA, LEASE_S) == unit


def test_holding_counts_what_is_under_way() -> None:
    book = ranges(epochs=1)
    units = [take(book, ADA) for _ in range(3)]
    assert book.holding(ADA) == 3
    book.finish(units[0].id, ADA, BASE, 0)
    book.give_back(units[1].id, ADA, "because", failed=False)
    assert book.holding(ADA) == 1
    book.lapse(LEASE_S)
    assert book.holding(ADA) == 0


def test_whoever_leaves_gives_everything_back() -> None:
    book = ranges(epochs=1)
    units = {take(book, ADA).id for _ in range(4)}
    assert set(book.leave(ADA, "laptop closed")) == units
    assert {take(book, BEN).id for _ in range(4)} == units


def test_a_lease_lasts_as_long_as_asked_and_remembers_its_link() -> None:
    book = ranges()
    unit, _ = book.lease(100.0, ADA, LATER, lease_s=7.0, link=3)
    assert unit is not None
    lease = book.lease_of(unit.id, ADA)
    assert lease is not None
    assert (lease.base, lease.ends_at, lease.link) == (LATER, 107.0, 3)
    assert book.lease_of(unit.id, BEN) is None
    assert book.lapse(106.9) == []
    assert book.lapse(107.0) == [(unit.id, ADA)]
    assert book.lease_of(unit.id, ADA) is lease, "it is honoured"
    book.finish(unit.id, ADA, LATER, 0)
    assert book.lease_of(unit.id, ADA) is None


def test_a_unit_that_comes_back_keeps_its_size() -> None:
    book = ranges()
    unit = take(book, ADA, batches=3)
    book.give_back(unit.id, ADA, "because", failed=False)
    assert take(book, BEN, batches=1) == unit


def test_a_unit_is_never_larger_than_units_may_be() -> None:
    assignment = Ranges(
        EpochPlans((0,), (MAX_BATCHES + 1,), lambda _: 1), epochs=1, shard_order=lambda _: (0,)
    )
    book = LeaseBook(assignment, kind="test", lease_s=LEASE_S, first_id=1 << 40)
    unit = take(book, ADA, batches=10 * MAX_BATCHES)
    assert (unit.id, unit.kind, unit.batches) == (1 << 40, "test", MAX_BATCHES)
    assert book.finish(UnitId(0), ADA, BASE, 0) == (None, "unknown_unit")


def test_an_illegal_transition_tells_the_story() -> None:
    book = ranges()
    unit = take(book, ADA)
    entry, _ = book.judge(unit.id, ADA, BASE, 0)
    assert entry is not None
    with pytest.raises(AssertionError, match=r"leased → leased.*after leased to ada"):
        entry.become("leased", "twice")


# -- units with an owner ----------------------------------------------------------------------


def test_a_returned_unit_goes_only_to_its_owner() -> None:
    book = segments(ADA, BEN)
    unit = take(book, ADA)
    book.give_back(unit.id, ADA, "trainer died", failed=False)
    units = []
    while (other := book.lease(0.0, BEN, BASE)[0]) is not None:
        units.append(other)
    assert len(units) == 3
    assert unit not in units
    assert take(book, ADA) == unit


def test_three_failures_on_the_owner_alone_set_its_unit_aside() -> None:
    book = segments(ADA)
    for unit in [take(book, ADA) for _ in range(4)][1:]:
        book.finish(unit.id, ADA, BASE, 0)
    for _ in range(3):
        assert not book.set_aside
        assert take_last(book) == UnitId(0)
        for _ in range(2):  # said twice, it counts once
            book.give_back(UnitId(0), ADA, "not_finite", failed=True)
    assert book.set_aside[0].story[-2:] == ["not_finite", "failed 3 times on its owner"]
    assert book.finished


def take_last(book: LeaseBook) -> UnitId:
    """The only unit left, which Ada may hold already."""
    held = book.held_by(ADA)
    return held[0] if held else take(book, ADA).id


def test_when_the_owner_leaves_its_units_are_void() -> None:
    book = segments(ADA, BEN)
    unit = take(book, ADA)
    entry, _ = book.judge(unit.id, ADA, BASE, 0)
    assert book.leave(ADA, "laptop closed") == [unit.id]
    assert entry is not None
    assert entry.state == "void"
    assert book.finish(unit.id, ADA, BASE, 0) == (None, "already_done")
    assert not book.set_aside
    assert book.freed() == [BASE]


def test_an_owner_gets_a_lost_unit_again_when_nothing_else_is_left_with_more_time() -> None:
    book = segments(ADA)
    lost = take(book, ADA)
    book.lapse(LEASE_S)
    others = [take(book, ADA, LEASE_S) for _ in range(3)]
    assert lost not in others
    assert book.lease(LEASE_S, ADA, BASE)[0] is None, "it has enough to do"
    for unit in others:
        book.finish(unit.id, ADA, BASE, 0)
    assert take(book, ADA, 20.0) == lost
    assert book.lapse(20.0 + 2 * LEASE_S - 0.1) == []
    assert book.lapse(20.0 + 2 * LEASE_S) == [(lost.id, ADA)]


# -- versions that are still needed -----------------------------------------------------------


def test_a_version_is_freed_when_the_last_lease_of_an_open_unit_goes() -> None:
    book = ranges()
    first, second = take(book, ADA), take(book, BEN)
    book.finish(first.id, ADA, BASE, 0)
    assert book.freed() == []
    book.lapse(LEASE_S)
    book.leave(BEN, "laptop closed")
    assert book.freed() == [], "its update may still come and be accepted"
    assert take(book, CY, base=LATER) == second
    assert book.finish(second.id, BEN, BASE, 0) == (second, None)
    assert set(book.freed()) == {BASE, LATER}
    assert book.freed() == []


def test_a_lease_that_replaces_another_frees_its_base() -> None:
    book = ranges()
    unit = take(book, ADA)
    book.give_back(unit.id, ADA, "because", failed=False)
    assert take(book, ADA, base=LATER) == unit
    assert book.freed() == [BASE]


def test_a_version_that_is_leased_again_counts_anew() -> None:
    book = ranges()
    for _ in range(2):
        book.finish(take(book, ADA).id, ADA, BASE, 0)
    unit = take(book, ADA)
    assert book.freed() == []
    book.finish(unit.id, ADA, BASE, 0)
    assert book.freed() == [BASE]
    book.finish(take(book, ADA).id, ADA, BASE, 0)
    assert book.freed() == [BASE]


# -- checkpoints ------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("assignment", ["ranges", "segments"])
def test_after_a_checkpoint_what_was_open_or_not_applied_waits_again(
    assignment: str, fresh: bool
) -> None:
    def make() -> LeaseBook:
        return ranges(epochs=2) if assignment == "ranges" else segments(ADA, epochs=2)

    book = make()
    applied, unapplied, leased, returned = (take(book, ADA) for _ in range(4))
    book.finish(applied.id, ADA, BASE, 0)
    book.finish(unapplied.id, ADA, BASE, 0)
    book.give_back(returned.id, ADA, "because", failed=False)
    state = book.snapshot([unapplied])
    before = copy.deepcopy(state)
    book.finish(leased.id, ADA, BASE, 0)
    assert take(book, ADA, base=LATER) == returned
    assert state == before, "what happens later does not change it"
    assert book.freed() == [BASE]

    book = make() if fresh else book
    book.restore(state)
    assert (book.leased, book.holding(ADA), book.held_by(ADA)) == (0, 0, [])
    assert book.freed() == ([] if fresh else [LATER])
    assert (book.done_units, book.done_batches) == (1, 1)
    assert book.done_samples == book.samples(applied)
    assert book.epochs_done == (book.samples(applied) / 35 if assignment == "ranges" else 1 / 4)
    assert book.finish(leased.id, ADA, BASE, 1) == (None, "other_incarnation")
    base = Version(incarnation=1, count=0)
    assert {take(book, ADA, base=base) for _ in range(3)} == {unapplied, leased, returned}
    finish_all(book, base)
    assert book.finished
    assert (book.done_units, book.done_samples, book.epochs_done) == (8, 70, 2.0)


def finish_all(book: LeaseBook, base: Version) -> list[Unit]:
    """What Ada holds and whatever else she gets."""
    finished = []
    while (held := book.held_by(ADA)) or book.lease(0.0, ADA, base)[0] is not None:
        for number in held:
            unit, refusal = book.finish(number, ADA, base, base.incarnation)
            assert unit is not None, refusal
            finished.append(unit)
    return finished


def test_failures_and_what_was_set_aside_are_kept() -> None:
    book = ranges()
    bad, aside = take(book, ADA), take(book, ADA)
    book.give_back(bad.id, ADA, "not_finite", failed=True)
    book.give_back(aside.id, ADA, "not_finite", failed=True, decisive=True)
    state, book = book.snapshot(), ranges()
    book.restore(state)
    assert [(e.unit, e.state, e.story[-2]) for e in book.set_aside] == [
        (aside, "set_aside", "not_finite")
    ]
    for who in (BEN, CY):
        assert take(book, who) == bad
        book.give_back(bad.id, who, "not_finite", failed=True)
    assert [entry.unit for entry in book.set_aside] == [aside, bad]


def test_ids_after_a_checkpoint_are_unique() -> None:
    book = ranges()
    first = take(book, ADA)
    state = book.snapshot()
    later = take(book, ADA)
    fresh = ranges()
    fresh.restore(state)
    assert [take(fresh, ADA).id for _ in range(2)] == [first.id, later.id]
    book.restore(state)
    assert [take(book, ADA).id for _ in range(2)] == [first.id, later.id + 1]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_unit_of_an_epoch_that_its_owner_has_left_behind(leaves: bool) -> None:
    book = segments(ADA, epochs=2)
    units = [take(book, ADA) for _ in range(4)]
    for unit in units:
        book.finish(unit.id, ADA, BASE, 0)
    ahead = [take(book, ADA) for _ in range(4)]
    book.finish(ahead[2].id, ADA, BASE, 0)
    book.finish(ahead[3].id, ADA, BASE, 0)
    book.restore(book.snapshot([units[3]]))
    base = Version(incarnation=1, count=0)
    assert take(book, ADA, base=base) == units[3]
    if leaves:
        book.leave(ADA, "laptop closed")
    else:
        book.finish(units[3].id, ADA, base, 1)
    assert book.epochs_done == 1.5, "it counts for its own epoch only"
    rest = finish_all(book, base)
    assert {(unit.epoch, unit.first_batch) for unit in rest} == {(1, 0), (1, 1)}
    assert book.finished
    assert (book.done_units, book.epochs_done) == (7 if leaves else 8, 2.0)


# -- anything in any order --------------------------------------------------------------------


@dataclass(frozen=True)
class Grant:
    unit: Unit
    who: VolunteerId
    base: Version


@dataclass
class Lineage:
    """What counts: everything since the start, without what was undone by going back."""

    done: dict[UnitId, tuple[VolunteerId, Unit]] = field(default_factory=dict)
    unapplied: set[UnitId] = field(default_factory=set)
    known: dict[UnitId, VolunteerId | None] = field(default_factory=dict)
    """Units ever handed out, and their owners."""


class Crowd(RuleBasedStateMachine):
    """Any order of coming, leasing, finishing, doubling, giving back, leaving, going back."""

    grants = Bundle("grants")
    people = st.sampled_from(PEOPLE)
    epochs = 3
    batch_sizes = (5, 10)

    def __init__(self) -> None:
        super().__init__()
        self.book = self.make()
        self.now = 0.0
        self.base = BASE
        self.here: list[VolunteerId] = []
        self.lineage = Lineage()
        self.leases: dict[UnitId, dict[VolunteerId, Version]] = {}
        """Of all open units: our own count."""
        self.referred: set[Version] = set()
        """Bases since the last question."""
        self.saves: list[tuple[BookState, BookState, Lineage, list[Unit]]] = []

    def make(self) -> LeaseBook:
        raise NotImplementedError

    def owner(self, who: VolunteerId) -> VolunteerId | None:
        raise NotImplementedError

    def check_fresh(self, unit: Unit, who: VolunteerId) -> None:
        pass

    # -- what people do -----------------------------------------------------------------------

    @initialize(here=st.sets(people, min_size=1))
    def begin(self, here: set[VolunteerId]) -> None:
        for who in sorted(here):
            self.join(who)

    @rule(who=people)
    def join(self, who: VolunteerId) -> None:
        if who not in self.here:
            self.here = [other for other in PEOPLE if other in {*self.here, who}]
            self.book.members(self.here)

    @rule(who=people)
    def leave(self, who: VolunteerId) -> None:
        self.book.leave(who, "gone")
        assert self.book.held_by(who) == []
        for unit, leases in list(self.leases.items()):
            if who in leases and self.lineage.known[unit] == who:
                del self.leases[unit]
        if who in self.here:
            self.here = [other for other in self.here if other != who]
            self.book.members(self.here)

    @rule(
        target=grants,
        who=people,
        batches=st.integers(1, 4),
        link=st.integers(0, 2),
        holds=st.sets(st.sampled_from([3, 7])),
    )
    def lease(self, who: VolunteerId, batches: int, link: int, holds: set[int]) -> object:
        before = self.book.holding(who)
        unit, reason = self.book.lease(
            self.now, who, self.base, holds=holds, batches=batches, link=link
        )
        assert reason
        assert self.book.holding(who) == before + (unit is not None)
        return multiple() if unit is None else self.granted(unit, who, batches, link)

    def granted(self, unit: Unit, who: VolunteerId, batches: int, link: int) -> Grant:
        if unit.id not in self.lineage.known:
            assert unit.batches <= batches
            self.check_fresh(unit, who)
            self.lineage.known[unit.id] = self.owner(who)
        assert self.lineage.known[unit.id] == self.owner(who)
        assert unit.id not in self.lineage.done
        self.leases.setdefault(unit.id, {})[who] = self.base
        self.referred.add(self.base)
        lease = self.book.lease_of(unit.id, who)
        assert lease is not None
        assert (lease.base, lease.link) == (self.base, link)
        return Grant(unit, who, self.base)

    @rule(grant=grants)
    def finish(self, grant: Grant) -> None:
        valid = (
            grant.base.incarnation == self.base.incarnation
            and self.leases.get(grant.unit.id, {}).get(grant.who) == grant.base
        )
        unit, refusal = self.book.finish(
            grant.unit.id, grant.who, grant.base, self.base.incarnation
        )
        assert (unit == grant.unit, refusal is None) == (valid, valid), refusal
        if grant.base.incarnation != self.base.incarnation:
            assert refusal == "other_incarnation"
        if valid:
            self.finished(grant.unit, grant.who)

    def finished(self, unit: Unit, who: VolunteerId) -> None:
        del self.leases[unit.id]
        self.lineage.done[unit.id] = (who, unit)
        self.lineage.unapplied.add(unit.id)
        self.base = self.base.next()

    @rule(who=people, units=st.integers(1, 8), batches=st.integers(1, 4))
    def work(self, who: VolunteerId, units: int, batches: int) -> None:
        for _ in range(units):
            if not self.work_once(who, batches):
                return

    def work_once(self, who: VolunteerId, batches: int = 2) -> bool:
        unit, _ = self.book.lease(self.now, who, self.base, batches=batches)
        if unit is None:
            return False
        self.granted(unit, who, batches, 0)
        found, refusal = self.book.finish(unit.id, who, self.base, self.base.incarnation)
        assert (found, refusal) == (unit, None)
        self.finished(unit, who)
        return True

    @rule(grant=consumes(grants), failed=st.booleans(), decisive=st.booleans())
    def give_back(self, grant: Grant, failed: bool, decisive: bool) -> None:
        if grant.base.incarnation == self.base.incarnation:  # else it was another connection
            decisive = decisive and failed
            self.book.give_back(
                grant.unit.id, grant.who, "because", failed=failed, decisive=decisive
            )
        for entry in self.book.set_aside:
            self.leases.pop(entry.unit.id, None)

    @rule(seconds=st.sampled_from([0.5, LEASE_S, 3 * LEASE_S]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.book.lapse(self.now)

    @rule(who=people)
    def fall_silent(self, who: VolunteerId) -> None:
        self.book.offer_again(self.now, who, "nothing heard")
        assert self.book.holding(who) == 0

    # -- what the host does -------------------------------------------------------------------

    @rule(applied=st.sampled_from([0.0, 0.5, 1.0]))
    def save(self, applied: float) -> None:
        waiting = sorted(self.lineage.unapplied)
        self.lineage.unapplied -= set(waiting[: round(len(waiting) * applied)])
        unapplied = [self.lineage.done[unit][1] for unit in sorted(self.lineage.unapplied)]
        state = self.book.snapshot(unapplied)
        kept = copy.deepcopy(self.lineage)
        for unit in kept.unapplied:
            del kept.done[unit]
        kept.unapplied = set()
        aside = [entry.unit for entry in self.book.set_aside]
        self.saves.append((state, copy.deepcopy(state), kept, aside))

    @precondition(lambda self: self.saves)
    @rule(data=st.data(), restart=st.booleans())
    def go_back(self, data: st.DataObject, restart: bool) -> None:
        state, as_it_was, lineage, aside = data.draw(st.sampled_from(self.saves))
        assert state == as_it_was
        if restart:
            self.book, self.referred, self.here = self.make(), set(), []
        self.book.restore(state)
        self.lineage, self.leases = copy.deepcopy(lineage), {}
        self.base = Version(incarnation=self.base.incarnation + 1, count=self.base.count)
        assert [entry.unit for entry in self.book.set_aside] == aside
        assert self.book.leased == 0

    @rule()
    def ask_what_is_freed(self) -> None:
        held = {base for leases in self.leases.values() for base in leases.values()}
        freed = self.book.freed()
        assert len(freed) == len(set(freed))
        assert set(freed) == self.referred - held
        self.referred = held

    # -- what always holds --------------------------------------------------------------------

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        units = [unit for _, unit in self.lineage.done.values()]
        assert self.book.done_units == len(units)
        assert self.book.done_batches == sum(unit.batches for unit in units)
        assert self.book.done_samples == sum(map(self.book.samples, units))
        for who in PEOPLE:
            assert self.book.holding(who) == len(self.book.held_by(who))
        assert sum(map(self.book.holding, PEOPLE)) == self.book.leased

    def batches(self, epoch: int) -> int:
        return plans(*self.batch_sizes).at(epoch).total


class RangesCrowd(Crowd):
    def make(self) -> LeaseBook:
        return ranges(epochs=self.epochs, batch_sizes=self.batch_sizes)

    def owner(self, who: VolunteerId) -> None:
        return None

    def teardown(self) -> None:
        """However it went, whoever is left can finish the job, and every batch counts once."""
        self.book.lapse(self.now + 10**6 * LEASE_S)  # longer than any, grown by lapses as they are
        while self.work_once(VolunteerId("finisher")):
            pass
        self.ask_what_is_freed()
        assert self.leases == {}
        assert self.book.finished
        assert self.book.leased == 0
        units = [unit for _, unit in self.lineage.done.values()]
        units += [entry.unit for entry in self.book.set_aside]
        seen = Counter((unit.epoch, number) for unit in units for number in numbers(unit))
        expected = [(e, n) for e in range(self.epochs) for n in range(self.batches(e))]
        assert seen == Counter(expected)


class SegmentsCrowd(Crowd):
    def make(self) -> LeaseBook:
        return segments(epochs=self.epochs, batch_sizes=self.batch_sizes)

    def owner(self, who: VolunteerId) -> VolunteerId:
        return who

    def part(self, who: VolunteerId, epoch: int) -> range:
        rank, cuts, total = self.here.index(who), len(self.here) + 1, self.batches(epoch)
        return range(rank * total // cuts, (rank + 2) * total // cuts)

    def check_fresh(self, unit: Unit, who: VolunteerId) -> None:
        assert who in self.here
        part = self.part(who, unit.epoch)
        assert part.start <= unit.first_batch
        assert unit.first_batch + unit.batches <= part.stop

    def teardown(self) -> None:
        """Whoever is left can finish, and has then done its two segments, each batch once."""
        if not self.here:
            self.join(ADA)
        self.book.lapse(self.now + 10**6 * LEASE_S)
        while any([self.work_once(who) for who in self.here]):
            pass
        assert self.book.finished
        assert all(self.book.holding(who) == 0 for who in self.here)
        assert self.book.epochs_done <= self.epochs
        for who in self.here:
            units = [unit for by, unit in self.lineage.done.values() if by == who]
            seen = Counter((unit.epoch, number) for unit in units for number in numbers(unit))
            assert set(seen.values()) <= {1}, "no batch twice in an epoch"
            aside = [entry.unit for entry in self.book.set_aside if entry.owner == who]
            seen.update((unit.epoch, number) for unit in aside for number in numbers(unit))
            assert set(seen.values()) <= {1}
            last = self.epochs - 1
            assert set(self.part(who, last)) <= {n for epoch, n in seen if epoch == last}
        if not self.book.set_aside:
            assert self.book.epochs_done == self.epochs


TestRanges = RangesCrowd.TestCase
TestRanges.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
TestSegments = SegmentsCrowd.TestCase
TestSegments.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
