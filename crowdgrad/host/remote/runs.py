"""The runs in a folder, as people look for them: what became of each, and which still go on.

What a host says of its run counts first; then what `job.json` says of its end. A run that says
neither, and whose folder no host keeps, has crashed: its last checkpoint is what is left.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from crowdgrad.domain.program import Better
from crowdgrad.errors import DataMalformed
from crowdgrad.host.folder import RESUME, started_at
from crowdgrad.host.remote.control import RunState
from crowdgrad.host.remote.control_file import NAME, read
from crowdgrad.host.remote.steering import live_status
from crowdgrad.host.telling.json_lines import json_lines
from crowdgrad.host.telling.status import spell_score

try:
    import fcntl
except ImportError:  # Windows: only who answers is alive there
    fcntl = None  # type: ignore[assignment]

SeenState = RunState | Literal["crashed", "ending"]
OVER = ("finished", "stopped", "failed")
LISTING_PATIENCE_S = 1.0
DAMAGED = (
    OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""What comes of a file that is not as we write it: torn, mended by hand, or somebody else's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A run as it is now."""

    id: str
    """The name of its folder, which its owner may have changed, or copied."""
    folder: Path
    title: str
    state: SeenState
    reason: str
    alive: bool
    """Whether a host is at work on it, even if it does not answer."""
    answers: bool
    epochs_done: float | None
    epochs: int | None
    watched: str
    """The first metric, or `loss`."""
    better: Better
    """Which way it improves."""
    best: str
    """The best validation score, for people; `–` if there is none."""
    test: str
    started_at: float
    bytes: int
    checkpoint_at: float | None
    """When its last checkpoint was written."""
    trouble: str
    """Why none can be written now, in its host's words."""
    resumable: bool
    """Whether `crowdgrad host --resume` can go on with it."""
    members: int | None
    """How many volunteers are there, worker 0 included; None if nobody says."""


def run_folders(runs: Path) -> list[Path]:
    """The newest first: ids begin with the time."""
    found = (file.parent for file in runs.glob("*/job.json") if file.is_file())
    return sorted(found, key=lambda folder: folder.name, reverse=True)


def look(folder: Path) -> Seen:
    """Raises DataMalformed where its job.json, or what its host says, makes no sense."""
    try:
        return _look(folder, _told(folder))
    except DAMAGED as error:
        raise DataMalformed(
            f"{folder / 'job.json'} cannot be read: {type(error).__name__}: {error}.",
            advice="Choose another run.",
        ) from error


def state_in(folder: Path) -> object:
    """As its host has written it last. Raises DAMAGED."""
    return _told(folder).get("state")


def id_in(folder: Path) -> str:
    """As it was named when it began, and as its host knows it. Raises DAMAGED."""
    return str(_told(folder)["id"])


def _told(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    return found


def _look(folder: Path, told: dict[str, Any]) -> Seen:
    run = str(told["id"])
    live = live_status(folder, run, LISTING_PATIENCE_S)
    busy = live is None and held(folder)
    outcome = live or told.get("outcome") or _from_metrics(folder, told)
    state, reason = _state(folder, told, live, busy=busy)
    kept = folder / RESUME
    return Seen(
        id=folder.resolve().name,
        folder=folder,
        title=str(told.get("title", "")),
        state=state,
        reason=reason,
        alive=live is not None or busy,
        answers=live is not None,
        epochs_done=outcome.get("epochs_done"),
        epochs=outcome.get("epochs") or told.get("stop", {}).get("epochs"),
        watched=_metric(told)[0] or "loss",
        better=_metric(told)[1],
        best=_spelled(told, outcome.get("best")),
        test=_spelled(told, outcome.get("test")),
        started_at=_started_at(folder, run),
        bytes=sum(_sizes(folder)),
        checkpoint_at=max(map(_written_at, kept.glob("checkpoints/[0-9]*.pack")), default=None),
        trouble=((live or {}).get("checkpoint") or {}).get("trouble", ""),
        resumable=(kept / "job.pack").is_file(),
        members=_here(live) if live else None,
    )


def _here(live: dict[str, Any]) -> int:
    named = sum(bool(member["connected"]) for member in live["members"])
    return named + int(live.get("others", {}).get("connected", 0))  # an older host names them all


def _state(
    folder: Path, told: dict[str, Any], live: dict[str, Any] | None, *, busy: bool
) -> tuple[SeenState, str]:
    if live is not None:
        return _live_state(live), live["reason"]
    if busy:
        if told.get("state") == "ending":
            return "ending", "it has ended; its results are being written"
        entrance = read(folder / NAME)
        who = f"process {entrance.pid}" if entrance else "its process"
        return "running", f"{who} is there but does not answer: it starts, ends, or hangs"
    if told.get("state") in OVER:
        return told["state"], str((told.get("outcome") or {}).get("reason", ""))
    return "crashed", "its host ended without a word"


def _live_state(live: dict[str, Any]) -> SeenState:
    """As `state_of` tells it of a training."""
    if live["phase"] == "training" and live.get("paused"):
        return "paused"
    if live["phase"] in ("validating", "testing"):
        return "finishing"
    return live["state"]  # type: ignore[no-any-return]


def held(folder: Path) -> bool:
    """Whether a host keeps the folder for itself, as it does for as long as it lives."""
    if fcntl is None:
        return False
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a disk without locks
        return False
    finally:
        os.close(handle)
    return False


def _from_metrics(folder: Path, told: dict[str, Any]) -> dict[str, Any]:
    """How far a run came that could not say so: its last line, and its best validation."""
    found: dict[str, Any] = {}
    for line in json_lines(folder / "metrics.jsonl"):
        if line.get("kind") == "training":
            found["epochs_done"] = line.get("epochs_done")
        elif line.get("kind") == "validate" and _better(told, line, found.get("best")):
            found["best"] = line
    return found


def _better(told: dict[str, Any], line: dict[str, Any], than: dict[str, Any] | None) -> bool:
    value, before = _score(told, line), _score(told, than)
    if value is None or before is None:
        return value is not None
    return value > before if _metric(told)[1] == "higher" else value < before


def _metric(told: dict[str, Any]) -> tuple[str | None, Better]:
    metrics = told.get("metrics") or []
    return (metrics[0]["name"], metrics[0]["better"]) if metrics else (None, "lower")


def _score(told: dict[str, Any], point: dict[str, Any] | None) -> float | None:
    if not point:
        return None
    metric, _ = _metric(told)
    value: float | None = point["metrics"].get(metric) if metric else point["loss"]
    return value


def _spelled(told: dict[str, Any], point: dict[str, Any] | None) -> str:
    value = _score(told, point)
    return "–" if value is None else spell_score(value, *_metric(told))


def _started_at(folder: Path, run: str) -> float:
    """As its id says; where it does not, when its job.json was last written."""
    said = started_at(run)
    return said if said is not None else (folder / "job.json").stat().st_mtime


def _written_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # checkpoints go as new ones come
        return 0.0


def _sizes(folder: Path) -> Iterator[int]:
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # it may go while we look
                yield os.stat(os.path.join(root, name), follow_symlinks=False).st_size
