"""A run's model, asked after its host has ended: the kept job with the best parameters there are.

The same program, data and words as while it trained (`crowdgrad/host/asking.py`), so that what a
page shows does not change when a run is over.
"""

from __future__ import annotations

import time
from pathlib import Path

from crowdgrad.domain.work import Version
from crowdgrad.errors import DataMissing
from crowdgrad.files import disk_errors
from crowdgrad.host.asking import Asking
from crowdgrad.host.folder import RESUME
from crowdgrad.host.keeping import kept_job
from crowdgrad.host.keeping.checkpoint_files import CheckpointFiles
from crowdgrad.host.keeping.resume import CHECKPOINTS
from crowdgrad.numerics.vectors import Vector


def recall(folder: Path) -> Asking:
    """Raises DataMissing where nothing is kept of it, DataError, ProgramError."""
    kept = folder / RESUME
    if not (kept / kept_job.NAME).is_file():
        raise DataMissing(
            f"Nothing is kept of {folder.name} that could be asked.",
            advice="crowdgrad predict may still use its model.onnx.",
        )
    with disk_errors(kept, "Its files must be yours to read."):
        found = CheckpointFiles(kept / CHECKPOINTS).load()
        prepared = kept_job.load(kept)
    if found is None:
        raise DataMissing(f"{folder.name} has learned nothing yet: it has no checkpoint.")
    if found.best is not None:
        state, version = found.best.vector, found.best.scores.version
    else:
        state, version = found.checkpoint.saved.vector, found.checkpoint.saved.version

    async def copy() -> tuple[Vector, Version]:
        return state, version  # nobody changes them any more

    return Asking(prepared, copy, time.monotonic)
