"""What a host tells whoever watches: terminal, control panel, script. One type for all.

How it is taken is in `crowdgrad/host/telling/taking.py`. A crowd would make it large, ten times a
second: it names as many members as people can look at, and adds up the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec

from crowdgrad.domain.job import JobState
from crowdgrad.domain.program import Better
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.members.departures import Departure
from crowdgrad.host.telling.swarm_status import SpreadSummary
from crowdgrad.planner.label_noise import LabelNoise

SHARES = ("accuracy", "top", "precision", "recall", "share", "rate", "f1")
"""Metrics with such a word in their name are parts of a whole, read in per cent."""


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
    cores: int = 0
    """Of its machine, as it says; 0: it was not written down."""
    memory_mb: int = 0
    engine: str = ""
    """What it computes with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """The members that a status does not name, added up."""

    members: int = 0
    connected: int = 0
    units: int = 0
    samples: int = 0
    share: float = 0.0
    """Of all accepted samples, 0 to 1."""
    credit: float = 0.0


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
    """All up to a hundred; of more, who is here before who has gone, and the busiest of them."""
    others: Others = field(default_factory=Others)
    """Who is not in `members`."""
    resumed: int = 0
    """How often a host was started again for this run."""
    rate_factor: float = 1.0
    """What its owner has multiplied the recipe's learning rate by while it ran."""
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
    train_records: int = 0
    """How many there are to train on now."""
    growing: bool = False
    """Whether data may be added while it is trained on."""
    growths: int = 0
    """How often that has happened."""
    label_noise: LabelNoise | None = None
    """What looks at single training records say of their labels; None where nobody looks."""
    spreading: SpreadSummary | None = None
    """How the data reaches the members; None where the host alone sends it."""

    @property
    def watched(self) -> str:
        """What people look at: the first metric, or the loss."""
        return self.metric or "loss"

    @property
    def took_part(self) -> int:
        """How many members there are and were."""
        return len(self.members) + self.others.members

    @property
    def here(self) -> int:
        """How many are connected."""
        return sum(member.connected for member in self.members) + self.others.connected


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
    """Numbers that are not finite become null."""
    return msgspec.json.encode(status).decode()


def finite(value: object) -> object:
    """JSON has no NaN: what is not a finite number becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value
