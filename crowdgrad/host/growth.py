"""Data that is added while a job trains on it: found, looked through, kept, and only then used.

    look (in a thread, once a second) → only longer? → every new record sound? → kept on the disk
      → the planner has it → whoever asks for a unit is told

Whatever is wrong with it is said, and training goes on with what there is.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crowdgrad.data.folder import MANIFEST, DataFolder, missing_chunks, open_folder
from crowdgrad.data.sealing import seal
from crowdgrad.domain.data import Manifest, Seal
from crowdgrad.errors import CrowdgradError, DataAltered, DataMissing
from crowdgrad.files import disk_errors
from crowdgrad.host.folder_data import look_through
from crowdgrad.host.job import Prepared
from crowdgrad.net.identity import Identity
from crowdgrad.planner.batches import largest_batch
from crowdgrad.planner.growing import added, unusable
from crowdgrad.program.check import check

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
MAX_PATIENCE_S = 60.0
"""The longest between two looks at a folder that is broken."""
Keep = Callable[[DataFolder, int], None]
"""A newer data folder, its shards from that number on being new; durable when it returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """More to train on, kept and sound."""

    folder: DataFolder
    first: int
    """The first of its shards that is new."""
    seal: Seal


class Finder:
    """Synchronous: it waits for the disk."""

    def __init__(self, prepared: Prepared, source: Path, keep: Keep, key: Identity) -> None:
        self._prepared = prepared
        self._source = source
        self._keep = keep
        self._key = key
        self._manifest = prepared.manifest
        self._name = prepared.job.manifest
        self._seen: tuple[int, ...] = ()

    def look(self) -> Grown | None:
        """What has been added since the last time. Raises CrowdgradError."""
        try:
            found = os.stat(self._source / MANIFEST)
        except OSError as error:
            raise DataMissing(f"{self._source} cannot be read: {error.strerror}.") from error
        seen = (found.st_ino, found.st_size, found.st_mtime_ns)
        if seen == self._seen:
            return None
        try:
            folder = open_folder(self._source)
        except DataMissing:  # it was written anew between our look at the manifest and at its seal
            folder = open_folder(self._source)
        grown = self._use(folder) if folder.name != self._name else None
        self._seen = seen
        return grown

    def _use(self, folder: DataFolder) -> Grown:
        self._check(folder)
        numbers = added(self._manifest, folder.manifest)
        with disk_errors(self._source):
            self._keep(folder, numbers.start)
        sealed = seal(folder.manifest, self._key)
        self._manifest, self._name = folder.manifest, folder.name
        return Grown(folder=folder, first=numbers.start, seal=sealed)

    def _check(self, folder: DataFolder) -> None:
        """Raises DataError, ProgramError."""
        why = unusable(self._manifest, folder.manifest)
        if why:
            raise DataAltered(
                f"{self._source} is no longer what it was: {why}.",
                advice="Data that is trained on may only grow, by records to train on.",
            )
        prepared, job = self._prepared, self._prepared.job
        numbers = added(self._manifest, folder.manifest)
        missing = missing_chunks(self._source, folder.manifest.shards[numbers.start :])
        if missing:
            raise DataMissing(f"{self._source} lacks {len(missing):,} chunks of what was added.")
        look_through(folder, numbers, prepared.classes, prepared.label)
        records = [shard.records for shard in folder.manifest.shards]
        most = largest_batch(job.local, prepared.program.spec, records, job.stop.epochs)
        check(prepared.program, most)


class Growth:
    """Looks again and again while training goes on; one look at a time."""

    def __init__(
        self,
        finder: Finder,
        use: Callable[[Grown], None],
        warn: Callable[[str], None],
    ) -> None:
        """`use` takes what was found. `warn` hears what is wrong, and "" when nothing is."""
        self._finder = finder
        self._use = use
        self._warn = warn
        self._task: asyncio.Task[Grown | None] | None = None
        self._next = 0.0
        self._failures = 0
        self._said = ""

    def tick(self, now: float) -> None:
        """Begin a look where one is due, take what the last has found; waits for nothing."""
        if self._task is None:
            if now >= self._next:
                self._task = asyncio.create_task(asyncio.to_thread(self._finder.look))
            return
        if not self._task.done():
            return
        task, self._task = self._task, None
        try:
            grown = task.result()
        except Exception as error:  # whatever it is, it must not reach the training
            if not isinstance(error, CrowdgradError):
                logger.exception("what is added to the data cannot be looked at")
            self._failures += 1
            patience_s = LOOK_EVERY_S * 2.0 ** min(self._failures, 32)
            self._next = now + min(MAX_PATIENCE_S, patience_s)
            self._say(f"What is added to the data cannot be used: {_words(error)} "
                      "Training goes on with what there is.")  # fmt: skip
            return
        self._failures, self._next = 0, now + LOOK_EVERY_S
        self._say("")
        if grown is not None:
            self._use(grown)
            logger.info("the data has grown: %s", spelt(grown.folder.manifest))

    async def end(self) -> None:
        """What a look has kept meanwhile is there when the run goes on."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _say(self, words: str) -> None:
        if words != self._said:
            self._said = words
            self._warn(words)
            if words:
                logger.warning("%s", words)


def _words(error: Exception) -> str:
    return error.message if isinstance(error, CrowdgradError) else f"{type(error).__name__}."


def spelt(manifest: Manifest) -> str:
    return f"{manifest.records('train'):,} training records in {len(manifest.shards):,} shards"
