"""Evaluation through worker 0: one round at a time, a unit for each shard of the split.

A look at single training records is such a round as well (`looking.py`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Literal

from crowdgrad.domain.data import Manifest
from crowdgrad.domain.program import Better, ProgramSpec
from crowdgrad.domain.work import (
    MAX_BATCHES,
    LocalSteps,
    Unit,
    UnitId,
    Update,
    Version,
    VolunteerId,
)
from crowdgrad.numerics.vectors import Vector, as_bytes
from crowdgrad.planner.assignment import Assignment
from crowdgrad.planner.batches import EpochPlans
from crowdgrad.planner.leases import LeaseBook
from crowdgrad.planner.pieces import Pieces
from crowdgrad.planner.ranges import Ranges

EvaluationKind = Literal["validate", "test", "look"]
FIRST_ID = 1 << 40
IDS_PER_ROUND = 1 << 20
SCORED: tuple[EvaluationKind, ...] = ("validate", "test")


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
    """As people see them: a perplexity, not the mean it is the exponential of."""
    better: Better = "higher"
    """Which way the first metric improves."""
    train_loss: float | None = None
    """The smoothed training loss at that time."""

    @property
    def finite(self) -> bool:
        """Whether what decides is: the loss and the first metric. Others may have no value."""
        return math.isfinite(self.loss) and math.isfinite(self._first)

    @property
    def _first(self) -> float:
        return next(iter(self.metrics.values()), 0.0)

    def better_than(self, other: Scores | None) -> bool:
        """By the first metric, then by the loss. What is not finite is never better."""
        if other is None or not self.finite:
            return self.finite
        return self._rank() > other._rank()

    def _rank(self) -> tuple[float, float]:
        return (self._first if self.better == "higher" else -self._first), -self.loss


@dataclass(slots=True)
class Round:
    kind: EvaluationKind
    vector: Vector
    version: Version
    epoch: float
    book: LeaseBook
    first_id: int
    samples: int = 0
    loss_sum: float = 0.0
    metric_sums: dict[str, float] = field(default_factory=dict)
    metric_values: dict[str, float] = field(default_factory=dict)
    """Of a look: each record's loss, by its number."""
    compute_s: float = 0.0

    @property
    def payload(self) -> memoryview:
        return as_bytes(self.vector)

    def add(self, update: Update) -> None:
        self.samples += update.samples
        self.loss_sum += update.loss * update.samples
        self.compute_s += update.compute_s
        if self.kind == "look":
            self.metric_values |= update.metrics
            return
        for name, value in update.metrics.items():
            self.metric_sums[name] = self.metric_sums.get(name, 0.0) + value * update.samples


class Evaluation:
    def __init__(self, manifest: Manifest, *, local: LocalSteps, spec: ProgramSpec) -> None:
        self._plans = {kind: EpochPlans.of_kind(manifest, kind, local, spec) for kind in SCORED}
        self._metrics = spec.metrics
        self._numbers = itertools.count()
        self.round: Round | None = None
        self.cost_s = 0.0
        """How long worker 0 computed for the last round."""

    def has(self, kind: EvaluationKind) -> bool:
        """Whether there is anything to look at: a program of one batch size leaves rests out."""
        return self._plans[kind].at(0).total > 0

    def begin(
        self, kind: EvaluationKind, vector: Vector, version: Version, epoch: float, lease_s: float
    ) -> None:
        """`vector` is the round's own from now on."""
        plans = self._plans[kind]
        assignment = Ranges(plans, epochs=1, shard_order=lambda epoch: plans.at(epoch).shards)
        self._begin(assignment, kind, vector, version, epoch, lease_s)

    def look(
        self, pieces: Pieces, vector: Vector, version: Version, epoch: float, lease_s: float
    ) -> None:
        """Likewise, at single training records."""
        self._begin(pieces, "look", vector, version, epoch, lease_s)

    def _begin(
        self,
        assignment: Assignment,
        kind: EvaluationKind,
        vector: Vector,
        version: Version,
        epoch: float,
        lease_s: float,
    ) -> None:
        assert self.round is None, "one round at a time"
        first_id = FIRST_ID + next(self._numbers) * IDS_PER_ROUND
        book = LeaseBook(assignment, kind=kind, lease_s=lease_s, first_id=first_id)
        self.round = Round(kind, vector, version, epoch, book, first_id)

    def lease(self, now: float, worker: VolunteerId) -> Unit | None:
        if self.round is None:
            return None
        return self.round.book.lease(now, worker, self.round.version, batches=MAX_BATCHES)[0]

    def finish(self, update: Update, worker: VolunteerId) -> str:
        """`accepted`, or why the result cannot be used."""
        if self.round is None or update.unit < self.round.first_id:
            return "already_done"  # of an earlier round: an answer of ours was lost
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
        if done is None or done.kind == "look" or not done.book.finished:
            return None
        self.round, self.cost_s = None, done.compute_s
        count = max(done.samples, 1)
        metrics = {
            metric.name: metric.shown(done.metric_sums.get(metric.name, math.nan) / count)
            for metric in self._metrics
        }
        scores = Scores(
            kind=done.kind,
            version=done.version,
            epoch=done.epoch,
            at_s=at_s,
            loss=done.loss_sum / count,
            metrics=metrics,
            better=self._metrics[0].better if self._metrics else "higher",
            train_loss=train_loss,
        )
        return scores, done.vector

    def take_look(self) -> Round | None:
        """The finished look; None while it goes on, or where there is none."""
        done = self.round
        if done is None or done.kind != "look" or not done.book.finished:
            return None
        self.round = None
        return done


def is_evaluation(unit: UnitId) -> bool:
    return unit >= FIRST_ID
