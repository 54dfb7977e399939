"""A status in Prometheus' text format (0.0.4), for `GET /metrics`.

Every metric is a row of one of two tables. Names of
volunteers are strangers' words: escaped, and only of the busiest, so that a crowd that comes and
goes cannot fill anybody's database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from crowdgrad.host.telling.status import CheckpointStatus, MemberStatus, Point, Status
from crowdgrad.host.telling.swarm_status import SpreadSummary
from crowdgrad.net.exposition import Labels, Sample, family

PREFIX = "crowdgrad_"
MAX_MEMBERS = 100
"""Volunteers with numbers of their own: those who gave the most, of those the status names."""
STALENESS_BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Callable[[Status], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class MemberMetric:
    name: str
    kind: Literal["counter", "gauge"]
    help: str
    value: Callable[[MemberStatus], float]


def _one(value: Callable[[Status], float | None]) -> Callable[[Status], Iterable[Sample]]:
    def samples(status: Status) -> Iterable[Sample]:
        found = value(status)
        return [] if found is None else [("", (), found)]

    return samples


def _kept(
    value: Callable[[CheckpointStatus], float | None],
) -> Callable[[Status], Iterable[Sample]]:
    return _one(lambda status: value(status.checkpoint) if status.checkpoint else None)


def _spread(value: Callable[[SpreadSummary], float]) -> Callable[[Status], Iterable[Sample]]:
    return _one(lambda status: value(status.spreading) if status.spreading else None)


def _by(
    label: str, counts: Callable[[Status], dict[str, int]]
) -> Callable[[Status], Iterable[Sample]]:
    return lambda status: [("", ((label, why),), n) for why, n in sorted(counts(status).items())]


def _times(status: Status) -> Iterable[Sample]:
    times = status.times
    for kind, seconds in (
        ("compute", times.compute_s),
        ("exchange", times.exchange_s),
        ("wait", times.wait_s),
    ):
        yield "", (("kind", kind),), seconds


def _scores(status: Status) -> Iterable[Sample]:
    for split, found in (
        ("validation", status.validation),
        ("best", status.best),
        ("test", status.test),
    ):
        for name, value in _values(found):
            yield "", (("split", split), ("metric", name)), value


def _values(found: Point | None) -> Iterable[tuple[str, float]]:
    return [] if found is None else [("loss", found.loss), *found.metrics.items()]


def _staleness(status: Status) -> Iterable[Sample]:
    count = sum(bucket.updates for bucket in status.staleness)
    for bound in STALENESS_BOUNDS:  # the ends of the status' buckets: none is cut in two
        below = sum(bucket.updates for bucket in status.staleness if bucket.most <= bound)
        yield "_bucket", (("le", str(bound)),), below
    yield "_bucket", (("le", "+Inf"),), count
    yield "_sum", (), round(status.mean_staleness * count)
    yield "_count", (), count


METRICS: tuple[Metric, ...] = (
    Metric("info", "gauge", "Which job this is.",
           lambda s: [("", (("job", s.job), ("title", s.title), ("recipe", s.recipe)), 1)]),
    Metric("state", "gauge", "What it is doing: 1 for the state and phase that it is in.",
           lambda s: [("", (("state", s.state), ("phase", s.phase)), 1)]),
    Metric("elapsed_seconds", "gauge", "Seconds of training, pauses not counted.",
           _one(lambda s: s.elapsed_s)),
    Metric("progress_ratio", "gauge", "How far training has come, 0 to 1.",
           _one(lambda s: s.progress)),
    Metric("epochs_done", "gauge", "Epochs, in parts.", _one(lambda s: s.epochs_done)),
    Metric("paused", "gauge", "1 while its host has paused it.", _one(lambda s: s.paused)),
    Metric("updates_total", "counter", "Accepted updates.", _one(lambda s: s.updates)),
    Metric("samples_total", "counter", "Samples in accepted updates.", _one(lambda s: s.samples)),
    Metric("samples_per_second", "gauge", "Over the last five seconds.",
           _one(lambda s: s.samples_per_s)),
    Metric("refused_total", "counter", "Refused updates.", _by("reason",
           lambda s: s.refused_by_reason)),
    Metric("ignored_total", "counter", "Updates that came too late, by nobody's fault.",
           _by("reason", lambda s: s.ignored_by_reason)),
    Metric("set_aside_units", "gauge", "Units given up after failing on three volunteers.",
           _one(lambda s: s.set_aside)),
    Metric("setbacks_total", "counter", "Returns to the last good checkpoint.",
           _one(lambda s: s.setbacks)),
    Metric("restarts_total", "counter", "How often a host was started again for this run.",
           _one(lambda s: s.resumed)),
    Metric("train_records", "gauge", "How many records there are to train on now.",
           _one(lambda s: s.train_records)),
    Metric("growths_total", "counter", "How often data was added while it was trained on.",
           _one(lambda s: s.growths)),
    Metric("learning_rate", "gauge", "The host's, before staleness.",
           _one(lambda s: s.learning_rate)),
    Metric("train_loss", "gauge", "Smoothed over updates.", _one(lambda s: s.train_loss)),
    Metric("score", "gauge", "What evaluations found.", _scores),
    Metric("label_noise_ratio", "gauge", "Training records whose loss stays high, 0 to 1.",
           _one(lambda s: s.label_noise.share if s.label_noise else None)),
    Metric("staleness", "histogram", "Changes between an update's start and its arrival.",
           _staleness),
    Metric("received_bytes_total", "counter", "From all volunteers.",
           _one(lambda s: s.bytes_received)),
    Metric("sent_bytes_total", "counter", "To all volunteers.", _one(lambda s: s.bytes_sent)),
    Metric("data_progress_ratio", "gauge",
           "How much the members have of the data they want, 0 to 1.",
           _spread(lambda d: d.progress)),
    Metric("data_host_copies", "gauge", "How often the host has sent the data that is wanted.",
           _spread(lambda d: d.host_copies)),
    Metric("data_members", "gauge", "Who takes part in passing the data on.",
           _spread(lambda d: d.members)),
    Metric("data_complete_members", "gauge", "Who of them has all the data it wants.",
           _spread(lambda d: d.complete)),
    Metric("time_seconds_total", "counter", "Where the volunteers' time went.", _times),
    Metric("volunteers", "gauge", "Who is here, the host's own worker included.",
           _one(lambda s: s.here)),
    Metric("arrivals_total", "counter", "Joinings, of those who come back too.",
           _one(lambda s: s.arrivals)),
    Metric("departures_total", "counter", "Who went, by the kind of reason.",
           _by("kind", lambda s: s.departures_by_kind)),
    Metric("checkpoints_total", "counter", "Checkpoints written since this host was started.",
           _kept(lambda c: c.written)),
    Metric("checkpoint_age_seconds", "gauge", "Age of the last checkpoint on the disk.",
           _kept(lambda c: c.age_s)),
    Metric("checkpoint_bytes", "gauge", "Size of the last checkpoint.",
           _kept(lambda c: c.bytes)),
    Metric("checkpoint_trouble", "gauge", "1 while checkpoints cannot be written.",
           _kept(lambda c: bool(c.trouble))),
)  # fmt: skip

MEMBER_METRICS: tuple[MemberMetric, ...] = (
    MemberMetric("volunteer_connected", "gauge", "1 while it is here.", lambda m: m.connected),
    MemberMetric("volunteer_updates_total", "counter", "Accepted updates.", lambda m: m.units),
    MemberMetric("volunteer_samples_total", "counter", "Samples in them.", lambda m: m.samples),
    MemberMetric("volunteer_samples_per_second", "gauge", "Over the last five seconds.",
                 lambda m: m.samples_per_s),
    MemberMetric("volunteer_refused_total", "counter", "Refused updates.", lambda m: m.refused),
    MemberMetric("volunteer_ignored_total", "counter", "Updates that came too late.",
                 lambda m: m.ignored),
    MemberMetric("volunteer_mean_staleness", "gauge", "Of its accepted updates.",
                 lambda m: m.mean_staleness),
    MemberMetric("volunteer_received_bytes_total", "counter", "From it.",
                 lambda m: m.bytes_received),
    MemberMetric("volunteer_sent_bytes_total", "counter", "To it.", lambda m: m.bytes_sent),
    MemberMetric("volunteer_compute_seconds_total", "counter", "Computing, by its own account.",
                 lambda m: m.times.compute_s),
    MemberMetric("volunteer_exchange_seconds_total", "counter", "All else while it had a unit.",
                 lambda m: m.times.exchange_s),
    MemberMetric("volunteer_wait_seconds_total", "counter", "Waiting for a unit.",
                 lambda m: m.times.wait_s),
)  # fmt: skip


def render(status: Status) -> str:
    lines: list[str] = []
    for metric in METRICS:
        lines += family(PREFIX + metric.name, metric.kind, metric.help, metric.samples(status))
    busiest = sorted(status.members, key=lambda m: (-m.samples, not m.connected, m.position))
    members = [(_member_labels(member), member) for member in busiest[:MAX_MEMBERS]]
    for each in MEMBER_METRICS:
        found = (("", labels, each.value(member)) for labels, member in members)
        lines += family(PREFIX + each.name, each.kind, each.help, found)
    return "\n".join(lines) + "\n"


def _member_labels(member: MemberStatus) -> Labels:
    return (("position", str(member.position)), ("name", member.name))
