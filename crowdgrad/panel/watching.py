"""Asks hosts and the volunteer how they are, only while somebody listens, and tells the hub."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from crowdgrad.errors import DataError, Unreachable
from crowdgrad.host.remote.control_file import Entrance
from crowdgrad.host.telling import afterwards
from crowdgrad.host.telling.recent import LogPart
from crowdgrad.panel.calls import Caller
from crowdgrad.panel.children import Children
from crowdgrad.panel.hub import Hub
from crowdgrad.panel.runs import Runs, is_of, left_of

EVERY_S = 0.5
SWARM_EVERY = 4
"""Of so many looks one is for the swarm."""
PATIENCE_S = 3.0


class Watching:
    def __init__(self, hub: Hub, runs: Runs, children: Children, caller: Caller) -> None:
        self._hub = hub
        self._runs = runs
        self._children = children
        self._caller = caller
        self._tasks: dict[str, asyncio.Task[None]] = {}
        hub.changed = self.arrange

    def arrange(self) -> None:
        """Follow what is listened to, and nothing else."""
        wanted = self._hub.runs | ({""} if self._hub.listeners else set())
        for gone in set(self._tasks) - wanted:
            self._tasks.pop(gone).cancel()
        for run in wanted - set(self._tasks):
            follow = self._follow_run(run) if run else self._follow_work()
            self._tasks[run] = asyncio.create_task(follow)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow_run(self, name: str) -> None:
        look = _Look(name, self._hub, self._caller)
        while True:
            with contextlib.suppress(Unreachable, DataError, OSError, ValueError):
                child = self._children.find(name)
                run = child.state().run if child is not None else name
                entrance = self._runs.entrance(run) if run else None
                if run and entrance is not None:
                    await look.at(self._runs.job_of(run), entrance)
                elif run:
                    await look.back_at(self._runs.folder_of(run))
            await asyncio.sleep(EVERY_S)

    async def _follow_work(self) -> None:
        while True:
            worker = self._children.working()
            entrance = worker.entrance if worker is not None else None
            if entrance is None:  # also while it starts: what one before it said is over
                self._hub.publish("work", None)
            else:
                with contextlib.suppress(Unreachable, ValueError):
                    reply = await self._caller.ask(
                        entrance, "GET", "/status", owner=True, patience_s=PATIENCE_S
                    )
                    if reply.code == 200 and reply.told(dict[str, Any]):
                        self._hub.publish("work", reply.body)
            await asyncio.sleep(EVERY_S)


class _Look:
    """At one run, again and again."""

    def __init__(self, name: str, hub: Hub, caller: Caller) -> None:
        self._name = name
        self._hub = hub
        self._caller = caller
        self._looks = 0
        self._next: int | None = None
        """The number of the next log line; None: this host was not asked yet."""
        self._of: Entrance | None = None
        self._read: int | None = None
        """When the last status of a run without a host was written."""

    async def at(self, job: str, entrance: Entrance) -> None:
        """Raises Unreachable, ValueError."""
        if entrance != self._of:  # another host of the same run counts anew
            self._of, self._looks, self._next = entrance, 0, None
        status = await self._caller.ask(entrance, "GET", "/status", patience_s=PATIENCE_S)
        if not is_of(status, job):
            return
        self._hub.publish("status", status.body, run=self._name)
        log = await self._caller.ask(
            entrance, "GET", f"/log?after={self._next or 0}", owner=True, patience_s=PATIENCE_S
        )
        if log.code == 200:
            told, anew = log.told(LogPart), self._next is None
            self._next = told.next
            if told.lines:
                self._hub.lines(self._name, told.lines, anew=anew)
        if self._looks % SWARM_EVERY == 0:
            swarm = await self._caller.ask(entrance, "GET", "/swarm", patience_s=PATIENCE_S)
            if swarm.code == 200 and swarm.told(dict[str, Any]):
                self._hub.publish("swarm", swarm.body, run=self._name)
        self._looks += 1

    async def back_at(self, folder: Path) -> None:
        """At a run whose host has ended: its last words, once."""
        written = (folder / "job.json").stat().st_mtime_ns
        if written != self._read:
            self._read = written
            told = await left_of(folder, afterwards.status)
            if told is not None:
                self._hub.publish("status", told, run=self._name)
