"""What a host tells whoever watches: terminal, control panel, script. One type for all."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from crowdgrad.domain.job import JobState
from crowdgrad.domain.program import Better
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.ledger import Contribution
from crowdgrad.host.training import Training

SHARES = ("accuracy", "top", "precision", "recall", "share", "rate", "f1")
"""Metrics with such a word in their name are parts of a whole, read in per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    position: int
    id: str
    name: str
    connected: bool
    state: str
    units: int
    samples: int
    share: float
    """Of all accepted samples, 0 to 1."""
    credit: float
    samples_per_s: float
    mean_staleness: float
    refused: int
    ignored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One evaluation."""

    at_s: float
    epoch: float
    loss: float
    metrics: dict[str, float]
    train_loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    job: str
    title: str
    recipe: str
    phase: str
    state: JobState
    reason: str
    elapsed_s: float
    progress: float
    """How far training has come, 0 to 1, by epochs or by time, whichever is nearer its end."""
    epochs_done: float
    epochs: int
    version: str
    updates: int
    samples: int
    refused: int
    ignored: int
    """Updates that came too late to be used, by nobody's fault."""
    set_aside: int
    setbacks: int
    """How often training went back to its last good checkpoint."""
    notice: str
    """What people should know about how it goes; mostly empty."""
    learning_rate: float
    """The host's rate now, after the schedule and before staleness."""
    backup_bytes: int
    """Memory for what units in flight started from (delay compensation)."""
    samples_per_s: float
    updates_per_s: float
    mean_staleness: float
    max_staleness: int
    train_loss: float | None
    validation: Point | None
    best: Point | None
    test: Point | None
    metric: str | None
    """The name of the first metric."""
    better: Better
    """Which way what is watched improves: the first metric, or the loss where there is none."""
    members: list[MemberStatus]

    @property
    def watched(self) -> str:
        """What people look at: the first metric, or the loss."""
        return self.metric or "loss"


def take_status(training: Training, now: float) -> Status:
    ledger, ending = training.ledger, training.course.ending
    updates = sum(training.state.staleness.values())
    state: JobState = "waiting" if training.course.started_at is None else "running"
    return Status(
        job=training.job.id,
        title=training.job.title,
        recipe=training.job.recipe,
        phase=training.course.phase,
        state=ending.state if ending and training.course.phase == "over" else state,
        reason=ending.reason if ending else "",
        elapsed_s=training.course.elapsed_s(now),
        progress=_progress(training, now),
        epochs_done=training.book.epochs_done,
        epochs=training.job.stop.epochs,
        version=str(training.parameters.version),
        updates=ledger.total_updates,
        samples=ledger.total_samples,
        refused=ledger.total_refused,
        ignored=ledger.total_ignored,
        setbacks=training.state.setbacks,
        notice=" ".join(filter(None, (training.state.notice, training.state.warning))),
        learning_rate=training.state.rate,
        backup_bytes=training.parameters.backup_bytes,
        set_aside=len(training.book.set_aside),
        samples_per_s=ledger.samples.rate(now),
        updates_per_s=ledger.updates.rate(now),
        mean_staleness=_mean(sum(s * n for s, n in training.state.staleness.items()), updates),
        max_staleness=max(training.state.staleness, default=0),
        train_loss=training.state.train_loss,
        validation=point(training.course.history[-1] if training.course.history else None),
        best=point(training.course.best),
        test=point(training.course.tested),
        metric=training.spec.metrics[0].name if training.spec.metrics else None,
        better=training.spec.metrics[0].better if training.spec.metrics else "lower",
        members=[_member(a, ledger.total_samples, now) for a in ledger.everyone()],
    )


def _progress(training: Training, now: float) -> float:
    if training.course.phase != "training":
        return 1.0
    rule = training.job.stop
    by_time = training.course.elapsed_s(now) / (60 * rule.minutes) if rule.minutes else 0.0
    return min(1.0, max(training.book.epochs_done / rule.epochs, by_time))


def point(scores: Scores | None) -> Point | None:
    if scores is None:
        return None
    return Point(
        at_s=scores.at_s,
        epoch=scores.epoch,
        loss=scores.loss,
        metrics=dict(scores.metrics),
        train_loss=scores.train_loss,
    )


def _member(account: Contribution, total: int, now: float) -> MemberStatus:
    return MemberStatus(
        position=account.position,
        id=account.volunteer.id,
        name=account.volunteer.name,
        connected=account.connected,
        state=account.state,
        units=account.units,
        samples=account.samples,
        share=_mean(account.samples, total),
        credit=account.credit,
        samples_per_s=account.speed.rate(now) if account.connected else 0.0,
        mean_staleness=_mean(account.staleness_sum, account.units),
        refused=sum(account.refused.values()),
        ignored=account.ignored,
    )


def _mean(total: float, count: float) -> float:
    return total / count if count else 0.0


def score(found: Point) -> float:
    """The number that is watched."""
    return next(iter(found.metrics.values())) if found.metrics else found.loss


def spell(status: Status, found: Point | None) -> str:
    """That number for people: shares of a whole in per cent, all else as it is."""
    if found is None:
        return "–"
    value = score(found)
    if status.metric and _is_share(status.metric, status.better) and 0 <= value <= 1:
        return f"{100 * value:.2f} %"
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:.4g}"


def _is_share(metric: str, better: Better) -> bool:
    return better == "higher" and any(word in metric.lower() for word in SHARES)


def as_json(status: Status) -> str:
    return json.dumps(finite(asdict(status)))


def finite(value: object) -> object:
    """JSON has no NaN: what is not a finite number becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value
