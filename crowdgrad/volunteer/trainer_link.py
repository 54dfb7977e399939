"""The agent's side of the trainer: start it, give it one unit at a time, notice when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from crowdgrad.errors import ChildDied, ComputeError, CrowdgradError, MessageError, tree
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.answers import Answers
from crowdgrad.volunteer.arena import Arena

MAX_DEATHS = 3
START_S = 60.0
TRUSTED_START_S = 600.0
"""PyTorch may have to be loaded from a cold disk, the model compared; the first unit compiles."""
PATIENCE_FACTOR = 10.0
DYING_S = 1.0
STDERR_KEPT = 2000


class TrainerLink:
    """One trainer process, replaced when it dies. `compute` calls wait for each other."""

    def __init__(self, arena: Arena, setup: talk.Setup) -> None:
        self._arena = arena
        self._setup = setup
        self._process: asyncio.subprocess.Process | None = None
        self._answers: Answers | None = None
        self._turn = asyncio.Lock()
        self._errors: asyncio.Task[bytes] | None = None
        self._tasks: set[asyncio.Task[talk.Computed]] = set()
        self._closing = False
        self._slowest_s = 0.0
        self.deaths = 0
        self.engine = ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def broken(self) -> bool:
        """It has died too often: no new one is started for this job."""
        return self.deaths >= MAX_DEATHS

    async def start(self) -> None:
        """Raises ProgramRefused (its program, or its local rule) or ChildDied."""
        async with self._turn:
            await self._start()

    async def compute(self, ask: talk.Compute) -> talk.Computed:
        """Raises ChildDied (the next call starts a new trainer) or what the trainer reports.

        A caller that is cancelled goes at once; the trainer still finishes the unit before it takes
        the next, so question and answer on the pipe never fall out of step.
        """
        task = asyncio.create_task(self._compute(ask))
        self._tasks.add(task)
        task.add_done_callback(self._computed)
        return await asyncio.shield(task)

    async def close(self) -> None:
        self._closing = True
        await self._end()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _computed(self, task: asyncio.Task[talk.Computed]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits gets it; a caller that went needs no news of it

    async def _compute(self, ask: talk.Compute) -> talk.Computed:
        async with self._turn:
            if self._process is None:
                await self._start()
            began = asyncio.get_running_loop().time()
            answer = await self._ask(ask, self._patience_s(ask))
            self._slowest_s = max(self._slowest_s, asyncio.get_running_loop().time() - began)
        if not isinstance(answer, talk.Computed) or answer.unit != ask.unit.id:
            raise MessageError(f"The trainer answered unit {ask.unit.id} with {answer}.")
        return answer

    async def _start(self) -> None:
        if self._closing:
            raise ChildDied("The trainer is being stopped.")
        if self.broken:
            raise ChildDied(
                f"The trainer died {self.deaths} times on this job.",
                advice="This machine will not work on it any more.",
            )
        self._answers = answers = Answers()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "crowdgrad.volunteer.trainer", str(self._arena.fd),
                stdin=asyncio.subprocess.PIPE,
                stdout=answers.theirs,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(self._arena.fd,),
            )  # fmt: skip
        except BaseException:
            answers.close()
            raise
        answers.begun()
        assert self._process.stderr is not None
        self._errors = asyncio.create_task(_tail(self._process.stderr))
        patience_s = START_S if self._setup.trusted is None else TRUSTED_START_S
        answer = await self._ask(self._setup, patience_s)
        if not isinstance(answer, talk.Ready):
            raise MessageError(f"The trainer began with {answer}.")
        self.engine = answer.engine

    def _patience_s(self, ask: talk.Compute) -> float:
        """How long a stretch may take before the trainer is taken for stuck."""
        pauses_s = self._setup.pace_s * len(ask.numbers)
        first = self._slowest_s == 0.0 and self._setup.trusted is not None
        least_s = TRUSTED_START_S if first else START_S
        return pauses_s + max(least_s, PATIENCE_FACTOR * self._slowest_s)

    async def _ask(self, message: talk.ToTrainer, patience_s: float) -> talk.ToAgent:
        process, answers = self._process, self._answers
        assert process is not None
        assert process.stdin is not None
        assert answers is not None
        # One that is stuck is ended, and then read as any that died. A timer costs a tenth of what
        # asyncio.timeout does, and this is crossed for every unit.
        watch = asyncio.get_running_loop().call_later(patience_s, _kill, process)
        try:
            process.stdin.write(talk.encode(message))
            answer = talk.decode_for_agent(await answers.next())
        except (EOFError, ConnectionError):
            raise await self._died(process) from None
        finally:
            watch.cancel()
        if isinstance(answer, talk.Failed):
            raise _as_error(answer)
        return answer

    async def _died(self, process: asyncio.subprocess.Process) -> ChildDied:
        if self._closing:
            return ChildDied("The trainer is being stopped.")
        self.deaths += 1
        code = await self._see_off(process)
        said = (await self._errors) if self._errors is not None else b""
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        return ChildDied(
            f"The trainer (process {process.pid}) ended with code {code}"
            + (f": {last[0][:200]}." if last else "."),
            advice="A new one is started; the unit goes to somebody else.",
        )

    async def _see_off(self, process: asyncio.subprocess.Process) -> int:
        """The exit code of a process that has closed its end of the pipe."""
        # Not killed at once: asyncio's kill looks first whether the process has ended, and then the
        # exit code is lost to whoever waits for it.
        self._process = None
        self._hush()
        try:
            async with asyncio.timeout(DYING_S):
                return await process.wait()
        except TimeoutError:
            _kill(process)
            return await process.wait()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        await process.wait()
        self._hush()
        if self._errors is not None:
            await asyncio.gather(self._errors, return_exceptions=True)

    def _hush(self) -> None:
        if self._answers is not None:
            self._answers.close()
            self._answers = None


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def _tail(stream: asyncio.StreamReader) -> bytes:
    kept = b""
    while block := await stream.read(4096):
        kept = (kept + block)[-STDERR_KEPT:]
    return kept


def _as_error(failure: talk.Failed) -> CrowdgradError:
    kind = next(
        (error for error in tree(CrowdgradError) if error.code == failure.code), ComputeError
    )
    return kind(failure.message, advice=failure.advice)
