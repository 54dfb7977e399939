"""What takes long, each in a process of its own: preparing data, checking a model.

An errand (`crowdgrad/panel/errands/`) reads its wish as one line of standard input, to which it
stays tied, and says how far it has come in lines of JSON; the last has its result or its trouble.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from crowdgrad.errors import CrowdgradError, DataMissing
from crowdgrad.panel.problems import BadRecord, Problem, of_error, of_mistake, of_output
from crowdgrad.panel.results import Result
from crowdgrad.settings import child_environment

PATIENCE_S = 3.0
MAX_LINE = 64 << 20
MAX_SAID = 1 << 16
MOST_KEPT = 50
MOST_RUNNING = 8

logger = logging.getLogger(__name__)

Say = Callable[[float | None, str], None]
"""How far it has come (0 to 1; None: nobody knows), and what it does."""
Work = Callable[[Say], Awaitable[Result]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    id: str
    kind: str
    state: Literal["running", "done", "failed", "stopped"] = "running"
    progress: float | None = None
    doing: str = ""
    result: Result | None = None
    error: Problem | None = None


class Failed(Exception):
    """An errand went wrong."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Tasks:
    def __init__(self, changed: Callable[[Task], None]) -> None:
        self._changed = changed
        self._tasks: dict[str, Task] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def start(self, kind: str, work: Work) -> str:
        """Raises CrowdgradError where too many run."""
        if len(self._running) >= MOST_RUNNING:
            raise CrowdgradError(
                f"{MOST_RUNNING} tasks run already.", advice="Wait for one to end, or stop one."
            )
        name = secrets.token_hex(6)
        self._put(Task(id=name, kind=kind))
        self._running[name] = asyncio.create_task(self._run(name, work))
        for old in [one for one in self._tasks if one not in self._running][:-MOST_KEPT]:
            del self._tasks[old]
        return name

    def find(self, name: str) -> Task:
        """Raises DataMissing."""
        if name not in self._tasks:
            raise DataMissing("There is no such task.", advice="Start it again.")
        return self._tasks[name]

    async def stop(self, name: str) -> Task:
        running = self._running.get(name)
        if running is not None:
            running.cancel()
            await asyncio.wait([running])
        return self.find(name)

    async def end(self) -> None:
        await asyncio.gather(*map(self.stop, list(self._running)))

    async def _run(self, name: str, work: Work) -> None:
        def say(progress: float | None, doing: str) -> None:
            self._put(replace(self._tasks[name], progress=progress, doing=doing))

        try:
            result = await work(say)
            end = replace(self._tasks[name], state="done", progress=1.0, result=result)
        except asyncio.CancelledError:
            end = replace(self._tasks[name], state="stopped")
        except CrowdgradError as error:
            end = replace(self._tasks[name], state="failed", error=of_error(error))
        except Failed as error:
            end = replace(self._tasks[name], state="failed", error=error.problem)
        except Exception as error:
            logger.exception("the task %s went wrong", self._tasks[name].kind)
            end = replace(self._tasks[name], state="failed", error=of_mistake(error))
        finally:
            self._running.pop(name, None)
        self._put(end)

    def _put(self, task: Task) -> None:
        self._tasks[task.id] = task
        self._changed(task)


async def errand(name: str, wish: object, say: Say = lambda progress, doing: None) -> Any:
    """What an errand brings back. Raises Failed."""
    async with _started(["crowdgrad.panel.errands", name]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(wish).encode() + b"\n")
        async for line in process.stdout:
            told = _told(line)
            if "result" in told:
                return told["result"]
            if "error" in told:
                raise Failed(problem_of(told["error"]))
            if "doing" in told:
                say(told["progress"], told["doing"])
        raise Failed(await last_words(process, "What was asked for ended without a word."))


async def command(arguments: Sequence[str], answer: Path) -> Any:
    """The JSON that a command of ours writes to the file `answer`. Raises Failed.

    Not to standard output: somebody's own module may print there.
    """
    words = [*arguments, "--json", str(answer), "--tied"]
    async with _started(["crowdgrad", *words]) as process:
        assert process.stdout is not None
        while await process.stdout.read(MAX_SAID):
            pass
        try:
            return json.loads(await asyncio.to_thread(answer.read_bytes))
        except (OSError, ValueError):
            raise Failed(await last_words(process, f"`crowdgrad {arguments[0]}`:")) from None
        finally:
            await asyncio.to_thread(answer.unlink, missing_ok=True)


@contextlib.asynccontextmanager
async def _started(module: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await begin(module)
    try:
        yield process
    finally:
        await asyncio.shield(end(process))


async def begin(module: Sequence[str]) -> asyncio.subprocess.Process:
    """A module of ours as a process: `end` it."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=child_environment({}),
        limit=MAX_LINE,
        start_new_session=True,  # a group of its own, to be ended with all it has started
    )


async def end(process: asyncio.subprocess.Process) -> None:
    """By its standard input, to which it is tied; else by force, with all it has started."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def last_words(process: asyncio.subprocess.Process, otherwise: str) -> Problem:
    assert process.stderr is not None
    said = await process.stderr.read()
    return of_output(said[-MAX_SAID:].decode(errors="replace"), otherwise)


def _told(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}  # a library that prints
    return found if isinstance(found, dict) else {}


def problem_of(told: dict[str, Any]) -> Problem:
    bad = tuple(BadRecord(**one) for one in told.pop("bad", ()))
    return Problem(**told, bad=bad)
