"""Segments: every member its own two of N+1, neighbours overlapping, whoever comes and goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.work import Unit, UnitId, VolunteerId
from crowdgrad.planner.assignment import End, Piece
from crowdgrad.planner.batches import EpochPlans
from crowdgrad.planner.segments import Segments, Spans

ADA, BEN, CY, DEE, EVE = PEOPLE = tuple(map(VolunteerId, ("ada", "ben", "cy", "dee", "eve")))


def segments(
    *records: int, epochs: int = 1, batch_sizes: tuple[int, ...] = (1,), here: int = 0
) -> Segments:
    """Shards 0, 1, … with so many records; by default a batch is one record."""
    plans = EpochPlans(
        tuple(range(len(records))), records, lambda epoch: batch_sizes[: epoch + 1][-1]
    )
    assignment = Segments(plans, epochs=epochs)
    if here:
        assignment.members(PEOPLE[:here])
    return assignment


def take(assignment: Segments, who: VolunteerId, batches: int = 1) -> Piece | None:
    return assignment.next(who, batches=batches, holds=(), at_work={})[0]


def unit(piece: Piece) -> Unit:
    return Unit(
        id=UnitId(0),
        kind="train",
        epoch=piece.epoch,
        shard=piece.shard,
        first_batch=piece.first_batch,
        batches=piece.batches,
    )


def numbers(piece: Piece) -> range:
    return range(piece.first_batch, piece.first_batch + piece.batches)


def work(assignment: Segments, who: VolunteerId, most: int = 10**6) -> list[tuple[int, int]]:
    """(epoch, batch) of what a member does, one batch a unit, until there is nothing for it."""
    done: list[tuple[int, int]] = []
    while len(done) < most and (piece := take(assignment, who)) is not None:
        assert piece.owner == who
        assignment.closed(unit(piece), who, "done")
        done.append((piece.epoch, piece.first_batch))
    return done


def batches(epoch: int, *parts: range) -> list[tuple[int, int]]:
    return [(epoch, batch) for part in parts for batch in part]


# -- by hand ----------------------------------------------------------------------------------


def test_eight_batches_for_three_members() -> None:
    assignment = segments(8, here=3)
    assert work(assignment, ADA) == batches(0, range(0, 4))
    assert work(assignment, BEN) == batches(0, range(2, 6))
    assert not assignment.finished
    assert work(assignment, CY) == batches(0, range(4, 8))
    assert assignment.finished


def test_five_batches_for_two_members() -> None:
    assignment = segments(5, here=2)  # cut at 1 and 3
    assert work(assignment, ADA) == batches(0, range(0, 3))
    assert work(assignment, BEN) == batches(0, range(1, 5))


def test_who_is_alone_has_everything() -> None:
    assignment = segments(3, 2, here=1)
    assert work(assignment, ADA) == batches(0, range(5))
    assert assignment.finished


def test_reasons() -> None:
    assignment = segments(4, here=1)

    def ask(who: VolunteerId) -> str:
        return assignment.next(who, batches=4, holds=(), at_work={})[1]

    assert ask(BEN) == "you have no segments: you are not in the roster"
    piece, reason = assignment.next(ADA, batches=4, holds=(), at_work={})
    assert reason == "of your segments 0 and 1 of 2, epoch 1"
    assert ask(ADA) == "your last 1 units of this epoch are under way"
    assert piece is not None
    assignment.closed(unit(piece), ADA, "done")
    assert ask(ADA) == "all of your segments are done"


def test_pieces_stay_within_a_shard_and_a_part() -> None:
    assignment = segments(3, 5, here=2)  # cut at 2 and 5
    assert [take(assignment, ADA, 4) for _ in range(2)] == [
        Piece(epoch=0, shard=0, first_batch=0, batches=3, owner=ADA),
        Piece(epoch=0, shard=1, first_batch=3, batches=2, owner=ADA),
    ]
    assert take(assignment, ADA, 4) is None


def test_members_go_through_their_epochs_at_their_own_pace() -> None:
    assignment = segments(3, epochs=3, here=2)  # cut at 1 and 2
    ours = range(0, 2)
    assert work(assignment, ADA) == [*batches(0, ours), *batches(1, ours), *batches(2, ours)]
    assert not assignment.finished
    assert assignment.epochs_done(0) == 1.5
    assert work(assignment, BEN, 3) == [*batches(0, range(1, 3)), (1, 1)]
    assert assignment.epochs_done(0) == (3 + 1.5) / 2


def test_an_epoch_begins_when_nothing_of_the_last_is_under_way() -> None:
    assignment = segments(2, epochs=2, here=1)
    first, second = take(assignment, ADA), take(assignment, ADA)
    assert first is not None
    assert second is not None
    assignment.closed(unit(second), ADA, "done")
    assert take(assignment, ADA) is None
    assignment.closed(unit(first), ADA, "set_aside")
    third = take(assignment, ADA)
    assert third is not None
    assert (third.epoch, third.first_batch) == (1, 0)


def test_what_is_set_aside_is_not_done_but_is_not_given_again() -> None:
    assignment = segments(4, here=1)
    piece = take(assignment, ADA)
    assert piece is not None
    assignment.closed(unit(piece), ADA, "set_aside")
    assert work(assignment, ADA) == batches(0, range(1, 4))
    assert assignment.finished
    assert assignment.epochs_done(0) == 0.75


def test_what_is_void_is_given_again() -> None:
    assignment = segments(4, here=1)
    piece = take(assignment, ADA, 2)
    assert piece is not None
    assignment.closed(unit(piece), ADA, "void")
    assert work(assignment, ADA) == batches(0, range(0, 4))


def test_fewer_batches_than_segments() -> None:
    assignment = segments(2, epochs=3, here=5)  # cut at 0, 0, 0, 1, 1, 1, 2
    done = {who: work(assignment, who) for who in PEOPLE}
    assert done == {
        ADA: [],
        BEN: [(0, 0), (1, 0), (2, 0)],
        CY: [(0, 0), (1, 0), (2, 0)],
        DEE: [],
        EVE: [(0, 1), (1, 1), (2, 1)],
    }
    assert assignment.finished
    assert assignment.epochs_done(0) == 3.0


def test_growing_batches_cut_every_epoch_anew() -> None:
    assignment = segments(12, epochs=2, batch_sizes=(1, 2), here=2)  # 12 batches, then 6
    assert work(assignment, BEN) == [*batches(0, range(4, 12)), *batches(1, range(2, 6))]


# -- coming and going -------------------------------------------------------------------------


def test_nobody_was_ever_here() -> None:
    assignment = segments(4)
    assignment.members([])
    assert not assignment.finished
    assert assignment.epochs_done(0) == 0.0


def test_a_newcomer_takes_a_part_and_starts_with_the_slowest() -> None:
    assignment = segments(6, epochs=3, here=2)  # cut at 2 and 4
    work(assignment, ADA, 4)
    work(assignment, BEN, 9)
    assignment.members([ADA, BEN, CY])  # cut at 1, 3 and 4
    assert work(assignment, CY, 3) == batches(1, range(3, 6))


def test_what_one_did_itself_is_not_done_again_what_is_new_is() -> None:
    assignment = segments(6, here=3)  # cut at 1, 3 and 4
    assert work(assignment, BEN, 2) == batches(0, range(1, 3))
    assignment.members([ADA, BEN])  # cut at 2 and 4
    assert work(assignment, BEN) == batches(0, range(3, 6))
    assert work(assignment, ADA) == batches(0, range(0, 4))
    assert assignment.finished


def test_who_had_finished_does_what_is_new_when_another_leaves() -> None:
    assignment = segments(6, epochs=2, here=2)  # cut at 2 and 4
    work(assignment, ADA)
    assert take(assignment, ADA) is None
    assert assignment.epochs_done(0) == 1.0
    assignment.members([ADA])
    assert assignment.epochs_done(0) == pytest.approx(1 + 4 / 6)
    assert not assignment.finished
    assert work(assignment, ADA) == batches(1, range(4, 6))
    assert assignment.finished


def test_who_comes_back_goes_on_where_it_was() -> None:
    assignment = segments(6, epochs=3, here=2)
    work(assignment, BEN, 6)  # one epoch of four, and 2 and 3 of the next
    assignment.members([ADA])
    assignment.members([ADA, BEN])
    assert work(assignment, BEN, 2) == batches(1, range(4, 6))


def test_when_the_last_one_leaves_its_work_is_still_to_be_done() -> None:
    assignment = segments(4, epochs=3, here=1)
    work(assignment, ADA, 6)
    assignment.members([])
    assert not assignment.finished
    assert assignment.epochs_done(0) == 1.5
    assert take(assignment, ADA) is None
    assignment.members([BEN])
    assert work(assignment, BEN) == [*batches(1, range(4)), *batches(2, range(4))]


def test_who_only_looked_in_is_not_remembered() -> None:
    assignment = segments(6, epochs=3, here=2)
    work(assignment, ADA, 1)
    for number in range(1000):
        assignment.members([ADA, VolunteerId(f"guest {number}")])
    work(assignment, ADA)
    assignment.members([ADA, BEN])
    assert [told.who for told in assignment.snapshot().progress] == [ADA, BEN]
    assert work(assignment, BEN, 1) == [(2, 2)]


def test_who_is_not_here_does_not_go_on() -> None:
    assignment = segments(6, epochs=2, here=1)
    work(assignment, ADA, 5)
    last = take(assignment, ADA)
    assert last is not None
    assignment.members([BEN, CY])
    assignment.closed(unit(last), ADA, "set_aside")
    assignment.members([ADA])
    assert work(assignment, ADA) == batches(1, range(6))
    assignment = segments(6, epochs=2, here=1)
    first = take(assignment, ADA, 3)
    assert first is not None
    assignment.members([BEN, CY, DEE])  # its rank would now mean the first three batches
    assignment.closed(unit(first), ADA, "done")
    assignment.members([ADA])
    assert work(assignment, ADA, 3) == batches(0, range(3, 6))


# -- checkpoints ------------------------------------------------------------------------------


def test_back_to_when_nobody_had_come() -> None:
    assignment = segments(4, epochs=2)
    state = assignment.snapshot()
    assignment.members([ADA])
    work(assignment, ADA, 5)
    assignment.restore(state, [])
    assert work(assignment, ADA, 2) == batches(0, range(2))


def test_whoever_is_here_when_it_goes_back_stays() -> None:
    assignment = segments(6, epochs=3, here=2)
    work(assignment, ADA, 5)
    work(assignment, BEN, 5)
    state = assignment.snapshot()
    assignment.members([ADA, CY])
    work(assignment, ADA)
    work(assignment, CY)
    assignment.restore(state, [])
    assert work(assignment, ADA, 1) == [(1, 1)]
    assert work(assignment, CY, 1) == [(1, 2)], "who came later starts with the slowest"
    assert take(assignment, BEN) is None
    assignment.members([ADA, BEN])
    assert work(assignment, BEN, 1) == [(1, 3)]


def test_after_a_restart_nobody_is_here_but_nothing_is_finished() -> None:
    assignment = segments(6, epochs=3, here=2)
    work(assignment, ADA, 5)
    work(assignment, BEN, 9)
    again = segments(6, epochs=3)
    again.restore(assignment.snapshot(), [])
    assert not again.finished
    assert again.epochs_done(0) == assignment.epochs_done(0)
    assert take(again, ADA) is None
    again.members([DEE])
    assert work(again, DEE, 1) == [(1, 0)]


# -- always -----------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 15), min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 3))
def test_segments_are_even_and_overlap(records: list[int], members: int, size: int) -> None:
    """With nobody coming or going, batches are trained on as often as the segments say."""
    assignment = segments(*records, epochs=2, batch_sizes=(size,), here=members)
    total = assignment.plans.at(0).total
    parts = {who: work(assignment, who) for who in PEOPLE[:members]}
    assert assignment.finished
    assert assignment.epochs_done(0) == 2.0
    times = Counter(done for part in parts.values() for done in part)
    if total > members:  # else some have nothing at all
        assert set(times) == set(batches(0, range(total)) + batches(1, range(total)))
        assert set(times.values()) <= {1, 2}
        for epoch in (0, 1):
            single = [batch for batch in range(total) if times[epoch, batch] == 1]
            first = total // (members + 1)
            last = members * total // (members + 1)
            everything = range(total) if members == 1 else [*range(first), *range(last, total)]
            assert single == list(everything)
    for part in parts.values():
        assert len(part) == len(set(part))
        assert 2 * (total // (members + 1)) <= sum(epoch == 1 for epoch, _ in part)
        assert sum(epoch == 1 for epoch, _ in part) <= 2 * -(-total // (members + 1))


@dataclass
class Plain:
    """A member as the paper has it: sets of batches, everything counted anew every time."""

    epoch: int
    taken: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    open: int = 0
    begun: bool = False


class Slow:
    """The same assignment, obviously right."""

    def __init__(self, plans: EpochPlans, epochs: int) -> None:
        self.plans, self.epochs = plans, epochs
        self.ever: dict[VolunteerId, Plain] = {}
        self.here: list[VolunteerId] = []

    def part(self, who: VolunteerId) -> list[int]:
        total, cuts = self.plans.at(self.ever[who].epoch).total, len(self.here) + 1
        owner = [next(i for i in range(cuts) if b < (i + 1) * total // cuts) for b in range(total)]
        rank = self.here.index(who)
        return [batch for batch in range(total) if owner[batch] in (rank, rank + 1)]

    def left(self, who: VolunteerId) -> list[int]:
        return [batch for batch in self.part(who) if batch not in self.ever[who].taken]

    def settle(self) -> None:
        for who in self.here:
            member = self.ever[who]
            while not self.left(who) and not member.open and member.epoch < self.epochs - 1:
                jump = 1 if self.part(who) else self.epochs - 1 - member.epoch
                member.epoch, member.taken, member.done = member.epoch + jump, set(), set()

    def members(self, ranked: list[VolunteerId]) -> None:
        known = [self.ever[who].epoch for who in ranked if who in self.ever]
        start = min(known or [self.ever[who].epoch for who in self.here], default=0)
        for who in self.here:
            if who not in ranked and not self.ever[who].begun:
                del self.ever[who]
        for who in ranked:
            self.ever.setdefault(who, Plain(start))
        self.here = ranked
        self.settle()

    def take(self, piece: Piece) -> None:
        assert piece.owner is not None
        member = self.ever[piece.owner]
        left = self.left(piece.owner)
        assert piece.epoch == member.epoch
        assert left[: piece.batches] == list(numbers(piece)), "the first that are left, in a row"
        assert {self.plans.at(piece.epoch).shard_of(n) for n in numbers(piece)} == {piece.shard}
        member.taken |= set(numbers(piece))
        member.open += 1
        member.begun = True

    def closed(self, piece: Piece, end: End) -> None:
        assert piece.owner is not None
        member = self.ever[piece.owner]
        member.open -= 1
        if piece.epoch == member.epoch and end == "done":
            member.done |= set(numbers(piece))
        if piece.epoch == member.epoch and end == "void":
            member.taken -= set(numbers(piece))
        self.settle()

    @property
    def finished(self) -> bool:
        return bool(self.here) and not any(self.left(w) or self.ever[w].open for w in self.here)

    @property
    def epochs_done(self) -> float:
        total = 0.0
        for who in self.here:
            part, member = self.part(who), self.ever[who]
            total += member.epoch + (len(member.done & set(part)) / len(part) if part else 1)
        return total / len(self.here)


STEPS = st.lists(
    st.one_of(
        st.sets(st.sampled_from(PEOPLE), min_size=1).map(lambda here: ("members", sorted(here))),
        st.tuples(st.just("take"), st.sampled_from(PEOPLE), st.integers(1, 4)),
        st.tuples(st.just("take"), st.sampled_from(PEOPLE), st.integers(1, 4)),
        st.tuples(
            st.just("close"),
            st.integers(0, 9),
            st.sampled_from(["done", "done", "done", "set_aside", "void"]),
        ),
        st.tuples(st.just("restart")),
    ),
    min_size=8,
    max_size=60,
)


@settings(max_examples=250, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    STEPS,
)
def test_it_does_what_a_slow_and_obvious_one_does(
    records: list[int], sizes: list[int], steps: list[tuple[Any, ...]]
) -> None:
    fast = segments(*records, epochs=3, batch_sizes=tuple(sizes), here=2)
    slow = Slow(fast.plans, 3)
    slow.members([ADA, BEN])
    waiting: list[Piece] = []
    for step, *rest in steps:
        if step == "members":
            fast.members(rest[0])
            slow.members(rest[0])
        elif step == "take":
            who, most = rest
            piece = take(fast, who, most)
            if piece is None:
                assert who not in slow.here or not slow.left(who)
            else:
                slow.take(piece)
                waiting.append(piece)
        elif step == "close" and waiting:
            number, end = rest
            piece = waiting.pop(number % len(waiting))
            fast.closed(unit(piece), piece.owner, end)
            slow.closed(piece, end)
        elif step == "restart":
            state = fast.snapshot()
            fast = segments(*records, epochs=3, batch_sizes=tuple(sizes))
            fast.restore(state, [(unit(piece), piece.owner) for piece in waiting])
            assert fast.snapshot() == state
            fast.members(slow.here)
            for member in slow.ever.values():
                member.begun = True
        assert fast.finished == slow.finished
        assert fast.epochs_done(0) == pytest.approx(slow.epochs_done)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 20), st.integers(1, 6)),
        max_size=20,
    ),
    st.integers(0, 20),
    st.integers(0, 10),
)
def test_spans_are_a_set(
    changes: list[tuple[Literal["add", "remove"], int, int]], start: int, length: int
) -> None:
    spans, plain = Spans(), set[int]()
    for change, first, count in changes:
        getattr(spans, change)(first, first + count)
        numbers = set(range(first, first + count))
        plain = plain | numbers if change == "add" else plain - numbers
    ranges = list(spans)
    assert {n for first, stop in ranges for n in range(first, stop)} == plain
    assert all(stop < first for (_, stop), (first, _) in pairwise(ranges))
    assert list(Spans(ranges)) == ranges
    within = range(start, start + length)
    assert spans.count(within) == len(plain & set(within))
    missing = [n for n in within if n not in plain]
    gap = spans.gap(within)
    assert list(gap) == missing[: len(gap)]
    assert bool(gap) == bool(missing)
    assert not gap or gap.stop == within.stop or gap.stop in plain, "all of the stretch"
