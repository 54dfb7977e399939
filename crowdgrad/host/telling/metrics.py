"""What a run leaves behind of its numbers: lines of `metrics.jsonl`, and TensorBoard's scalars.

One place decides which number goes where. A line a second is about half a kilobyte, two megabytes
an hour. What each volunteer does is written every ten seconds, only of those who did something
since, and more seldom the more there are: at most four of them a second, five megabytes an hour. Of
a crowd those are written whom the status names, and everybody at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from crowdgrad.host.evaluation import Scores
from crowdgrad.host.members.departures import Departure
from crowdgrad.host.telling.status import MemberStatus, Status, finite, point
from crowdgrad.host.telling.tensorboard import EventFile, Histogram
from crowdgrad.planner.label_noise import LabelNoise

Json = dict[str, object]
TRAINING_EVERY_S = 1.0
VOLUNTEERS_EVERY_S = 10.0
VOLUNTEERS_PER_S = 4.0
"""Of a larger crowd each is written less often, so that the file grows no faster."""
DIGITS = 6

OF_STATUS = (
    "elapsed_s", "version", "epochs_done", "updates", "samples", "samples_per_s", "updates_per_s",
    "mean_staleness", "max_staleness", "train_loss", "learning_rate", "refused", "ignored",
    "setbacks", "paused", "bytes_received", "bytes_sent", "arrivals", "train_records", "growths",
)  # fmt: skip
"""What a line `training` takes from the status as it is."""
OF_MEMBER = (
    "position", "name", "connected", "units", "samples", "samples_per_s", "mean_staleness",
    "max_staleness", "refused", "ignored", "bytes_received", "bytes_sent",
)  # fmt: skip
"""What a line `volunteers` takes from each member as it is."""
OF_TIMES = ("compute_s", "exchange_s", "wait_s")
OF_LABEL_NOISE = ("share", "error", "threshold", "samples", "looks", "reason")
OF_DEPARTURE = ("at_s", "name", "reason", "stayed_s", "samples")


class MetricsLog:
    """Asked many times a second; writes when something is due."""

    def __init__(
        self,
        append: Callable[[Json], None],
        board: Path | None = None,
        *,
        wall: Callable[[], float],
    ) -> None:
        """`append` a line to metrics.jsonl. `board`: TensorBoard's folder, where that is wanted.

        `wall`: seconds since 1970, which TensorBoard shows.
        """
        self._append = append
        self._board_folder = board
        self._wall = wall
        self._board: EventFile | None = None
        self._written_at = self._volunteers_at = -math.inf
        self._told: tuple[int, int] | None = None
        """Setbacks and departures that are in the file."""
        self._factor = 1.0
        """The owner's, of the learning rate, that is in the file."""
        self._known: dict[str, tuple[object, ...]] = {}
        self._looked: LabelNoise | None = None

    def note(self, now: float, status: Status) -> None:
        if self._told is None:
            self._begin(status)
        self._tell_setback(status)
        self._tell_rate(status)
        self._tell_look(status)
        if now - self._written_at < TRAINING_EVERY_S:
            return
        self._written_at = now
        self._tell_departures(status)
        due = now - self._volunteers_at >= _volunteers_every_s(len(status.members))
        self._tell(now, status, everything=due)

    def scored(self, scores: Scores) -> None:
        """An evaluation has found something."""
        self._append(score_line(scores))
        if self._board is not None:
            self._board.add(self._wall(), scores.version.count, score_scalars(scores))

    def close(self, now: float, status: Status) -> None:
        """Write how it ended."""
        self._written_at = self._volunteers_at = -math.inf
        self.note(now, status)
        if self._board is not None:
            self._board.close()
            self._board = None

    def _begin(self, status: Status) -> None:
        """A host that goes on from a checkpoint has all that came before in the file already."""
        self._told = (status.setbacks, _gone(status))
        self._looked, self._factor = status.label_noise, status.rate_factor
        step = step_of(status)
        if self._board_folder is not None:
            resumed_at = step if status.resumed else None
            self._board = EventFile(self._board_folder, self._wall(), resumed_at=resumed_at)
        if status.resumed:
            self._append(restart_line(status))

    def _tell(self, now: float, status: Status, *, everything: bool) -> None:
        self._append(training_line(status))
        if everything:
            self._tell_volunteers(now, status)
        if self._board is not None:
            wanted = everything and status.updates
            histograms = {"staleness/updates": histogram(status)} if wanted else {}
            self._board.add(self._wall(), step_of(status), scalars(status), histograms)

    def _tell_setback(self, status: Status) -> None:
        assert self._told is not None
        setbacks, gone = self._told
        if status.setbacks > setbacks:
            self._append(setback_line(status))
            self._told = (status.setbacks, gone)

    def _tell_rate(self, status: Status) -> None:
        if status.rate_factor != self._factor:
            self._factor = status.rate_factor
            self._append(rate_line(status))

    def _tell_look(self, status: Status) -> None:
        found = status.label_noise
        if found is self._looked or found is None:
            return
        self._looked = found
        self._append(look_line(status, found))
        if self._board is not None and found.share is not None:
            self._board.add(self._wall(), step_of(status), {"train/label_noise": found.share})

    def _tell_departures(self, status: Status) -> None:
        assert self._told is not None
        setbacks, gone = self._told
        fresh = min(_gone(status) - gone, len(status.departures))
        for departure in status.departures[len(status.departures) - fresh :]:
            self._append(departure_line(departure))
        self._told = (setbacks, _gone(status))

    def _tell_volunteers(self, now: float, status: Status) -> None:
        changed = [m for m in status.members if self._known.get(m.id) != _doings(m)]
        self._known.update((member.id, _doings(member)) for member in changed)
        self._volunteers_at = now
        if changed:
            self._append(volunteers_line(status, changed))


# -- lines --------------------------------------------------------------------------------------


def training_line(status: Status) -> Json:
    return _line(
        "training",
        {name: getattr(status, name) for name in OF_STATUS}
        | {"volunteers": status.here}
        | {"departures": _gone(status)}
        | {name: getattr(status.times, name) for name in OF_TIMES},
    )


def volunteers_line(status: Status, members: Iterable[MemberStatus]) -> Json:
    """Of those `members`; staleness and reasons are the whole job's."""
    return _line(
        "volunteers",
        {
            "elapsed_s": status.elapsed_s,
            "staleness": [[b.least, b.most, b.updates] for b in status.staleness],
            "refused_by_reason": status.refused_by_reason,
            "ignored_by_reason": status.ignored_by_reason,
            "members": [
                {name: getattr(member, name) for name in OF_MEMBER}
                | {name: getattr(member.times, name) for name in OF_TIMES}
                for member in members
            ],
        },
    )


def departure_line(departure: Departure) -> Json:
    return _line("departure", {name: getattr(departure, name) for name in OF_DEPARTURE})


def setback_line(status: Status) -> Json:
    return _line("setback", {"elapsed_s": status.elapsed_s, "notice": status.notice})


def rate_line(status: Status) -> Json:
    """The owner has changed the learning rate."""
    names = ("elapsed_s", "version", "learning_rate", "rate_factor")
    return _line("rate", {name: getattr(status, name) for name in names})


def look_line(status: Status, found: LabelNoise) -> Json:
    """What the last looks at single training records say."""
    fields = {name: getattr(found, name) for name in OF_LABEL_NOISE}
    return _line("look", {"elapsed_s": status.elapsed_s, "version": status.version, **fields})


def restart_line(status: Status) -> Json:
    """A host goes on from a checkpoint."""
    numbers = {"elapsed_s": status.elapsed_s, "version": status.version, "resumed": status.resumed}
    return _line("restart", numbers)


def score_line(scores: Scores) -> Json:
    found = point(scores)
    assert found is not None
    return _line(scores.kind, {**asdict(found), "version": str(scores.version)}, digits=None)


def _line(kind: str, fields: Json, digits: int | None = DIGITS) -> Json:
    found = finite(fields if digits is None else _short(fields, digits))
    assert isinstance(found, dict)
    return {"kind": kind, **found}


def _short(value: object, digits: int) -> object:
    """Numbers to so many digits: nobody reads more, and the file stays small."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: _short(inner, digits) for key, inner in value.items()}
    if isinstance(value, list):
        return [_short(inner, digits) for inner in value]
    return value


# -- TensorBoard --------------------------------------------------------------------------------


def step_of(status: Status) -> int:
    """How often the parameters have changed."""
    return int(status.version.rpartition(".")[2])


def scalars(status: Status) -> dict[str, float]:
    found = {
        "train/samples_per_s": status.samples_per_s,
        "train/epochs": status.epochs_done,
        "staleness/mean": status.mean_staleness,
        "learning_rate": status.learning_rate,
        "volunteers": float(status.here),
        "train/records": float(status.train_records),
        "refused": float(status.refused),
        "ignored": float(status.ignored),
        "time/compute": status.times.compute_share,
        "time/exchange": status.times.exchange_share,
        "time/wait": status.times.wait_share,
        "network/received_bytes_per_s": status.bytes_received_per_s,
        "network/sent_bytes_per_s": status.bytes_sent_per_s,
    }
    return found if status.train_loss is None else {"train/loss": status.train_loss, **found}


def score_scalars(scores: Scores) -> dict[str, float]:
    split = "validation" if scores.kind == "validate" else scores.kind
    return {f"{split}/{name}": value for name, value in (("loss", scores.loss),
                                                        *scores.metrics.items())}  # fmt: skip


def histogram(status: Status) -> Histogram:
    return Histogram(
        limits=[float(bucket.most) for bucket in status.staleness],
        counts=[float(bucket.updates) for bucket in status.staleness],
        mean=status.mean_staleness,
    )


def _doings(member: MemberStatus) -> tuple[object, ...]:
    """What must change before it is written again; heartbeats and waiting do not count."""
    return member.connected, member.units, member.refused, member.ignored


def _gone(status: Status) -> int:
    return sum(status.departures_by_kind.values())


def _volunteers_every_s(members: int) -> float:
    return max(VOLUNTEERS_EVERY_S, members / VOLUNTEERS_PER_S)
