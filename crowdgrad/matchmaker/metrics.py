"""The service in figures, for Prometheus: what has been counted, and what is the case right now.

What happens is told to `Metrics` as it happens (`joined`, `refused`, …). What is the case is asked
for when somebody looks: `render` is given the room's figures, and asks whoever was named with
`also`. Every metric is a row of `METRICS`; docs/operate.md explains them.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata

from crowdgrad.net import exposition
from crowdgrad.net.exposition import CONTENT_TYPE, Sample, of_process, plain, table

__all__ = ["CONTENT_TYPE", "METRICS", "Metrics"]

PREFIX = "crowdgrad_matchmaker_"
WAIT_BOUNDS_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
DIAL_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
WORK_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

Figures = Mapping[str, float]


class Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self) -> Iterable[Sample]:
        below = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            below += count
            yield "_bucket", (("le", "+Inf" if bound is None else repr(bound)),), below
        yield "_sum", (), self._sum
        yield "_count", (), below


class Metrics:
    def __init__(self) -> None:
        self._joins = 0
        self._matches = 0
        self._refusals: Counter[int] = Counter()
        self._waited = Histogram(WAIT_BOUNDS_S)
        self._passes = Histogram(WORK_BOUNDS_S)
        self._commits = Histogram(WORK_BOUNDS_S)
        self._dials: Counter[str] = Counter()
        self._dialled = Histogram(DIAL_BOUNDS_S)
        self._last_pass_s: float | None = None
        self._asked: list[Callable[[], Figures]] = [of_process]

    def joined(self) -> None:
        """A volunteer was let in."""
        self._joins += 1

    def refused(self, status: int) -> None:
        """Somebody was refused, over HTTP or a WebSocket."""
        self._refusals[status] += 1

    def matched(self, wait_s: float) -> None:
        self._matches += 1
        self._waited.add(wait_s)

    def passed(self, seconds: float) -> None:
        """A pass of the matching took that long."""
        self._last_pass_s = seconds
        self._passes.add(seconds)

    def kept(self, seconds: float) -> None:
        """So long it took until changes lasted."""
        self._commits.add(seconds)

    def dialled(self, result: str, seconds: float) -> None:
        """Somebody asked to be dialled, with this result; 0 seconds: nothing was dialled."""
        self._dials[result] += 1
        if seconds:
            self._dialled.add(seconds)

    def also(self, figures: Callable[[], Figures]) -> None:
        """Ask for these too, under names of `METRICS`, when somebody looks."""
        self._asked.append(figures)

    def render(self, figures: Figures) -> str:
        found: dict[str, float] = dict(figures)
        for ask in self._asked:
            found.update(ask())
        return exposition.render(METRICS, {**plain(found), **self._counted()})

    def _counted(self) -> dict[str, Iterable[Sample]]:
        refusals, dials = sorted(self._refusals.items()), sorted(self._dials.items())
        counted: dict[str, Iterable[Sample]] = {
            "info": [("", (("version", _version()),), 1)],
            "joins_total": [("", (), self._joins)],
            "matches_total": [("", (), self._matches)],
            "refusals_total": [("", (("status", str(code)),), count) for code, count in refusals],
            "wait_seconds": self._waited.samples(),
            "pass_seconds": self._passes.samples(),
            "commit_seconds": self._commits.samples(),
            "dials_total": [("", (("result", name),), count) for name, count in dials],
            "dial_seconds": self._dialled.samples(),
        }
        if self._last_pass_s is not None:
            counted["last_pass_seconds"] = [("", (), self._last_pass_s)]
        return counted


METRICS = table(
    PREFIX,
    ("info", "gauge", "Which version this is."),
    ("joins_total", "counter", "Volunteers let in, those who come back too."),
    ("refusals_total", "counter", "Refusals, by HTTP status."),
    ("matches_total", "counter", "Volunteers given a job."),
    ("wait_seconds", "histogram", "How long volunteers waited for the job they got."),
    ("jobs", "gauge", "Jobs known."),
    ("hosts", "gauge", "Hosts connected."),
    ("volunteers", "gauge", "Volunteers here, or at work and expected back."),
    ("waiting", "gauge", "Volunteers that wait for a job."),
    ("known_volunteers", "gauge", "Volunteers remembered, also those who are away."),
    ("credits", "gauge", "Entries of who gave what."),
    ("connections", "gauge", "Open connections."),
    ("connections_limit", "gauge", "How many there may be."),
    ("turned_away_total", "counter", "Connections beyond the limits."),
    ("entering", "gauge", "Who is between handshake and welcome."),
    ("pass_seconds", "histogram", "How long a pass of the matching took."),
    ("last_pass_seconds", "gauge", "How long the last one took."),
    ("commit_seconds", "histogram", "How long it took until changes lasted."),
    ("dials_total", "counter", "Addresses asked to be dialled, by result."),
    ("dial_seconds", "histogram", "How long dialling an address took."),
    ("dialling", "gauge", "Requests whose addresses are being dialled."),
    ("dials_waiting", "gauge", "Requests that wait for that."),
    ("store_trouble", "gauge", "1 while nothing can be written."),
    ("process_resident_memory_bytes", "gauge", "Memory of the process."),
    ("process_cpu_seconds_total", "counter", "Time its threads have computed."),
    ("process_open_fds", "gauge", "Open files and sockets."),
    ("process_max_fds", "gauge", "How many there may be."),
    ("process_start_time_seconds", "gauge", "When it started, in seconds since 1970."),
)  # fmt: skip


def _version() -> str:
    try:
        return metadata.version("crowdgrad")
    except metadata.PackageNotFoundError:  # run from a folder, not installed
        return "unknown"
