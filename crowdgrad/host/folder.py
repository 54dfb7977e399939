"""`runs/<id>/`: everything a run leaves behind. No file is ever half-written.

job.json           what was trained, how, by whom, how it ended
metrics.jsonl      one line a second while training, one for each evaluation
model.safetensors  the best parameters, by their PyTorch names
model.onnx         the forward graph with those parameters inside
report.html        curves and contributions, in one file
logs/              what the processes the host started said
"""

from __future__ import annotations

import errno
import json
import logging
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from crowdgrad.errors import DiskFull, SettingError

logger = logging.getLogger(__name__)
Json = dict[str, object]


class RunFolder:
    def __init__(self, path: Path) -> None:
        """Raises DiskFull or SettingError when the folder cannot be made."""
        self.path = path
        self._metrics_lost = False
        with _explained(path):
            path.mkdir(parents=True, exist_ok=False)

    def write(self, name: str, data: bytes | str) -> Path:
        """All of it or nothing. Raises DiskFull."""
        target = self.path / name
        content = data.encode() if isinstance(data, str) else data
        with _explained(target):
            handle, draft = tempfile.mkstemp(dir=self.path, prefix=".")
            try:
                with os.fdopen(handle, "wb") as file:
                    os.fchmod(handle, 0o644)  # a draft is private, a result is not
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, target)
            except BaseException:
                os.unlink(draft)
                raise
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


@contextmanager
def _explained(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"No room on the disk for {path}.", advice="Free some space, or choose --runs."
            ) from None
        raise SettingError(
            f"Cannot write {path}: {error.strerror}.", advice="Choose another folder with --runs."
        ) from None
