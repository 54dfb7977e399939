"""How a run has gone so far, for curves: a point a second of training, and every evaluation.

The points are made from the lines of `metrics.jsonl`, as they are written and, where a host goes on
with a run, as they lie there: so both lives look alike. Weeks fit into memory, since the longer it
takes, the further apart the points are that are kept (`evenly.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from crowdgrad.host.evaluation import Scores
from crowdgrad.host.telling.json_lines import json_lines
from crowdgrad.host.telling.status import Point, point
from crowdgrad.numerics.evenly import bounded

T = TypeVar("T")
Json = dict[str, object]
_BYTES = ("bytes_received", "bytes_sent")
MOST = 4096
"""Points of training kept, and evaluations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPoint:
    """One second of training."""

    at_s: float
    """Seconds of training since it began, pauses not counted."""
    epoch: float
    loss: float | None
    """The smoothed training loss."""
    samples_per_s: float
    updates_per_s: float
    staleness: float
    """The mean so far."""
    members: int
    """Who was connected, worker 0 included."""
    bytes_received_per_s: float
    """Since the point before."""
    bytes_sent_per_s: float
    learning_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A run's curves."""

    evaluations: list[Point]
    training: list[TrainingPoint]


class History:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._points: list[TrainingPoint] = []
        self._last: tuple[float, float, float] | None = None
        """Seconds, bytes received and sent when the last point was taken."""

    def add(self, line: Json) -> None:
        """A line of metrics.jsonl, of whatever kind. What makes no sense is left out."""
        if line.get("kind") != "training":
            return
        at_s, received, sent = (_number(line, name) for name in ("elapsed_s", *_BYTES))
        if at_s < 0.0 or (self._last is not None and at_s <= self._last[0]):
            return  # paused, or not begun: nothing has happened since
        before = self._last or (0.0, received, sent)
        passed_s = max(at_s - before[0], 1e-9)
        self._last = (at_s, received, sent)
        self._points.append(
            TrainingPoint(
                at_s=at_s,
                epoch=_number(line, "epochs_done"),
                loss=_number(line, "train_loss") if line.get("train_loss") is not None else None,
                samples_per_s=_number(line, "samples_per_s"),
                updates_per_s=_number(line, "updates_per_s"),
                staleness=_number(line, "mean_staleness"),
                members=int(_number(line, "volunteers")),
                # A host that goes on counts its bytes from where its checkpoint was.
                bytes_received_per_s=max(0.0, received - before[1]) / passed_s,
                bytes_sent_per_s=max(0.0, sent - before[2]) / passed_s,
                learning_rate=_number(line, "learning_rate"),
            )
        )
        self._points = bounded(self._points, self._most, lambda point: point.at_s)

    def read(self, path: Path) -> None:
        """What an earlier host of this run has written; a torn or missing file is no matter."""
        for line in json_lines(path):
            self.add(line)

    def curves(self, evaluations: Iterable[Scores], points: int) -> Curves:
        """At most so many of each, the last always among them."""
        seen = [found for scores in evaluations if (found := point(scores)) is not None]
        return Curves(evaluations=thinned(seen, points), training=thinned(self._points, points))


def thinned(points: Sequence[T], most: int) -> list[T]:
    """Evenly; the last is always among them, and so is the first where there are several."""
    if len(points) <= most:
        return list(points)
    if most < 2:
        return list(points[-1:])
    step = (len(points) - 1) / (most - 1)
    return [points[round(number * step)] for number in range(most)]


def curves_as_json(curves: Curves) -> str:
    """Numbers that are not finite become null."""
    return msgspec.json.encode(curves).decode()


def _number(line: Json, name: str) -> float:
    value = line.get(name)
    try:
        found = float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:  # a whole number of hundreds of digits
        return 0.0
    return found if math.isfinite(found) else 0.0
