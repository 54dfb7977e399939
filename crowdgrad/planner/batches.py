"""Which records make up which batch.

A shard of S records gives ⌈S / B⌉ batches whose sizes differ by at most one, so no batch is tiny.
Batches are numbered through a split, shard after shard: the number names the batch for ever; in
which order they are trained on is for the leases to decide.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from crowdgrad.domain.data import Manifest, Split


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


def plan(manifest: Manifest, split: Split, batch_size: int) -> BatchPlan:
    shards = manifest.numbers(split)
    return cut(shards, tuple(manifest.shards[number].records for number in shards), batch_size)


def cut(shards: tuple[int, ...], records: tuple[int, ...], batch_size: int) -> BatchPlan:
    """The plan for shards of these numbers that hold so many records each."""
    starts = [0]
    for count in records:
        starts.append(starts[-1] + -(-count // batch_size))
    places = {shard: place for place, shard in enumerate(shards)}
    return BatchPlan(shards, records, batch_size, tuple(starts), places)
