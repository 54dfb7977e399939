"""A run's files to go on from: the job itself, written once, before the first checkpoint.

Where the job was hosted from a data folder, its data is kept beside it; and what is added to that
while it trains, before anybody trains on it.
"""

from __future__ import annotations

import threading
from pathlib import Path

from crowdgrad.data.folder import DataFolder
from crowdgrad.files import disk_errors
from crowdgrad.host.blobs import Blobs
from crowdgrad.host.job import Prepared
from crowdgrad.host.keeping import kept_data, kept_job, resume
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_files import Best, CheckpointFiles


class RunFiles(CheckpointFiles):
    def __init__(self, folder: Path, prepared: Prepared, *, there: bool) -> None:
        """`there`: the job is in the folder already, as it is."""
        super().__init__(folder / resume.CHECKPOINTS)
        self._kept = folder
        self._prepared = prepared
        self._job_is_there = there
        self._job_lock = threading.Lock()

    def write(self, checkpoint: Checkpoint, best: Best | None) -> int:
        with self._job_lock:
            self._keep_job()
        return super().write(checkpoint, best)

    def grow(self, newer: DataFolder, first: int) -> None:
        """Keep what was added to the data: shards from `first` on. Raises CrowdgradError."""
        with self._job_lock, disk_errors(self._kept):
            self._keep_job()
            kept_data.keep(self._kept / kept_data.FOLDER, newer, first)

    def _keep_job(self) -> None:
        if self._job_is_there:
            return
        self._disk.make_folder(self._kept)
        folder, blobs = self._prepared.folder, self._prepared.blobs
        if folder is not None and isinstance(blobs, Blobs):
            kept_data.keep(self._kept / kept_data.FOLDER, folder)
            blobs.kept_in(self._kept / kept_data.FOLDER)
        kept_job.save(self._kept, self._prepared)
        self._job_is_there = True
