"""Where every record goes: which split, which place in it, which shard. All of it pure.

A record's place is a permutation's answer to its number (`numerics.permutation`), so whoever has
some records can work out where they go without knowing the others, and the answer does not depend
on how the source was cut into parts or who reads it.

    number among those to be divided ─permuted→ split
    number within its split          ─permuted→ place ─→ shard, row
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from crowdgrad.data.dataset import SPLITS
from crowdgrad.data.preparing.columns import Array
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.sharding import ranges
from crowdgrad.domain.data import Split
from crowdgrad.errors import DataMalformed
from crowdgrad.numerics.permutation import permuted

SHARD_BYTES = 1 << 20
SHARD_RECORDS = 1024
"""A shard has at least so many records, so that a batch finds room in it."""
MAX_SHARD_BYTES = 64 << 20
BUCKET_BYTES = 8 << 20
"""Shards are written together, so many bytes at a time."""
SMALL_BATCH = 256
"""A rest smaller than half of this joins the shard before it."""
_DIVIDE, _PLACE, _CLASS = 1, 2, 3
Numbers = NDArray[np.uint8]


class Share(msgspec.Struct, frozen=True):
    """How some records are divided: the first to the test, the next to validation."""

    total: int
    test: int
    validation: int


class Division(msgspec.Struct, frozen=True):
    """Which records go to which split."""

    seed: int
    in_order: bool
    """The end of a text is held out; nothing in between."""
    shares: tuple[Share, ...]
    """Of all records to be divided; where classes are to be kept alike, of each class."""
    by_class: bool = False

    def split_of(self, numbers: Array, classes: Array | None = None) -> Numbers:
        """`numbers`: among all to be divided, or among those of the same class."""
        out = np.zeros(len(numbers), np.uint8)
        for number, share in enumerate(self.shares):
            mine = slice(None) if not self.by_class else np.flatnonzero(classes == number)
            chosen = numbers[mine]
            if not len(chosen):
                continue
            if self.in_order:
                left = share.total - 1 - chosen  # test comes last
            else:
                left = permuted(chosen, share.total, self.seed, _DIVIDE, _CLASS, number)
            out[mine] = np.where(
                left < share.test,
                SPLITS.index("test"),
                np.where(
                    left < share.test + share.validation,
                    SPLITS.index("validation"),
                    SPLITS.index("train"),
                ),
            )
        return out


def divide(
    options: Options,
    given: Mapping[Split, int],
    total: int,
    classes: Sequence[int] | None,
    *,
    in_order: bool,
) -> Division:
    """`given`: records whose split the source says. `total`: to be divided; `classes`: of each.

    What a source brings of its own is not taken from anything. Raises DataMalformed.
    """
    wanted = {
        split: 0 if given.get(split) else options.kept_out(split, total)
        for split in ("validation", "test")
    }
    left = total - sum(wanted.values())
    if left < 1 and not given.get("train"):
        raise DataMalformed(
            f"of {total:,} records, {wanted['validation']:,} for validation and "
            f"{wanted['test']:,} for the test leave none to train on.",
            advice="Ask for fewer with --validation and --test.",
        )
    if not classes:
        share = Share(total, wanted["test"], wanted["validation"])
        return Division(options.seed, in_order, (share,))
    shares = tuple(
        Share(count, _part(wanted["test"], count, total), _part(wanted["validation"], count, total))
        for count in classes
    )
    return Division(options.seed, False, shares, True)


def _part(wanted: int, count: int, total: int) -> int:
    return round(wanted * count / total) if total else 0


class Bucket(msgspec.Struct, frozen=True):
    """Shards of one split that are written together."""

    split: int
    shards: tuple[tuple[int, int], ...]
    """Where each begins and ends, in places of the split."""

    @property
    def first(self) -> int:
        return self.shards[0][0]

    @property
    def stop(self) -> int:
        return self.shards[-1][1]


def buckets(records: Sequence[int], record_bytes: int, shard_records: int | None) -> list[Bucket]:
    """`records`: of each split."""
    per_shard = shard_records or max(SHARD_RECORDS, SHARD_BYTES // record_bytes)
    per_shard = max(1, min(per_shard, MAX_SHARD_BYTES // record_bytes))
    each = max(1, BUCKET_BYTES // (per_shard * record_bytes))
    found = []
    for split, count in enumerate(records):
        if not count:
            continue
        cuts = ranges(count, per_shard=per_shard, batch_size=min(per_shard, SMALL_BATCH))
        found += [Bucket(split, tuple(cuts[at : at + each])) for at in range(0, len(cuts), each)]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Records of one part in the order of where they go."""

    order: Array
    places: Array
    """In their split, in that order."""
    starts: Array
    """Where the records of each bucket begin; at the end, how many there are."""


def place(
    splits: Numbers, before: Sequence[int], totals: Sequence[int], cut: Sequence[Bucket], seed: int
) -> Placed:
    """`splits`: of each record. `before`: records of each split in earlier parts."""
    places = np.zeros(len(splits), np.int64)
    for split, (start, total) in enumerate(zip(before, totals, strict=True)):
        mine = np.flatnonzero(splits == split)
        if len(mine):
            places[mine] = permuted(start + np.arange(len(mine)), total, seed, _PLACE, split)
    # One number for split and place: those of a bucket come together, in order.
    ahead = np.concatenate([[0], np.cumsum(totals)[:-1]])
    keys = ahead[splits] + places
    order = np.argsort(keys)
    firsts = [int(ahead[one.split]) + one.first for one in cut]
    starts = np.searchsorted(keys[order], [*firsts, sum(totals)])
    return Placed(order=order, places=places[order], starts=starts)
