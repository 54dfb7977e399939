"""`runs/<id>/`: everything a run leaves behind. Files are whole; metrics grow line by line.

job.json           what was trained, how, by whom, how it ended
metrics.jsonl      one line a second while training, one for each evaluation
model.safetensors  the best parameters and their buffers: the model's state dict
model.onnx         the forward graph with those inside, for inference
report.html        curves and contributions, in one file
logs/              what the processes the host started said
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from pathlib import Path

from crowdgrad.files import disk_errors, write_whole

logger = logging.getLogger(__name__)
Json = dict[str, object]
ADVICE = "Choose another folder with --runs."


class RunFolder:
    def __init__(self, path: Path, *, reserve_bytes: int = 0) -> None:
        """Raises DiskFull or CannotWrite when the folder, or room in it, cannot be had.

        The reserve is kept for the results: a disk that fills up while training costs metrics,
        never the model. It has no name, so nothing of it is left whatever happens.
        """
        self.path = path
        self._metrics_lost = False
        with disk_errors(path, ADVICE):
            path.mkdir(parents=True, exist_ok=False)
            self._reserve = tempfile.TemporaryFile(dir=path)  # noqa: SIM115 (kept while we run)
            try:
                if reserve_bytes and hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(self._reserve.fileno(), 0, reserve_bytes)
            except OSError:
                self._reserve.close()
                path.rmdir()
                raise

    def discard(self) -> None:
        """Take the folder away again: the run did not start."""
        self._reserve.close()
        self.path.rmdir()

    def release(self) -> None:
        """Give the reserved room back: what it was kept for is written next."""
        self._reserve.close()

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
            with (self.path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            if not self._metrics_lost:
                logger.warning("metrics.jsonl cannot be written: %s", error.strerror)
            self._metrics_lost = True
