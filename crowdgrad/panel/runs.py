"""The runs the panel shows, and the way to the host of each; ids as `crowdgrad runs` has them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from crowdgrad.errors import DataError, DataMalformed, DataMissing, Unreachable
from crowdgrad.host.remote.control_file import NAME, Entrance, read
from crowdgrad.host.remote.runs import Seen, look, run_folders
from crowdgrad.panel.calls import Caller, Reply, decoded

MOST_SHOWN = 200
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")

T = TypeVar("T")


class Runs:
    def __init__(self, folder: Path, caller: Caller) -> None:
        self.folder = folder
        self._caller = caller

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

    async def every(self) -> list[Seen]:
        """The newest first; those that cannot be read are left out."""
        return await asyncio.to_thread(self._every)

    def _every(self) -> list[Seen]:
        found = []
        for folder in run_folders(self.folder)[:MOST_SHOWN]:
            try:
                found.append(look(folder))
            except DataError:
                continue
        return found

    async def ask(self, run: str, method: str, path: str, *, body: bytes | None = None) -> Reply:
        """What its host answers. The token goes only to one that says it has this run. Raises
        DataMissing, Unreachable."""
        entrance = self.entrance(run)
        if entrance is None:
            raise Unreachable(
                f"No host is at work on {run}.", advice="Resume it to let it go on, or look at it."
            )
        status = await self._caller.ask(entrance, "GET", "/status")
        if not is_of(status, run):
            raise Unreachable(f"No host is at work on {run}.", advice="Resume it.")
        return await self._caller.ask(entrance, method, path, body=body, owner=True)


def is_of(status: Reply, run: str) -> bool:
    """Whether that host has this run: another may listen where a dead one did."""
    try:
        return status.code == 200 and status.told(dict[str, Any]).get("job") == run
    except ValueError:
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
