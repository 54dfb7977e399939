"""What a host tells whoever watches: terminal, control panel, script. One type for all."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from crowdgrad.domain.job import JobState
from crowdgrad.domain.program import Better
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.keeping.keeper import Health
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.members.departures import Departure
from crowdgrad.host.training import Training

SHARES = ("accuracy", "top", "precision", "recall", "share", "rate", "f1")
"""Metrics with such a word in their name are parts of a whole, read in per cent."""
SHOWN_DEPARTURES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """Where time goes, in seconds while somebody was here and as parts of their sum, 0 to 1.

    Computing, by the volunteer's own account but never more than the host waited; exchange: all
    else while it had a unit; waiting for one.
    """

    compute_s: float = 0.0
    exchange_s: float = 0.0
    wait_s: float = 0.0
    compute_share: float = 0.0
    exchange_share: float = 0.0
    wait_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StalenessBucket:
    """How many updates had a staleness from `least` to `most`."""

    least: int
    most: int
    updates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatus:
    """The last checkpoint on the disk."""

    version: str | None
    """What it holds; None where none is written yet."""
    age_s: float | None
    bytes: int
    written: int
    """How many since this host was started."""
    trouble: str
    """Why none can be written now; mostly empty."""


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
    max_staleness: int = 0
    refused_by_reason: dict[str, int] = field(default_factory=dict)
    ignored_by_reason: dict[str, int] = field(default_factory=dict)
    bytes_received: int = 0
    """From it, frames and all."""
    bytes_sent: int = 0
    times: TimeSplit = field(default_factory=TimeSplit)


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
    paused: bool
    """By its host: nobody is given a unit."""
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
    resumed: int = 0
    """How often a host was started again for this run."""
    checkpoint: CheckpointStatus | None = None
    """None where no checkpoints are written."""
    staleness: list[StalenessBucket] = field(default_factory=list)
    """0, 1, 2, 3-4, 5-8, … up to the largest there was."""
    refused_by_reason: dict[str, int] = field(default_factory=dict)
    ignored_by_reason: dict[str, int] = field(default_factory=dict)
    bytes_received: int = 0
    """From all volunteers."""
    bytes_sent: int = 0
    bytes_received_per_s: float = 0.0
    bytes_sent_per_s: float = 0.0
    times: TimeSplit = field(default_factory=TimeSplit)
    """Of all volunteers together."""
    arrivals: int = 0
    """Every joining counts, of one who comes back too."""
    departures_by_kind: dict[str, int] = field(default_factory=dict)
    departures: list[Departure] = field(default_factory=list)
    """The last twenty, oldest first."""

    @property
    def watched(self) -> str:
        """What people look at: the first metric, or the loss."""
        return self.metric or "loss"


def take_status(
    training: Training, now: float, checkpoint: CheckpointStatus | None = None
) -> Status:
    ledger, ending = training.ledger, training.course.ending
    updates = sum(training.state.staleness.values())
    state: JobState = "waiting" if training.course.started_at is None else "running"
    members = [_member(a, ledger.total_samples, now) for a in ledger.everyone()]
    received, sent = ledger.bytes_received, ledger.bytes_sent
    return Status(
        job=training.job.id,
        title=training.job.title,
        recipe=training.job.recipe,
        phase=training.course.phase,
        state=ending.state if ending and training.course.phase == "over" else state,
        reason=ending.reason if ending else "",
        paused=training.course.paused,
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
        members=members,
        resumed=training.state.starts - 1,
        checkpoint=checkpoint,
        staleness=buckets(training.state.staleness),
        refused_by_reason=_counts(ledger.refused),
        ignored_by_reason=_counts(ledger.ignored),
        bytes_received=received,
        bytes_sent=sent,
        bytes_received_per_s=ledger.received.rate(now, received),
        bytes_sent_per_s=ledger.sent.rate(now, sent),
        times=_together(member.times for member in members),
        arrivals=ledger.departures.arrivals,
        departures_by_kind=_counts(ledger.departures.kinds),
        departures=ledger.departures.last(SHOWN_DEPARTURES),
    )


def checkpoint_status(health: Health, now: float) -> CheckpointStatus:
    return CheckpointStatus(
        version=str(health.version) if health.version is not None else None,
        age_s=max(0.0, now - health.at) if health.at is not None else None,
        bytes=health.bytes,
        written=health.written,
        trouble=health.trouble,
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
        max_staleness=account.staleness_max,
        refused_by_reason=_counts(account.refused),
        ignored_by_reason=_counts(account.ignored_for),
        bytes_received=account.bytes_received,
        bytes_sent=account.bytes_sent,
        times=_split(
            account.times.compute_s, account.times.exchange_s, account.times.waited_s(now)
        ),
    )


def _split(compute_s: float, exchange_s: float, wait_s: float) -> TimeSplit:
    total = compute_s + exchange_s + wait_s
    return TimeSplit(
        compute_s=compute_s,
        exchange_s=exchange_s,
        wait_s=wait_s,
        compute_share=_mean(compute_s, total),
        exchange_share=_mean(exchange_s, total),
        wait_share=_mean(wait_s, total),
    )


def _together(splits: Iterable[TimeSplit]) -> TimeSplit:
    sums = [0.0, 0.0, 0.0]
    for split in splits:
        for place, seconds in enumerate((split.compute_s, split.exchange_s, split.wait_s)):
            sums[place] += seconds
    return _split(*sums)


def buckets(staleness: Mapping[int, int]) -> list[StalenessBucket]:
    """0, 1, 2, 3-4, 5-8, …: each twice as wide, as far as there is any."""
    found: list[StalenessBucket] = []
    least = most = 0
    while staleness and least <= max(staleness):
        updates = sum(count for value, count in staleness.items() if least <= value <= most)
        found.append(StalenessBucket(least=least, most=most, updates=updates))
        least, most = most + 1, max(1, 2 * most)
    return found


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent first."""
    if not counts:  # of most members there is nothing to count, many times a second
        return {}
    return dict(sorted(((w, n) for w, n in counts.items() if n), key=lambda pair: -pair[1]))


def _mean(total: float, count: float) -> float:
    return total / count if count else 0.0


def score(found: Point) -> float:
    """The number that is watched."""
    return next(iter(found.metrics.values())) if found.metrics else found.loss


def spell(status: Status, found: Point | None) -> str:
    """That number for people: shares of a whole in per cent, all else as it is."""
    if found is None:
        return "–"
    return spell_score(score(found), status.metric, status.better)


def spell_score(value: float, metric: str | None, better: Better) -> str:
    if metric and _is_share(metric, better) and 0 <= value <= 1:
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
