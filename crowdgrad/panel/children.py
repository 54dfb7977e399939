"""The hosts and volunteers the panel has started, and how each of them fares.

A child is *starting* until it has written where its API is (`--announce`), then *running*; at its
end *over*, or *failed* with what it said last. All are tied to the panel by their standard input:
whatever happens to it, they end. A host's run keeps its checkpoints and can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crowdgrad.errors import UserError, one_line
from crowdgrad.host.remote.control_file import Entrance, read
from crowdgrad.panel.problems import Problem, of_output
from crowdgrad.process import Child, end_all

Kind = Literal["host", "work"]
State = Literal["starting", "running", "over", "failed"]
POLL_S = 0.2
PATIENCE_S = 15.0
"""How long a child may take to end: a capture is not broken off."""
TAIL_BYTES = 8192
MOST_LOG_BYTES = 1 << 20
"""What a child says is for its last words: a log that is longer begins anew."""
RESUME = "--resume"
"""What a host is told with the folder of a run that it is to go on with."""
MOST_ENDED = 20
"""Children that have ended and are still told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildState:
    id: str
    kind: Kind
    state: State
    doing: str
    """What it said last."""
    run: str | None
    """The run of a host, once it has begun."""
    title: str
    """Of its job; empty until then, and of a volunteer."""
    error: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelState:
    """What the event `panel` tells."""

    children: tuple[ChildState, ...]


class Started:
    """One of them."""

    def __init__(self, kind: Kind, arguments: Sequence[str], folder: Path) -> None:
        self.id = f"{kind}-{secrets.token_hex(4)}"
        self.kind = kind
        self.announced = folder / f"{self.id}.json"
        self._log = folder / f"{self.id}.log"
        self._size = -1
        self._doing = ""
        self._run: str | None = None
        self._title = ""
        self._ready = False
        self._last: ChildState | None = None
        """How it ended: read once, since all are asked again and again."""
        self.asked_to_stop = False
        self._resumes = (
            Path(arguments[arguments.index(RESUME) + 1]) if RESUME in arguments else None
        )
        self.child = Child([*arguments, "--announce", str(self.announced)], log=self._log)

    @property
    def alive(self) -> bool:
        return self.child.code is None

    @property
    def entrance(self) -> Entrance | None:
        """Where a volunteer's API is; that of a host stands in its run folder."""
        return read(self.announced)

    def begins_again(self, folder: Path) -> bool:
        """Whether it is about to go on with that run: until it does, the folder tells of before."""
        return self._resumes == folder and self.alive and self.state().state == "starting"

    def stop(self) -> None:
        self.asked_to_stop = True
        self.child.ask_to_stop()

    def forget(self) -> None:
        """Delete what it has written: nobody asks for it any more."""
        for file in (self._log, self.announced):
            file.unlink(missing_ok=True)

    def state(self) -> ChildState:
        if self._last is not None:
            return self._last
        code = self.child.code  # before its last words are read
        told = self._state(code)
        if code is not None:
            self._last = told
            self.child.ask_to_stop()  # nobody reads the pipe any more
        return told

    def _state(self, code: int | None) -> ChildState:
        size = self._listen()
        state: State = "running" if self._ready else "starting"
        error = None
        if code is not None:
            fine = code == 0 or self.asked_to_stop or self._ready_and_over()
            state = "over" if fine else "failed"
            if not fine:
                error = of_output(self._tail(), f"The {self.kind} ended with {code}.")
        if size > MOST_LOG_BYTES:  # now that its last words are read
            with contextlib.suppress(OSError):
                os.truncate(self._log, 0)  # it is written at its end, wherever that is
        return ChildState(
            id=self.id,
            kind=self.kind,
            state=state,
            doing=self._doing,
            run=self._run,
            title=self._title,
            error=error,
        )

    def _listen(self) -> int:
        """How long its log is. Its files may go at any moment: it takes them away as it ends."""
        if not self._ready:
            self._read_announced()
        try:
            size = self._log.stat().st_size
        except OSError:
            size = 0
        if size != self._size:
            self._size = size
            lines = self._tail().strip().splitlines()
            self._doing = lines[-1].strip()[:300] if lines else self._doing
        return size

    def _read_announced(self) -> None:
        try:
            told = json.loads(self.announced.read_bytes())
        except (OSError, ValueError):
            return  # not there yet, being written, or gone
        if self.kind == "host":
            self._folder = Path(told["folder"])
            self._run = self._folder.name
            self._title = one_line(str(told.get("title", "")))
        self._ready = True

    def _ready_and_over(self) -> bool:
        """Whether a run ended as its owner wished, though not with its last epoch."""
        if self.kind != "host" or not self._ready:
            return False
        try:
            told = json.loads((self._folder / "job.json").read_bytes())
        except (OSError, ValueError):
            return False
        return isinstance(told, dict) and told.get("state") in ("finished", "stopped")

    def _tail(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - TAIL_BYTES))
                return file.read(TAIL_BYTES).decode(errors="replace")
        except OSError:
            return ""


class Children:
    def __init__(self, folder: Path, changed: Callable[[PanelState], None]) -> None:
        """`folder`: for their logs and announcements. `changed` hears of every change."""
        self._folder = folder
        self._changed = changed
        self._all: dict[str, Started] = {}
        self._told: PanelState | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def start(self, kind: Kind, arguments: Sequence[str]) -> Started:
        """Raises UserError where its arguments are no words."""
        try:
            started = Started(kind, arguments, self._folder)
        except ValueError as error:
            raise UserError(f"That cannot be said: {error}.", advice="Type it anew.") from None
        self._all[started.id] = started
        ended = [child for child in self._all.values() if not child.alive]
        for old in ended[:-MOST_ENDED]:
            del self._all[old.id]
            old.forget()
        self.look()
        return started

    def states(self) -> tuple[ChildState, ...]:
        return tuple(started.state() for started in self._all.values())

    def find(self, name: str) -> Started | None:
        """A child by its own id."""
        return self._all.get(name)

    def of_run(self, run: str) -> Started | None:
        """The child that hosts a run, the latest first."""
        for started in reversed(list(self._all.values())):
            if started.kind == "host" and started.state().run == run:
                return started
        return None

    def begins_again(self, folder: Path) -> bool:
        """Whether one of them is about to go on with that run."""
        return any(started.begins_again(folder) for started in self._all.values())

    def working(self) -> Started | None:
        """The volunteer that lives."""
        for started in self._all.values():
            if started.kind == "work" and started.alive:
                return started
        return None

    def last_worker(self) -> Started | None:
        found = [started for started in self._all.values() if started.kind == "work"]
        return found[-1] if found else None

    def stop(self, started: Started) -> None:
        """Ask it to end; one that does not is killed."""
        started.stop()
        task = asyncio.create_task(self._see_off(started))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def look(self) -> None:
        """Tell of what has changed."""
        told = PanelState(children=self.states())
        if told != self._told:
            self._told = told
            self._changed(told)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(POLL_S)

    def end(self) -> None:
        """End all of them, politely first. Blocks: call it in a thread."""
        end_all([started.child for started in self._all.values() if started.alive], PATIENCE_S)

    async def _see_off(self, started: Started) -> None:
        if not await asyncio.to_thread(started.child.wait, PATIENCE_S):
            await asyncio.to_thread(started.child.kill)
        self.look()
