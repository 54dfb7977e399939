"""Which records make up which batch.

A shard of S records gives ⌈S / B⌉ batches whose sizes differ by at most one, so no batch is tiny.
Batches are numbered through a split, shard after shard: the number names the batch for ever; in
which order they are trained on is for the leases to decide. Where the batch grows with the epochs,
every epoch has the plan of its own batch size. Where the data grows, shards come at the end: all
numbers stay what they were.

A program may ask for more: batch normalisation cannot train on one sample, so then no batch has
fewer than two; and a program captured for one batch size takes no other, so what is left over at
the end of a shard is left out, or filled up where samples have weights and nothing measures them.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from crowdgrad.domain.data import Manifest, Split
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import LocalSteps, UnitKind

SPLIT_OF: dict[UnitKind, Split] = {
    "train": "train", "validate": "validation", "test": "test", "look": "train",
}  # fmt: skip
"""Which records a unit is of."""
PLANS_KEPT = 64
"""Batch sizes whose plans are remembered; more than any sensible growth has at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Which batches a program can take."""

    smallest: int = 1
    whole: bool = False
    """Only batches of the full size: the program was captured for one size alone."""
    fill: bool = False
    """The last, incomplete batch of a shard is filled up by whoever computes it."""

    @classmethod
    def of(cls, spec: ProgramSpec, split: Split) -> Sizes:
        # Filled-up samples weigh nothing in the loss; metrics, means and variances do not know.
        measures = any(tensor.dtype.startswith("float") for tensor in spec.buffers)
        fill = spec.weighted and split == "train" and not measures
        return cls(smallest=spec.smallest_batch, whole=spec.fixed_batch > 0, fill=fill)

    def batches(self, records: int, batch_size: int) -> int:
        """How many batches a shard of so many records gives."""
        if self.whole:
            return -(-records // batch_size) if self.fill else records // batch_size
        return min(-(-records // batch_size), max(1, records // self.smallest))


ANY = Sizes()


@dataclass(frozen=True, slots=True)
class BatchPlan:
    shards: tuple[int, ...]
    """Shard numbers of the split."""
    records: tuple[int, ...]
    """How many records each of them holds."""
    batch_size: int
    starts: tuple[int, ...]
    """The number of each shard's first batch, and at the end the number of all batches."""
    places: dict[int, int]
    """Where each shard stands in `shards`."""
    whole: bool = False

    @property
    def total(self) -> int:
        return self.starts[-1]

    def of_shard(self, shard: int) -> range:
        """The numbers of a shard's batches."""
        place = self.places[shard]
        return range(self.starts[place], self.starts[place + 1])

    def shard_of(self, batch: int) -> int:
        return self.shards[self._place(batch)]

    def rows(self, batch: int) -> tuple[int, int]:
        """First and last-but-one place of the batch in its shard's record order."""
        place = self._place(batch)
        count = self.starts[place + 1] - self.starts[place]
        at = batch - self.starts[place]
        records = self.records[place]
        if self.whole:
            return at * self.batch_size, min((at + 1) * self.batch_size, records)
        return at * records // count, (at + 1) * records // count

    def samples(self, first_batch: int, batches: int) -> int:
        """How many records a range of batches of one shard holds."""
        place = self._place(first_batch)
        first, end = self.starts[place], self.starts[place + 1]
        if first_batch + batches > end:
            raise ValueError(f"batches from {first_batch} on are not {batches} of one shard")
        records, at, to = self.records[place], first_batch - first, first_batch + batches - first
        if self.whole:
            return min(to * self.batch_size, records) - at * self.batch_size
        return to * records // (end - first) - at * records // (end - first)

    def _place(self, batch: int) -> int:
        if not 0 <= batch < self.starts[-1]:
            raise ValueError(f"there is no batch {batch}: the split has {self.total}")
        return bisect.bisect_right(self.starts, batch) - 1


class EpochPlans:
    """The plan of every epoch."""

    def __init__(
        self,
        shards: tuple[int, ...],
        records: tuple[int, ...],
        batch_size_at: Callable[[int], int],
        sizes: Sizes = ANY,
    ) -> None:
        """`records`: how many each shard holds. `batch_size_at(epoch)`: always the same answer."""
        self._shards = shards
        self._records = records
        self._batch_size_at = batch_size_at
        self._sizes = sizes
        self._plans: dict[int, BatchPlan] = {}
        self._last: tuple[int, BatchPlan | None] = (-1, None)
        """The epoch of the last question, and its plan: mostly it is that of the next."""
        self._used: list[int] = []
        """Records of the first shard, of the first two, …, without those left out."""

    @classmethod
    def of(
        cls, manifest: Manifest, split: Split, local: LocalSteps, spec: ProgramSpec
    ) -> EpochPlans:
        """Batches grow with the epochs of training; those of an evaluation stay as they are."""
        size_at = local.batch_size_at if split == "train" else lambda _: local.batch_size
        return cls(*_sizes(manifest, split), size_at, Sizes.of(spec, split))

    @classmethod
    def of_kind(
        cls, manifest: Manifest, kind: UnitKind, local: LocalSteps, spec: ProgramSpec
    ) -> EpochPlans:
        """A look takes one record at a time, so that a batch's loss is a record's."""
        if kind == "look":
            return cls(*_sizes(manifest, SPLIT_OF[kind]), lambda _: 1)
        return cls.of(manifest, SPLIT_OF[kind], local, spec)

    @property
    def shards(self) -> tuple[int, ...]:
        """The numbers of all there are now."""
        return self._shards

    @property
    def records(self) -> int:
        """Of the whole split, those left out not counted."""
        return self.records_in(len(self._shards))

    def records_in(self, shards: int) -> int:
        """Of so many of its first shards, those left out not counted."""
        if len(self._used) < len(self._shards):
            first = self.at(0)
            for shard in first.shards[len(self._used) :]:
                numbers = first.of_shard(shard)
                found = first.samples(numbers.start, len(numbers)) if numbers else 0
                self._used.append(found + (self._used[-1] if self._used else 0))
        return self._used[shards - 1] if shards else 0

    def grow(self, manifest: Manifest, split: Split) -> None:
        """The split has more shards now, at its end."""
        shards, records = _sizes(manifest, split)
        there = len(self._shards)
        if shards[:there] != self._shards or records[:there] != self._records:
            raise ValueError(f"the first {there} shards of the split are others now")
        self._shards, self._records = shards, records
        self._plans.clear()
        self._last = (-1, None)

    def at(self, epoch: int) -> BatchPlan:
        if epoch != self._last[0]:
            self._last = (epoch, self._at(epoch))
        assert self._last[1] is not None
        return self._last[1]

    def _at(self, epoch: int) -> BatchPlan:
        size = self._batch_size_at(epoch)
        found = self._plans.get(size)
        if found is None:
            if len(self._plans) >= PLANS_KEPT:
                del self._plans[next(iter(self._plans))]
            found = self._plans[size] = cut(self._shards, self._records, size, self._sizes)
        return found


def largest_batch(local: LocalSteps, spec: ProgramSpec, records: Iterable[int], epochs: int) -> int:
    """More samples than this no batch of shards of these sizes has, in so many epochs."""
    size = max(local.batch_size_at(epochs - 1), 2 * spec.smallest_batch - 1)
    return max(spec.fixed_batch, min(size, max(records, default=0)))


def plan(manifest: Manifest, split: Split, batch_size: int) -> BatchPlan:
    return cut(*_sizes(manifest, split), batch_size)


def cut(
    shards: tuple[int, ...], records: tuple[int, ...], batch_size: int, sizes: Sizes = ANY
) -> BatchPlan:
    """The plan for shards of these numbers that hold so many records each."""
    starts = [0]
    for count in records:
        starts.append(starts[-1] + sizes.batches(count, batch_size))
    places = {shard: place for place, shard in enumerate(shards)}
    return BatchPlan(shards, records, batch_size, tuple(starts), places, sizes.whole)


def _sizes(manifest: Manifest, split: Split) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shards = manifest.numbers(split)
    return shards, tuple(manifest.shards[number].records for number in shards)
