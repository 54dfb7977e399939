"""What a run tells when its host has ended: read from its folder, as the host's API told it.

The last status stands in `job.json` once the run is over, curves in `metrics.jsonl`, the log in
`logs/host.jsonl`, how the data had spread in `swarm.json`. What is torn or missing is left out.
"""

from __future__ import annotations

import json
import math
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from crowdgrad.host.telling.history import MOST, Curves, History, thinned
from crowdgrad.host.telling.json_lines import json_lines
from crowdgrad.host.telling.recent import KEPT, LogLine, LogPart
from crowdgrad.host.telling.status import Point
from crowdgrad.numerics.evenly import bounded

MAX_TEXT = 64 << 20
"""Of a file that is read whole."""


def status(folder: Path) -> bytes | None:
    """The last of all, as JSON; None where the run did not come to its end."""
    told = _object(folder / "job.json").get("outcome")
    return json.dumps(told).encode() if isinstance(told, dict) else None


def swarm(folder: Path) -> bytes | None:
    told = _object(folder / "swarm.json")
    return json.dumps(told).encode() if told else None


def curves(folder: Path, points: int) -> Curves:
    history, seen = History(), list[Point]()
    for line in json_lines(folder / "metrics.jsonl"):
        history.add(line)
        found = _evaluation(line)
        if found is not None and (not seen or found.at_s >= seen[-1].at_s):
            seen.append(found)
            seen = bounded(seen, MOST, lambda point: point.at_s)
    return Curves(evaluations=thinned(seen, points), training=history.curves((), points).training)


def log(folder: Path) -> LogPart:
    """The last lines, numbered as a host would have done."""
    last = deque(json_lines(folder / "logs" / "host.jsonl"), maxlen=KEPT)
    told = [found for n, line in enumerate(last, 1) if (found := _log_line(n, line)) is not None]
    return LogPart(next=told[-1].n if told else 0, lines=told)


def _evaluation(line: dict[str, Any]) -> Point | None:
    if line.get("kind") != "validate":
        return None
    try:
        found = msgspec.convert(line, Point)
    except msgspec.ValidationError:
        return None
    return found if math.isfinite(found.at_s) else None


def _log_line(number: int, line: dict[str, Any]) -> LogLine | None:
    try:
        at = datetime.fromisoformat(str(line["time"])).timestamp()
        return LogLine(n=number, at=at, level=str(line["level"]).lower(), text=str(line["message"]))
    except (KeyError, ValueError):
        return None


def _object(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            found = json.loads(opened.read(MAX_TEXT))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
