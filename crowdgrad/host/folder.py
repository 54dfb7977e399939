"""`runs/<id>/`: everything a run leaves behind. Files are whole; metrics grow line by line.

job.json           what was trained, how, by whom, how it ended
metrics.jsonl      one line a second while training, one for each evaluation
model.safetensors  the best parameters and their buffers: the model's state dict
model.onnx         the forward graph with those inside, for inference
report.html        curves and contributions, in one file
tensorboard/       the curves as event files
logs/              what the host and the processes it started said
resume/            all that is needed to go on from here, on this machine or another
control.json       how to reach the host, while it runs
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path

from crowdgrad.errors import RunBusy
from crowdgrad.files import REAL, disk_errors, private_folder, remove_drafts, write_whole
from crowdgrad.host.telling.growing import GrowingFile

try:
    import fcntl
except ImportError:  # Windows: nobody keeps a second host away there
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)
Json = dict[str, object]
LOCK_TRIES, LOCK_PAUSE_S = 10, 0.05
ADVICE = "Choose another folder with --runs."
RESUME = "resume"
"""The folder in it with all that is needed to go on."""


class RunFolder:
    def __init__(self, path: Path, *, reserve_bytes: int = 0, again: bool = False) -> None:
        """A new one, or one that is gone on with (`again`); nobody else works on it meanwhile.

        Raises DiskFull or CannotWrite when the folder, or room in it, cannot be had, and RunBusy
        where another host has it.

        The reserve is kept for the results: a disk that fills up while training costs metrics and
        checkpoints, never the model. It has no name, so nothing of it is left whatever happens.
        """
        self.path = path
        self.new = not again
        self._metrics: GrowingFile | None = None
        self._metrics_lost = False
        with disk_errors(path, ADVICE):
            path.mkdir(parents=True, exist_ok=again)
            self._lock = _locked(path)
            # The job's data and parameters lie in it. Its files keep their modes, since some are
            # links to data that others may read.
            private_folder(path / RESUME)
            if again and self._lock is not None:
                for folder in (path, path / RESUME):
                    remove_drafts(REAL, folder)
            self._reserve = tempfile.TemporaryFile(dir=path)  # noqa: SIM115 (kept while we run)
            try:
                if reserve_bytes and hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(self._reserve.fileno(), 0, reserve_bytes)
            except OSError:
                self.discard()
                raise

    def discard(self) -> None:
        """Take the folder away again, where it is new: the run did not start."""
        self.close()
        if self.new:
            shutil.rmtree(self.path, ignore_errors=True)

    def release(self) -> None:
        """Give the reserved room back: what it was kept for is written next."""
        self._reserve.close()

    def close(self) -> None:
        """Others may work on it."""
        self._reserve.close()
        if self._metrics is not None:
            self._metrics.close()
        if self._lock is not None:
            os.close(self._lock)

    @property
    def metrics_bytes(self) -> int:
        """How long metrics.jsonl is."""
        if self._metrics is not None:
            return self._metrics.length
        try:
            return (self.path / "metrics.jsonl").stat().st_size
        except OSError:
            return 0

    def rewind_metrics(self, length: int) -> None:
        """Forget the lines after a checkpoint: what they tell will happen again, otherwise."""
        if self.metrics_bytes > length:
            with disk_errors(self.path / "metrics.jsonl", ADVICE):
                os.truncate(self.path / "metrics.jsonl", length)

    def write(self, name: str, data: bytes | str) -> Path:
        """All of it or nothing. Raises DiskFull or CannotWrite."""
        target = self.path / name
        with disk_errors(target, ADVICE):
            write_whole(target, data.encode() if isinstance(data, str) else data)
        return target

    def write_json(self, name: str, content: Json) -> Path:
        return self.write(name, json.dumps(content, indent=2) + "\n")

    def add_metrics(self, line: Json) -> None:
        """Append one line. A full disk costs metrics, never the training: it is said once."""
        try:
            if self._metrics is None:
                self._metrics = GrowingFile(self.path / "metrics.jsonl")
            self._metrics.add((json.dumps(line) + "\n").encode())
        except OSError as error:
            if not self._metrics_lost:
                logger.warning("metrics.jsonl cannot be written: %s", error.strerror)
            self._metrics_lost = True


def started_at(run: str) -> float | None:
    """In seconds since 1970: a run's id begins with the time. None: that one does not."""
    try:
        return time.mktime(time.strptime(run[:15], "%Y%m%d-%H%M%S"))
    except ValueError:
        return None


def _locked(path: Path) -> int | None:
    """The folder itself, opened and ours alone for as long as we live. Raises RunBusy."""
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:  # `crowdgrad runs` looks for a moment whether anybody has it
            time.sleep(LOCK_PAUSE_S)
        except OSError as error:
            logger.warning("%s cannot be locked: %s", path, error.strerror)
            return handle  # this file system has no locks: better no guard than no host
    os.close(handle)
    raise RunBusy(
        f"Another host is at work on {path}.",
        advice="`crowdgrad runs` shows it; stop it first.",
    )
