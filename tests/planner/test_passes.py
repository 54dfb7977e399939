"""Data that grows while it is trained on: an epoch is a pass over what was there when it began."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.data import Chunk, ChunkHash, Field, Manifest, Shard, Split
from crowdgrad.domain.work import LocalSteps, Unit, Version, VolunteerId
from crowdgrad.planner.batches import EpochPlans, Sizes
from crowdgrad.planner.leases import LeaseBook
from crowdgrad.planner.passes import Passes, wrong
from crowdgrad.planner.ranges import Ranges
from tests.host.small import spec

ADA, BEN = VolunteerId("ada"), VolunteerId("ben")
BASE = Version(incarnation=0, count=0)


def manifest(records: list[int], validation: int = 5) -> Manifest:
    """The validation shard lies between the first training shard and those that come."""

    def shard(split: Split, count: int) -> Shard:
        chunks = (Chunk(hash=ChunkHash("a" * 64), bytes=count),)
        return Shard(split=split, records=count, chunks=chunks)

    first, *more = [shard("train", count) for count in records]
    return Manifest(
        title="grows",
        fields=(Field(name="x", dtype="uint8", shape=()),),
        shards=(first, shard("validation", validation), *more),
    )


def plans_of(data: Manifest, sizes: tuple[int, ...]) -> EpochPlans:
    shards = data.numbers("train")
    records = tuple(data.shards[number].records for number in shards)
    return EpochPlans(shards, records, lambda epoch: sizes[: epoch + 1][-1])


def ranges(plans: EpochPlans, epochs: int) -> Ranges:
    return Ranges(
        plans, epochs=epochs, shard_order=lambda epoch: plans.shards[:: 1 - 2 * (epoch % 2)]
    )


@dataclass
class Grower:
    """A lease book over data that grows, and a slow and obvious account of what it should do."""

    epochs: int
    sizes: tuple[int, ...]
    records: list[int]
    seen: Counter[tuple[int, int]] = field(default_factory=Counter)
    began: dict[int, int] = field(default_factory=dict)
    """Epoch → how many training shards there were when its first unit went out."""

    def __post_init__(self) -> None:
        self.plans = plans_of(manifest(self.records), self.sizes)
        self.book = LeaseBook(ranges(self.plans, self.epochs), kind="train", lease_s=10.0)

    def grow(self, records: int) -> None:
        self.records = [*self.records, records]
        self.plans.grow(manifest(self.records), "train")

    def lease(self, who: VolunteerId, batches: int, holds: tuple[int, ...]) -> Unit | None:
        unit, _ = self.book.lease(0.0, who, BASE, batches=batches, holds=holds)
        return unit

    def note(self, unit: Unit) -> None:
        """Of a unit that is leased for the first time."""
        self.began.setdefault(unit.epoch, len(self.records))
        for batch in range(unit.first_batch, unit.first_batch + unit.batches):
            self.seen[unit.epoch, batch] += 1

    def crash(self) -> None:
        """A new book for the same, or more, data goes on from a snapshot."""
        state = self.book.snapshot()
        self.plans = plans_of(manifest(self.records), self.sizes)
        self.book = LeaseBook(ranges(self.plans, self.epochs), kind="train", lease_s=10.0)
        self.book.restore(state)
        assert self.book.snapshot() == state

    def samples(self) -> int:
        return sum(sum(self.records[: self.began[epoch]]) for epoch in range(self.epochs))


@settings(max_examples=80, deadline=None)
@given(
    st.data(),
    st.integers(1, 4),
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.lists(st.integers(1, 25), min_size=1, max_size=3),
)
def test_every_batch_of_a_pass_once_however_the_data_grows(
    data: st.DataObject, epochs: int, sizes: list[int], records: list[int]
) -> None:
    grower = Grower(epochs, tuple(sizes), records)
    waiting: dict[int, tuple[Unit, VolunteerId]] = {}
    known: set[int] = set()
    done = 0.0
    while not grower.book.finished:
        what = data.draw(st.sampled_from(["lease", "lease", "lease", "finish", "grow", "crash"]))
        if what == "grow" and len(grower.records) < 8:
            grower.grow(data.draw(st.integers(1, 25)))
        elif what == "crash":
            grower.crash()
            waiting.clear()  # who worked on them comes back and asks
        elif what == "finish" and waiting:
            unit, who = waiting.pop(data.draw(st.sampled_from(sorted(waiting))))
            finished, refusal = grower.book.finish(unit.id, who, BASE, 0)
            assert (finished, refusal) == (unit, None)
        else:
            who = data.draw(st.sampled_from([ADA, BEN]))
            holds = data.draw(st.sampled_from([(), (0,), (2, 3)]))
            leased = grower.lease(who, data.draw(st.integers(1, 4)), holds)
            if leased is not None:
                waiting[leased.id] = (leased, who)
                if leased.id not in known:
                    known.add(leased.id)
                    grower.note(leased)
            elif waiting:
                number, (unit, who) = next(iter(waiting.items()))
                del waiting[number]
                assert grower.book.finish(unit.id, who, BASE, 0) == (unit, None)
        assert grower.book.epochs_done >= done, "what is done stays done"
        done = grower.book.epochs_done
    everything: Counter[tuple[int, int]] = Counter()
    for epoch in range(epochs):
        shards = grower.plans.shards[: grower.began[epoch]]
        plan = grower.plans.at(epoch)
        everything.update((epoch, batch) for shard in shards for batch in plan.of_shard(shard))
    assert grower.seen == everything
    assert grower.book.done_samples == grower.samples()
    assert grower.book.epochs_done == pytest.approx(epochs)
    assert grower.began == dict(sorted(grower.began.items(), key=lambda pair: pair[1]))


def test_what_comes_in_the_middle_of_an_epoch_waits_for_the_next() -> None:
    grower = Grower(2, (10,), [20])
    first = grower.lease(ADA, 1, ())
    assert first is not None
    grower.grow(30)
    rest = [unit for _ in range(6) if (unit := grower.lease(BEN, 1, ()))]
    assert [(unit.epoch, unit.shard) for unit in rest] == [(0, 0), *[(1, 0)] * 2, *[(1, 2)] * 3]
    grower.book.finish(first.id, ADA, BASE, 0)
    assert grower.book.epochs_done == 0.5
    for unit in rest:
        grower.book.finish(unit.id, BEN, BASE, 0)
    assert grower.book.epochs_done == 2.0
    assert grower.book.finished


def test_epochs_of_different_sizes_are_counted_one_after_the_other() -> None:
    sizes = {2: 20, 3: 50}.__getitem__
    grown = Passes([(0, 2), (3, 3)])
    done = [grown.done(samples, 3, 3, sizes) for samples in (0, 30, 60, 85, 110, 135)]
    assert done == [0.0, 1.5, 3.0, 3.5, 4.0, 4.5]
    assert Passes([(0, 2)]).done(40, 1, 3, sizes) == 2.0
    assert Passes([(0, 2)]).done(65, 1, 3, sizes) == 2.5, "what is to come has what is there now"
    assert Passes().done(25, -1, 3, sizes) == 0.5
    assert [grown.shards_in(epoch) for epoch in (0, 2, 3, 9)] == [2, 2, 3, 3]
    assert Passes().shards_in(0) is None


def test_a_checkpoint_of_earlier_versions_has_all_shards_in_every_epoch() -> None:
    grower = Grower(3, (10,), [20, 10])
    for _ in range(4):
        assert grower.lease(ADA, 1, ())
    state = grower.book.snapshot()
    old = type(state.assignment)(progress=state.assignment.progress)
    again = ranges(plans_of(manifest([20, 10]), (10,)), 3)
    again.restore(old, [])
    assert again.epochs_done(45) == 1.5
    assert again.snapshot().passes == ((0, 2),)


@pytest.mark.parametrize(
    ("steps", "good"),
    [
        ((), True),
        (((0, 2),), True),
        (((0, 2), (3, 4)), True),
        (((1, 2),), False),
        (((0, 2), (4, 4)), False),
        (((0, 2), (0, 4)), False),
        (((0, 4), (1, 2)), False),
        (((0, 5),), False),
        (((0, 0),), False),
        (((0, -1),), False),
    ],
)
def test_passes_that_cannot_be_are_refused(steps: tuple[tuple[int, int], ...], good: bool) -> None:
    assert (wrong(steps, 3, 4) == "") == good


def test_shards_only_come_at_the_end() -> None:
    local = LocalSteps(batch_size=10)
    plans = EpochPlans.of(manifest([20, 10]), "train", local, spec())
    before = plans.at(0)
    assert plans.records == 30
    plans.grow(manifest([20, 10, 7]), "train")
    assert plans.at(0).starts[: len(before.starts)] == before.starts
    assert (plans.records, plans.records_in(1), plans.records_in(0)) == (37, 20, 0)
    for other in ([20, 11, 7], [20]):
        with pytest.raises(ValueError, match="are others now"):
            plans.grow(manifest(other), "train")


def test_records_that_fill_no_batch_are_not_counted() -> None:
    plans = EpochPlans((0, 2), (25, 5), lambda _: 10, Sizes(whole=True))
    assert (plans.records_in(1), plans.records_in(2)) == (20, 20)
