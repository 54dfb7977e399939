"""A run's files to go on from: the job itself, written once, before the first checkpoint."""

from __future__ import annotations

from pathlib import Path

from crowdgrad.host.job import Prepared
from crowdgrad.host.keeping import kept_job, resume
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_files import Best, CheckpointFiles


class RunFiles(CheckpointFiles):
    def __init__(self, folder: Path, prepared: Prepared, *, there: bool) -> None:
        """`there`: the job is in the folder already, as it is."""
        super().__init__(folder / resume.CHECKPOINTS)
        self._kept = folder
        self._prepared = prepared
        self._job_is_there = there

    def write(self, checkpoint: Checkpoint, best: Best | None) -> int:
        if not self._job_is_there:
            self._disk.make_folder(self._kept)
            kept_job.save(self._kept, self._prepared)
            self._job_is_there = True
        return super().write(checkpoint, best)
