"""Evaluation through worker 0: one round at a time, a unit for each shard of the split."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Literal

from crowdgrad.domain.data import Manifest, Split
from crowdgrad.domain.work import MAX_BATCHES, Unit, UnitId, Update, Version, VolunteerId
from crowdgrad.numerics.vectors import Vector, as_bytes
from crowdgrad.planner.batches import EpochPlans
from crowdgrad.planner.leases import LeaseBook
from crowdgrad.planner.ranges import Ranges

EvaluationKind = Literal["validate", "test"]
FIRST_ID = 1 << 40
IDS_PER_ROUND = 1 << 20
SPLIT: dict[EvaluationKind, Split] = {"validate": "validation", "test": "test"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What a round found, as means over the split."""

    kind: EvaluationKind
    version: Version
    epoch: float
    at_s: float
    """Seconds since training began."""
    loss: float
    metrics: dict[str, float]
    train_loss: float | None = None
    """The smoothed training loss at that time."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and all(map(math.isfinite, self.metrics.values()))

    def better_than(self, other: Scores | None) -> bool:
        """By the first metric (larger is better); without one by the loss (smaller is better).

        What is not finite is never better.
        """
        if other is None or not self.finite:
            return self.finite
        if self.metrics:
            name = next(iter(self.metrics))
            return (self.metrics[name], -self.loss) > (other.metrics[name], -other.loss)
        return self.loss < other.loss


@dataclass(slots=True)
class Round:
    kind: EvaluationKind
    vector: Vector
    version: Version
    epoch: float
    book: LeaseBook
    samples: int = 0
    loss_sum: float = 0.0
    metric_sums: dict[str, float] = field(default_factory=dict)

    @property
    def payload(self) -> memoryview:
        return as_bytes(self.vector)

    def add(self, update: Update) -> None:
        self.samples += update.samples
        self.loss_sum += update.loss * update.samples
        for name, value in update.metrics.items():
            self.metric_sums[name] = self.metric_sums.get(name, 0.0) + value * update.samples


class Evaluation:
    def __init__(self, manifest: Manifest, *, batch_size: int, metrics: tuple[str, ...]) -> None:
        self._manifest = manifest
        self._batch_size = batch_size
        self._metrics = metrics
        self._numbers = itertools.count()
        self.round: Round | None = None

    def has(self, kind: EvaluationKind) -> bool:
        return bool(self._manifest.numbers(SPLIT[kind]))

    def begin(
        self, kind: EvaluationKind, vector: Vector, version: Version, epoch: float, lease_s: float
    ) -> None:
        """`vector` is the round's own from now on."""
        assert self.round is None, "one round at a time"
        shards = self._manifest.numbers(SPLIT[kind])
        records = tuple(self._manifest.shards[number].records for number in shards)
        plans = EpochPlans(shards, records, lambda epoch: self._batch_size)
        book = LeaseBook(
            Ranges(plans, epochs=1, shard_order=lambda epoch: shards),
            kind=kind,
            lease_s=lease_s,
            first_id=FIRST_ID + next(self._numbers) * IDS_PER_ROUND,
        )
        self.round = Round(kind, vector, version, epoch, book)

    def lease(self, now: float, worker: VolunteerId) -> Unit | None:
        if self.round is None:
            return None
        return self.round.book.lease(now, worker, self.round.version, batches=MAX_BATCHES)[0]

    def finish(self, update: Update, worker: VolunteerId) -> str:
        """`accepted`, or why the result cannot be used."""
        if self.round is None:
            return "already_done"
        unit, refusal = self.round.book.finish(
            update.unit, worker, update.base, self.round.version.incarnation
        )
        if unit is None:
            return str(refusal)
        self.round.add(update)
        return "accepted"

    def take_scores(self, at_s: float, train_loss: float | None) -> tuple[Scores, Vector] | None:
        """The finished round's scores and the parameters it looked at; None while it goes on."""
        done = self.round
        if done is None or not done.book.finished:
            return None
        self.round = None
        count = max(done.samples, 1)
        metrics = {name: done.metric_sums.get(name, math.nan) / count for name in self._metrics}
        scores = Scores(
            kind=done.kind,
            version=done.version,
            epoch=done.epoch,
            at_s=at_s,
            loss=done.loss_sum / count,
            metrics=metrics,
            train_loss=train_loss,
        )
        return scores, done.vector


def is_evaluation(unit: UnitId) -> bool:
    return unit >= FIRST_ID
