"""The agent's side of the trainer: start it, give it one unit at a time, notice when it goes wrong.

A trainer runs a stranger's program, so nothing it says or does is taken for granted. One that
hangs, grows, dies or talks nonsense is ended and replaced; whoever waited for it is told why.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from typing import TypeVar

import msgspec

from crowdgrad.errors import (
    ChildDied,
    ComputeError,
    CrowdgradError,
    DataError,
    MachineError,
    MessageError,
    ProgramError,
    ProgramRefused,
    UserError,
    one_line,
    tree,
)
from crowdgrad.settings import child_environment, trainer_environment
from crowdgrad.volunteer import talk, vitals
from crowdgrad.volunteer.answers import Answers
from crowdgrad.volunteer.arena import Arena

MAX_DEATHS = 3
START_S = 60.0
TRUSTED_START_S = 600.0
"""PyTorch may have to be loaded from a cold disk, the model compared; the first unit compiles."""
PATIENCE_FACTOR = 10.0
DYING_S = 1.0
STDERR_KEPT = 2000
STDERR_MOST = 16 << 20
"""Bytes a trainer may write there in its life: to read them takes our time, not its own."""
GROWTH = 1.5
"""How far beyond its prediction a trainer's memory may go before we end it ourselves: the kernel's
limit, where there is one, is nearer."""
START_TRAINER = "crowdgrad.volunteer.start_trainer"

A = TypeVar("A", bound=talk.ToAgent)
Note = Callable[[str], None]


class TrainerLink:
    """One trainer process, replaced when it dies. `compute` calls wait for each other."""

    def __init__(
        self,
        arena: Arena,
        setup: talk.Setup,
        *,
        walls: bool = True,
        note: Note = lambda text: None,
    ) -> None:
        """`walls`: False only to measure what they cost. `note` hears of every trainer that starts
        and ends.
        """
        self._arena = arena
        self._setup = setup
        self._walls = walls and setup.trusted is None
        self._note = note
        self._process: asyncio.subprocess.Process | None = None
        self._answers: Answers | None = None
        self._turn = asyncio.Lock()
        self._errors: asyncio.Task[bytes] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """That wait for the answers of callers that went."""
        self._starting: asyncio.Task[None] | None = None
        """That goes on although the caller for whom it began may have gone."""
        self._threads = setup.threads
        """Of the process that runs."""
        self._until: float | None = None
        """When the answer to a unit must be there; None: none was asked for that is to come."""
        self._patience_s = 0.0
        self._closing = False
        self._slowest_s: dict[int, float] = {}
        """By how many threads computed it."""
        self._turns = 0
        self._idle_since: vitals.Vitals | None = None
        self._why = ""
        self.checked: talk.Checked | None = None
        self.deaths = 0
        self.engine = ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def broken(self) -> bool:
        """It has died too often: no new one is started for this job."""
        return self.deaths >= MAX_DEATHS

    async def check(self) -> talk.Checked:
        """Start a trainer and have it check the program. Raises ProgramRefused or ChildDied."""
        async with self._turn:
            return await self._check()

    async def start(self) -> None:
        """Have the program loaded, after `check` or with it. Raises ProgramRefused or ChildDied."""
        async with self._turn:
            await self._start()

    async def compute(
        self, ask: talk.Compute, share: Callable[[], float] | None = None
    ) -> talk.Computed:
        """Raises ChildDied (the next call starts a new trainer) or what the trainer reports.

        `share`: in place of `ask.share`, asked when its turn has come, which may be long after the
        call; it may name other threads (`use`). Where it raises, the trainer is asked for nothing.

        A caller that is cancelled goes at once; the trainer still finishes the unit before it takes
        the next, so question and answer on the pipe never fall out of step.
        """
        await self._turn.acquire()
        try:
            if share is not None:
                ask = msgspec.structs.replace(ask, share=share())
            answer = await self._compute(ask)
        except asyncio.CancelledError:
            if self._until is None and self._starting is None:  # nothing is under way
                self._turn.release()
            else:
                task = asyncio.create_task(self._hear_out())
                self._tasks.add(task)
                task.add_done_callback(self._heard_out)
            raise
        except BaseException:
            self._until = self._starting = None
            self._turn.release()
            raise
        self._turn.release()
        return answer

    async def extend(self, setup: talk.Setup, place: Callable[[], None]) -> None:
        """The data has grown: `place` puts its manifest into the arena, `setup` is as before but
        for where the new shards lie. Raises what the trainer reports, or ChildDied: the next one
        starts with what is there now."""
        async with self._turn:
            known = self._setup.plan.shards
            place()
            self._setup = setup = msgspec.structs.replace(setup, threads=self._setup.threads)
            if self._process is None or not self.engine:
                return
            new = {n: region for n, region in setup.plan.shards.items() if n not in known}
            news = talk.Extend(manifest=setup.plan.manifest, shards=new)
            await self._ask(news, talk.Extended, self._start_s)

    def use(self, threads: int) -> None:
        """From the next unit on, by another trainer: this one ends when its turn is over."""
        self._setup = msgspec.structs.replace(self._setup, threads=threads)

    async def settled(self) -> None:
        """Wait until all that was asked before is answered, also to callers that went."""
        async with self._turn:
            return

    async def reject(self, why: str) -> ChildDied:
        """End a trainer whose answer cannot be true; the error to raise for it."""
        async with self._turn:
            return await self._misbehaved(why)

    async def close(self) -> None:
        self._closing = True
        await self._end()
        begun = [self._starting] if self._starting is not None else []
        await asyncio.gather(*begun, *self._tasks, return_exceptions=True)

    async def _hear_out(self) -> None:
        """Wait, in the turn of a caller that went, for what it would have waited for."""
        if self._starting is not None:
            try:
                await self._starting
            finally:
                self._starting = None
        else:
            await self._answer(talk.Computed)

    def _heard_out(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._turn.release()
        if not task.cancelled():
            task.exception()  # a caller that went needs no news of it

    async def _compute(self, ask: talk.Compute) -> talk.Computed:
        if self._process is None or self._threads != self._setup.threads:
            self._starting = asyncio.create_task(self._start_anew())
            await asyncio.shield(self._starting)
            self._starting = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._turns += 1
        ask = msgspec.structs.replace(ask, turn=self._turns)
        # One that is stuck is ended by `_watch`: a timer for every unit would cost more.
        self._patience_s = self._patience(ask)
        self._until = began + self._patience_s
        await self._say(ask)
        answer = await self._answer(talk.Computed)
        if answer.turn != ask.turn:
            raise await self._misbehaved("it spoke though it was not asked")
        if answer.unit != ask.unit.id:
            raise await self._misbehaved(
                f"it was asked for unit {ask.unit.id} and answered for {answer.unit}"
            )
        slowest_s = self._slowest_s.get(self._threads, 0.0)
        self._slowest_s[self._threads] = max(slowest_s, loop.time() - began)
        return answer

    async def _check(self) -> talk.Checked:
        if self._closing:
            raise ChildDied("The trainer is being stopped.")
        if self.broken:
            raise ChildDied(
                f"The trainer died {self.deaths} times on this job.",
                advice="This machine leaves the job.",
                story=f"died {self.deaths} times",
            )
        await self._spawn()
        if self._closing:  # it came too late to be ended with the others
            await self._end()
            raise ChildDied("The trainer is being stopped.")
        setup = self._setup
        self._threads = setup.threads
        self.checked = await self._ask(setup, talk.Checked, self._start_s)
        return self.checked

    async def _start_anew(self) -> None:
        """The next trainer, with as many threads as are wanted by now."""
        if self._process is not None:
            await self._end()
        await self._start()

    async def _start(self) -> None:
        if self._process is None:
            await self._check()
        ready = await self._ask(talk.Begin(), talk.Ready, self._start_s)
        self.engine = ready.engine
        self._note(f"Trainer {self.pid} computes with {self.engine}.")
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def _spawn(self) -> None:
        self._answers = answers = Answers()
        self._why, self._idle_since = "", None
        walls = "on" if self._walls else "off"
        # An owner's own model may need what the owner has set; a stranger's program needs nothing.
        own = self._setup.trusted is not None
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", START_TRAINER, str(self._arena.fd), walls,
                stdin=asyncio.subprocess.PIPE,
                stdout=answers.theirs,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(self._arena.fd,),
                env=child_environment({}) if own else trainer_environment(),
            )  # fmt: skip
        except BaseException:
            answers.close()
            raise
        answers.begun()
        assert self._process.stderr is not None
        self._errors = asyncio.create_task(_tail(self._process.stderr, self._flooded))

    @property
    def _start_s(self) -> float:
        return START_S if self._setup.trusted is None else TRUSTED_START_S

    def _patience(self, ask: talk.Compute) -> float:
        """How long a stretch may take before the trainer is taken for stuck."""
        pauses_s = self._setup.pace_s * len(ask.numbers)
        first = not self._slowest_s and self._setup.trusted is not None
        least_s = TRUSTED_START_S if first else START_S
        known = self._slowest_s.items()
        slowest_s = max((s * max(1.0, n / self._threads) for n, s in known), default=0.0)
        return pauses_s + max(least_s, PATIENCE_FACTOR * slowest_s) / ask.share

    async def _ask(self, message: talk.ToTrainer, wanted: type[A], patience_s: float) -> A:
        """Before there is a `_watch`: one that is stuck is ended, and read as any that died."""
        watch = asyncio.get_running_loop().call_later(patience_s, self._kill, _stuck(patience_s))
        try:
            await self._say(message)
            return await self._answer(wanted)
        finally:
            watch.cancel()

    async def _say(self, message: talk.ToTrainer) -> None:
        process, answers = self._process, self._answers
        assert process is not None
        assert process.stdin is not None
        assert answers is not None
        self._idle_since = None
        if answers.waiting:
            raise await self._misbehaved("it spoke though it was not asked")
        try:
            process.stdin.write(talk.encode(message))
        except ConnectionError:
            raise await self._died(process) from None

    async def _answer(self, wanted: type[A]) -> A:
        """What it answers to what it was asked last. Raises what went wrong."""
        process, answers = self._process, self._answers
        assert process is not None
        assert answers is not None
        try:
            answer = talk.decode_for_agent(await answers.next())
        except asyncio.CancelledError:
            raise  # it is still to come
        except (EOFError, ConnectionError):
            self._until = None
            raise await self._died(process) from None
        except MessageError as error:
            self._until = None
            raise await self._misbehaved(error.message) from None
        self._until = None
        if isinstance(answer, talk.Failed):
            raise _as_error(answer, own=self._setup.trusted is not None)
        if not isinstance(answer, wanted):
            raise await self._misbehaved(f"it answered with {type(answer).__name__}")
        return answer

    async def _watch(self) -> None:
        """End it when it grows, or computes though nobody asked, however little it says."""
        while True:
            await asyncio.sleep(vitals.EVERY_S)
            if self._until is not None and asyncio.get_running_loop().time() > self._until:
                self._kill(_stuck(self._patience_s))
            process, checked = self._process, self.checked
            now = vitals.look(process.pid) if process is not None else None
            if process is None or now is None or checked is None or self._setup.trusted is not None:
                continue
            allowed = vitals.Allowed(private_bytes=int(GROWTH * checked.memory_bytes))
            vitals.lend_time(process.pid, now)
            why = vitals.judge(now, self._idle_since, allowed)
            if why is not None:
                self._kill(why)
            elif self._idle_since is None and not self._turn.locked():
                self._idle_since = now

    def _flooded(self) -> None:
        if self._setup.trusted is None:  # an owner's own model may say what it likes
            self._kill("it floods its pipe")

    def _kill(self, why: str) -> None:
        self._why = self._why or why
        if self._process is not None:
            _kill(self._process)

    async def _misbehaved(self, why: str) -> ChildDied:
        process = self._process
        if process is None:
            return ChildDied(f"The trainer was ended: {why}.")
        self._kill(why)
        return await self._died(process)

    async def _died(self, process: asyncio.subprocess.Process) -> ChildDied:
        if self._closing:
            return ChildDied("The trainer is being stopped.")
        self._until = None
        self.deaths += 1
        code = await self._see_off(process)
        said = (await self._errors) if self._errors is not None else b""
        lines = one_line_each(said)
        story = _story(code, self._why)
        message = f"The trainer (process {process.pid}) {story}"
        message += f": {lines[-1][:200]}." if lines else "."
        self._note(message)
        again = "A new one is started; the unit goes to somebody else."
        over = "This machine leaves the job."
        # Before it had judged the program, only our own code can have raised an exception.
        local = code > 0 and self.checked is None and not self._why
        return ChildDied(message, advice=over if self.broken else again, story=story, local=local)

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
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
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


def _stuck(patience_s: float) -> str:
    return f"it did not answer for {patience_s:,.0f} s"


def one_line_each(said: bytes) -> list[str]:
    """What a process wrote, as lines fit for a screen."""
    return [line for raw in said.decode(errors="replace").splitlines() if (line := one_line(raw))]


def _story(code: int, why: str) -> str:
    """How a trainer came to its end, in words."""
    if why:
        return f"was ended because {why}"
    if code == -getattr(signal, "SIGSYS", 31):
        return "was ended by the system because it tried something it has no right to"
    if code == -9:  # SIGKILL
        return "was killed by somebody, or by the system for want of memory"
    if code < 0:
        return f"ended with code {code} ({_signal_name(-code)})"
    return f"ended with code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.strsignal(number) or f"signal {number}"
    except ValueError:
        return f"signal {number}"


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def _tail(stream: asyncio.StreamReader, flooded: Callable[[], None]) -> bytes:
    """The last of what it writes; `flooded` is called when that is too much."""
    kept, left = b"", STDERR_MOST
    while block := await stream.read(1 << 16):
        kept, left = (kept + block)[-STDERR_KEPT:], left - len(block)
        if left < 0:
            flooded()
    return kept


def _as_error(failure: talk.Failed, *, own: bool) -> CrowdgradError:
    """What the trainer reports: of its program and data; with an owner's own model, of more."""
    roots = (ProgramError, DataError, UserError, MachineError) if own else (ProgramError, DataError)
    kinds = {error.code: error for root in roots for error in tree(root)}
    kind = kinds.get(failure.code, ComputeError)
    message, advice = one_line(failure.message)[:500], one_line(failure.advice)[:500]
    if kind is ProgramRefused:
        return ProgramRefused(message, advice=advice, needs_bytes=failure.needs_bytes)
    return kind(message, advice=advice)
