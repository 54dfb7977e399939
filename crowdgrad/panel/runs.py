"""The runs the panel shows, and the way to the host of each; ids as `crowdgrad runs` has them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from crowdgrad.errors import DataError, DataMalformed, DataMissing, Unreachable
from crowdgrad.files import written
from crowdgrad.host.folder import RESUME
from crowdgrad.host.keeping.resume import CHECKPOINTS
from crowdgrad.host.remote.control_file import NAME, Entrance, read
from crowdgrad.host.remote.runs import (
    DAMAGED,
    OVER,
    Seen,
    held,
    id_in,
    look,
    run_folders,
    state_in,
)
from crowdgrad.panel.calls import Caller, Reply, decoded

MOST_SHOWN = 200
PARTS = ("", "job.json", "metrics.jsonl", RESUME, f"{RESUME}/{CHECKPOINTS}")
"""Of a run's folder: by them it is known whether anything has changed."""
ENDING_S = 30.0
"""How long a host may take to write what a run leaves."""
LOOK_S = 0.1
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A run as it was when its files were as `stamp` says."""

    stamp: tuple[tuple[int, int], ...]
    seen: Seen


class Listing:
    """All runs, however many pages look: one walk at a time, and whoever comes meanwhile shares the
    next. What became of a run without a host is read again only when its files have changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._one = asyncio.Lock()
        self._next: asyncio.Task[list[Seen]] | None = None
        self._known: dict[Path, Known] = {}

    async def take(self) -> list[Seen]:
        if self._next is None:
            self._next = asyncio.create_task(self._walk())
        return await asyncio.shield(self._next)

    async def _walk(self) -> list[Seen]:
        async with self._one:
            self._next = None  # who comes now may have changed something already seen
            return await asyncio.to_thread(self._look)

    def _look(self) -> list[Seen]:
        found: dict[Path, Known] = {}
        named = (one for one in run_folders(self._folder) if _RUN.fullmatch(one.name))
        for folder in itertools.islice(named, MOST_SHOWN):
            with contextlib.suppress(DataError):
                found[folder] = self._look_at(folder)
        self._known = found
        return [known.seen for known in found.values()]

    def _look_at(self, folder: Path) -> Known:
        """Raises DataError."""
        stamp, known = _stamp(folder), self._known.get(folder)
        if known is not None and known.stamp == stamp and _is_over(folder, known.seen):
            return known
        return Known(stamp=stamp, seen=look(folder))


def _is_over(folder: Path, seen: Seen) -> bool:
    """No host had it, and none has it now."""
    return not (seen.alive or (folder / NAME).exists() or held(folder))


def _stamp(folder: Path) -> tuple[tuple[int, int], ...]:
    """Changes with whatever a host changes in it, and with what is taken away by hand."""
    return tuple(written(folder / part) for part in PARTS)


class Runs:
    def __init__(self, folder: Path, caller: Caller) -> None:
        self.folder = folder
        self._caller = caller
        self._listing = Listing(folder)

    def folder_of(self, run: str) -> Path:
        """Raises DataMissing."""
        folder = self.folder / run
        if _RUN.fullmatch(run) is None or not (folder / "job.json").is_file():
            raise DataMissing(f"There is no run {run[:100]}.", advice="Choose one of the list.")
        return folder

    def entrance(self, run: str) -> Entrance | None:
        """Where its host says it is; None: no host says so."""
        try:
            return read(self.folder_of(run) / NAME)
        except RecursionError:  # nobody to be believed
            return None

    def job_of(self, run: str) -> str:
        """What its host calls it: its folder may have been renamed since. Raises DataMissing."""
        try:
            return id_in(self.folder_of(run))
        except DAMAGED:
            return run

    async def every(self) -> list[Seen]:
        """The newest first; those that cannot be read are left out."""
        return await self._listing.take()

    async def ask(self, run: str, method: str, path: str, *, body: bytes | None = None) -> Reply:
        """What its host answers. The token goes only to one that says it has this run. Raises
        DataMissing, Unreachable."""
        entrance = self.entrance(run)
        if entrance is None:
            raise Unreachable(
                f"No host is at work on {run}.", advice="Let it go on, or look at what is there."
            )
        status = await self._caller.ask(entrance, "GET", "/status")
        if not is_of(status, self.job_of(run)):
            raise Unreachable(f"No host is at work on {run}.", advice="Let it go on.")
        return await self._caller.ask(entrance, method, path, body=body, owner=True)


def is_of(status: Reply, job: str) -> bool:
    """Whether that host has this job: another may listen where a dead one did."""
    try:
        return status.code == 200 and status.told(dict[str, Any]).get("job") == job
    except ValueError:
        return False


async def is_left(folder: Path, patience_s: float = ENDING_S) -> bool:
    """Whether no host has the run. One that has ended and writes its results is waited for."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while await asyncio.to_thread(held, folder):
                if not await asyncio.to_thread(_has_ended, folder):
                    return False
                await asyncio.sleep(LOOK_S)
            return True
    return False


def _has_ended(folder: Path) -> bool:
    try:
        return state_in(folder) in ("ending", *OVER)
    except DAMAGED:
        return False


async def left_of(folder: Path, read: Callable[[Path], T]) -> T:
    """What a run's folder tells. Raises DataMalformed: it may be damaged, or a stranger's."""
    try:
        found = await asyncio.to_thread(read, folder)
        if isinstance(found, bytes):
            decoded(found)
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        raise DataMalformed(
            f"What is left of {folder.name} cannot be read: {type(error).__name__}.",
            advice="Its folder may be damaged: look at another run.",
        ) from error
    return found
