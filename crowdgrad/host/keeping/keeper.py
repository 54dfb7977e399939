"""The keeper: writes a checkpoint to the disk every few seconds, and never lets training wait.

    due? → anything new? → a copy at one version → all finite? → written in a thread → rest

One at a time: a slow disk makes them rarer, never more of them, so there is at most one copy of the
parameters for the disk. A disk that is full or refuses is a trouble that people are told of,
loudly, while training goes on; the keeper tries again, more patiently each time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from crowdgrad.domain.work import Version
from crowdgrad.errors import CrowdgradError
from crowdgrad.files import disk_errors
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_files import Best
from crowdgrad.host.training import Training

logger = logging.getLogger(__name__)

LEAD_S = 0.2
"""Begun so much early, and by what the last took: it is on the disk when the interval is over."""
MAX_PATIENCE_S = 60.0
"""The longest between two tries of a disk that refuses."""
NOT_FINITE = "The last checkpoint was not kept: its numbers are not all finite."


class Files(Protocol):
    """Where checkpoints are kept: `CheckpointFiles`."""

    folder: Path

    def write(self, checkpoint: Checkpoint, best: Best | None) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How it stands with checkpoints."""

    written: int = 0
    """How many, by this host."""
    version: Version | None = None
    """What the last of them holds: a host that dies now goes on from there."""
    at: float | None = None
    """When that was so."""
    bytes: int = 0
    """What was written for it, with the best parameters where they were new."""
    trouble: str = ""
    """Why none can be written at the moment, and what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What decides when the next one is due."""

    began_at: float = -math.inf
    ended_at: float | None = None
    """None: still being written."""
    failures: int = 0
    """In a row."""


def patience_s(every_s: float, failures: int, took_s: float = 0.0) -> float:
    """How long after a try began the next may begin, where that one took so long."""
    if not failures:
        return max(every_s / 2, every_s - took_s - LEAD_S)
    return min(max(every_s, MAX_PATIENCE_S), max(every_s, 1.0) * 2.0 ** min(failures, 32))


def due(now: float, pace: Pace, every_s: float) -> tuple[bool, str]:
    """Whether to begin another one now, and why (not)."""
    if pace.began_at == -math.inf:
        return True, "there is none yet"
    if pace.ended_at is None:
        return False, "the last one is still being written"
    if now < pace.ended_at:
        return True, "the clock went back"
    took_s = pace.ended_at - pace.began_at
    patience = patience_s(every_s, pace.failures, took_s)
    if now - pace.began_at < patience:
        why = "the disk refused" if pace.failures else "the last one is young"
        return False, f"{why}: one in {patience:g} s"
    rest_s = min(took_s, MAX_PATIENCE_S)
    if now - pace.ended_at < rest_s:
        return False, f"the disk is slow: it rests for {rest_s:g} s"
    return True, f"{now - pace.began_at:g} s have passed"


class Keeper:
    def __init__(
        self,
        training: Training,
        files: Files,
        *,
        every_s: float,
        in_thread: Callable[..., Awaitable[int]] = asyncio.to_thread,
    ) -> None:
        """`in_thread(write, checkpoint, best)` does the waiting for the disk."""
        self._training = training
        self._files = files
        self._every_s = every_s
        self._in_thread = in_thread
        self._pace = Pace()
        self._health = Health()
        self._kept: object = None
        """What there was to tell when the last one was written."""
        self._kept_wishes = self._wishes()
        """What people had wished by then: that outlives a crash as soon as it can."""
        self._task: asyncio.Task[None] | None = None

    def health(self) -> Health:
        return self._health

    async def tick(self, now: float) -> None:
        """Begin to write a checkpoint where one is due; does not wait for it."""
        self._settle(now)
        urgent = self._wishes() != self._kept_wishes and not self._pace.failures
        begin = self._task is None and (urgent or due(now, self._pace, self._every_s)[0])
        if self._training.parameters.away:
            return  # there is nothing to take one of until they are back
        if begin and self._news() != self._kept:
            self._begin(now)

    async def write_now(self, now: float) -> None:
        """Write one, where there is anything new, and wait for it. Never raises."""
        await self._wait(now)
        if self._news() != self._kept:
            self._begin(now)
            await self._wait(now)

    # -- one at a time ------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        self._pace = replace(self._pace, began_at=now, ended_at=None)
        self._task = asyncio.create_task(self._keep(now))

    async def _wait(self, now: float) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])
        self._settle(now)

    def _settle(self, now: float) -> None:
        if self._task is not None and self._task.done():
            self._task = None
            self._pace = replace(self._pace, ended_at=now)

    async def _keep(self, now: float) -> None:
        try:
            await self._take_and_write(now)
        except Exception as error:  # whatever it is, it must not reach the training
            if not isinstance(error, OSError | CrowdgradError):
                logger.exception("a checkpoint could not be written")
            self._fail(error)

    async def _take_and_write(self, now: float) -> None:
        # What changes from here on is news for the next one.
        wishes, news = self._wishes(), self._news()
        checkpoint = await self._training.checkpoint(now)
        if not await self._training.sound(checkpoint):
            self._health = replace(self._health, trouble=NOT_FINITE)
            return
        written = await self._in_thread(self._files.write, checkpoint, self._best())
        if self._pace.failures:
            logger.warning("checkpoints are written again")
        self._kept, self._kept_wishes = news, wishes
        self._pace = replace(self._pace, failures=0)
        self._health = Health(
            written=self._health.written + 1,
            version=checkpoint.saved.version,
            at=now,
            bytes=written,
        )

    def _best(self) -> Best | None:
        course = self._training.course
        if course.best is None:
            return None
        return Best(scores=course.best, vector=course.best_vector)

    def _wishes(self) -> object:
        training = self._training
        return training.course.paused, training.course.ending, training.state.rate_factor

    def _news(self) -> object:
        """Differs whenever a new checkpoint would say something worth a write."""
        training, course = self._training, self._training.course
        return (
            training.parameters.version,
            training.state.setbacks,
            training.state.rate_factor,
            training.ledger.total_updates,
            training.ledger.total_refused,
            len(training.ledger.everyone()),
            len(training.book.set_aside),
            len(course.history),
            course.started_at is not None,
            course.tested is not None,
            course.paused,
            course.ending,
        )

    # -- trouble ------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        self._pace = replace(self._pace, failures=self._pace.failures + 1)
        trouble = self._told(error)
        self._health = replace(self._health, trouble=trouble)
        logger.warning("%s", trouble)

    def _told(self, error: Exception) -> str:
        last = self._health.version
        loss = f"it goes on from version {last}" if last else "all of this run is lost"
        wait_s = patience_s(self._every_s, self._pace.failures)
        size = f" One takes {self._health.bytes / 1e6:.1f} MB." if self._health.bytes else ""
        return (
            f"CHECKPOINTS ARE PAUSED: {_words(error, self._files.folder)}{size} Training goes on, "
            f"but if the host dies now, {loss}. The next try is in {wait_s:.0f} s."
        )


def _words(error: Exception, folder: Path) -> str:
    try:
        with disk_errors(folder):
            raise error
    except CrowdgradError as told:
        return f"{told.message} {told.advice}".strip()
    except Exception:
        return f"{type(error).__name__}: {error}."
