"""Versions, units and updates: what is leased, computed and returned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NewType

UnitId = NewType("UnitId", int)
VolunteerId = NewType("VolunteerId", str)
"""The first 16 hexadecimal digits of the sha256 of a volunteer's Ed25519 public key."""
UnitKind = Literal["train", "validate", "test"]

MAX_BATCHES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Version:
    """Which parameters: `incarnation` starts of the host, `count` changes by the rule."""

    incarnation: int
    count: int

    def __post_init__(self) -> None:
        if self.incarnation < 0 or self.count < 0:
            raise ValueError(f"a version counts from zero, not {self.incarnation}.{self.count}")

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.count}"

    def next(self) -> Version:
        return Version(incarnation=self.incarnation, count=self.count + 1)

    def staleness(self, base: Version) -> int:
        """How many changes happened since `base` (of the same incarnation)."""
        assert base.incarnation == self.incarnation, (base, self)
        return self.count - base.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A range of batches of one epoch, all of one shard."""

    id: UnitId
    kind: UnitKind
    epoch: int
    shard: int
    first_batch: int
    """Numbered through the whole split, so that (epoch, batch) names a batch's noise."""
    batches: int

    def __post_init__(self) -> None:
        if min(self.id, self.epoch, self.shard, self.first_batch) < 0:
            raise ValueError(f"unit {self.id}: numbers count from zero")
        if not 0 < self.batches <= MAX_BATCHES:
            raise ValueError(f"unit {self.id}: {self.batches} batches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a volunteer returns for a unit; the flat vector travels as the frame's payload."""

    unit: UnitId
    base: Version
    samples: int
    loss: float
    """Mean over the unit's samples."""
    metrics: dict[str, float]
    """Means over the samples, for `validate` and `test` units."""
    compute_s: float

    def __post_init__(self) -> None:
        if self.samples <= 0 or not 0 <= self.compute_s < math.inf:
            raise ValueError(f"update of unit {self.unit}: {self.samples} samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSteps:
    """What happens inside a unit: batch after batch, the local replica stepping in between.

    w ← w − learning_rate · g for each batch; the update is the sum of the gradients. With one batch
    a unit this is plain asynchronous SGD.
    """

    batch_size: int
    learning_rate: float
    batches_per_unit: int = 1
    overlap: int = 1
    """Units a volunteer holds besides the one it computes: 0 is lock-step."""

    def __post_init__(self) -> None:
        if not 0 < self.batch_size <= 1 << 24:
            raise ValueError(f"batch size {self.batch_size} is not between 1 and {1 << 24}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning rate {self.learning_rate} is not a positive number")
        if not 0 < self.batches_per_unit <= MAX_BATCHES:
            raise ValueError(f"{self.batches_per_unit} batches per unit is not between 1 and 65536")
        if not 0 <= self.overlap <= 8:
            raise ValueError(f"overlap {self.overlap} is not between 0 and 8")
