"""Which records make up which batch.

A shard of S records gives ⌈S / B⌉ batches whose sizes differ by at most one, so no batch is tiny.
Batches are numbered through a split, shard after shard: the number names the batch for ever; in
which order they are trained on is for the leases to decide. Where the batch grows with the epochs,
every epoch has the plan of its own batch size.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass

from crowdgrad.domain.data import Manifest, Split
from crowdgrad.domain.work import LocalSteps

PLANS_KEPT = 64
"""Batch sizes whose plans are remembered; more than any sensible growth has at a time."""


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
        return at * self.records[place] // count, (at + 1) * self.records[place] // count

    def samples(self, first_batch: int, batches: int) -> int:
        """How many records a range of batches of one shard holds."""
        return self.rows(first_batch + batches - 1)[1] - self.rows(first_batch)[0]

    def _place(self, batch: int) -> int:
        if not 0 <= batch < self.total:
            raise ValueError(f"there is no batch {batch}: the split has {self.total}")
        return bisect.bisect_right(self.starts, batch) - 1


class EpochPlans:
    """The plan of every epoch."""

    def __init__(
        self,
        shards: tuple[int, ...],
        records: tuple[int, ...],
        batch_size_at: Callable[[int], int],
    ) -> None:
        """`records`: how many each shard holds. `batch_size_at(epoch)`: always the same answer."""
        self._shards = shards
        self._records = records
        self._batch_size_at = batch_size_at
        self._plans: dict[int, BatchPlan] = {}
        self.records = sum(records)
        """Of the whole split."""

    @classmethod
    def of(cls, manifest: Manifest, split: Split, local: LocalSteps) -> EpochPlans:
        return cls(*_sizes(manifest, split), local.batch_size_at)

    def at(self, epoch: int) -> BatchPlan:
        size = self._batch_size_at(epoch)
        found = self._plans.get(size)
        if found is None:
            if len(self._plans) >= PLANS_KEPT:
                del self._plans[next(iter(self._plans))]
            found = self._plans[size] = cut(self._shards, self._records, size)
        return found


def plan(manifest: Manifest, split: Split, batch_size: int) -> BatchPlan:
    return cut(*_sizes(manifest, split), batch_size)


def cut(shards: tuple[int, ...], records: tuple[int, ...], batch_size: int) -> BatchPlan:
    """The plan for shards of these numbers that hold so many records each."""
    starts = [0]
    for count in records:
        starts.append(starts[-1] + -(-count // batch_size))
    places = {shard: place for place, shard in enumerate(shards)}
    return BatchPlan(shards, records, batch_size, tuple(starts), places)


def _sizes(manifest: Manifest, split: Split) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shards = manifest.numbers(split)
    return shards, tuple(manifest.shards[number].records for number in shards)
