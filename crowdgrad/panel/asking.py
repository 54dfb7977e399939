"""Models of runs whose hosts have ended, asked in processes of their own: one a run, while it is
used. The panel itself loads no engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

from crowdgrad.host.folder import RESUME
from crowdgrad.host.keeping.resume import CHECKPOINTS
from crowdgrad.panel.problems import Problem
from crowdgrad.panel.tasks import Failed, begin, end, last_words, problem_of

IDLE_S = 60.0
"""How long a process waits for the next question."""
PATIENCE_S = 60.0
"""For an answer: the first one waits until the job is read, too."""
AT_ONCE = 2
"""Models kept ready; of those that nobody asks, the one asked longest ago ends first."""
MOST_BUSY = 6
"""Models asked at once."""

NO_ANSWER = Problem(
    code="",
    message="The model does not answer.",
    advice="Ask again; where this machine has much to do, wait until it has less.",
)


TOO_MANY = Problem(
    code="",
    message="Many other models are asked just now.",
    advice="Ask again in a moment.",
)


class Askers:
    def __init__(self) -> None:
        self._all: dict[Path, _Asker] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._over = False

    async def ask(self, folder: Path, question: dict[str, Any]) -> Any:
        """Raises Failed."""
        if self._over:
            raise Failed(NO_ANSWER)
        found = self._all.pop(folder, None)
        if found is None:
            if sum(one.asked > 0 for one in self._all.values()) >= MOST_BUSY:
                raise Failed(TOO_MANY)
            found = _Asker(folder)
        self._all[folder] = found
        found.asked += 1
        self._make_room()
        try:
            return await found.ask(question)
        finally:
            found.asked -= 1
            self._make_room()

    def _make_room(self) -> None:
        """End who is not needed, and wait for nobody: whoever is asked stays, and is known."""
        idle = [folder for folder, one in self._all.items() if not one.asked]
        for old in idle[: max(0, len(self._all) - AT_ONCE)]:
            task = asyncio.create_task(self._all.pop(old).end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def end(self) -> None:
        """At once, whoever still waits for an answer."""
        self._over = True
        for found in self._all.values():
            found.kill()
        await asyncio.gather(*self._ending, *(found.end() for found in self._all.values()))
        self._all.clear()


class _Asker:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.asked = 0
        """How many questions wait for its answer."""
        self._process: asyncio.subprocess.Process | None = None
        self._knows = 0
        """When the last checkpoint was written that it may have read."""
        self._one = asyncio.Lock()
        self._killed = False
        self._leaving: asyncio.Task[None] | None = None

    async def ask(self, question: dict[str, Any]) -> Any:
        """Raises Failed."""
        async with self._one:
            if self._leaving is not None:
                self._leaving.cancel()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    told = await self._put(json.dumps(question).encode() + b"\n")
            except BaseException as error:  # an answer may come yet, to a question nobody asks
                await self._end()
                if isinstance(error, TimeoutError | OSError | ValueError):
                    raise Failed(NO_ANSWER) from error
                raise
            self._leaving = asyncio.create_task(self._leave())
        if "error" in told:
            raise Failed(problem_of(told["error"]))
        return told["result"]

    def kill(self) -> None:
        """Who is being asked, and whoever would be asked from now on."""
        self._killed = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def end(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        async with self._one:
            await self._end()

    async def _put(self, question: bytes) -> dict[str, Any]:
        written = _written_at(self._folder)
        if written != self._knows:  # a host has gone on with the run since
            await self._end()
        process = self._process
        if process is None and not self._killed:
            self._knows = written
            arguments = ["crowdgrad.panel.errands.asking", str(self._folder)]
            process = self._process = await begin(arguments)
        if process is None or self._killed:
            raise OSError("nobody asks it any more")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(question)
        line = await process.stdout.readline()
        if not line:
            raise Failed(await last_words(process, "The model could not be asked."))
        told: dict[str, Any] = json.loads(line)
        return told

    async def _leave(self) -> None:
        await asyncio.sleep(IDLE_S)
        async with self._one:
            await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await end(process)


def _written_at(run: Path) -> int:
    try:
        return (run / RESUME / CHECKPOINTS).stat().st_mtime_ns
    except OSError:
        return 0
