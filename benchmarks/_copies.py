"""The crowd in virtual time (`_crowd.py`) with parameters that servers hold: the real servers.

Host, servers and the volunteers' links to them are those of any job, joined inside this process
(`crowdgrad/net/transport/inproc.py`). What a volunteer pulls it pulls when its unit is granted, as
from a host; averaging goes on beside, while the next updates come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from _crowd import Crowd, Found, Lane

from crowdgrad.domain.job import Job
from crowdgrad.domain.work import Update, Version, VolunteerId
from crowdgrad.host.job import Prepared
from crowdgrad.host.servers.hiring import Hired, Wanted
from crowdgrad.host.servers.server import ParameterServer
from crowdgrad.host.snapshots import Snapshot
from crowdgrad.host.state import Hold
from crowdgrad.host.training import Training
from crowdgrad.net.messages import Push
from crowdgrad.net.transport.inproc import InprocNetwork
from crowdgrad.numerics.vectors import Vector, as_bytes
from crowdgrad.recipes.base import Recipe
from crowdgrad.volunteer.parts import parts_of
from crowdgrad.volunteer.servers import Link, dial

SECRET = b"nobody else is in this process"
BEAT_S, SILENCE_S = 60.0, 1800.0
"""Gradients are computed where heartbeats are sent."""


class ServedCrowd(Crowd):
    """float32 only: what comes is used as it lies."""

    def __init__(
        self,
        prepared: Prepared,
        recipe: Recipe,
        wanted: Wanted,
        *,
        batch_s: Sequence[float],
        epochs: int,
        seed: int,
    ) -> None:
        self._wanted = wanted
        self._network = InprocNetwork()
        self._links: dict[VolunteerId, Link] = {}
        self._listening: list[asyncio.Task[None]] = []
        self._bases: dict[int, Version] = {}
        """By lane: what its server had sent."""
        super().__init__(prepared, recipe, batch_s=batch_s, epochs=epochs, seed=seed)

    def _host(self, job: Job, recipe: Recipe, hold: Hold | None = None) -> Training:
        spec = self._prepared.program.spec
        self._hired = Hired(self._wanted, job, spec, recipe, host="here")
        return super()._host(job, recipe, self._hired.hold)

    async def run(self) -> Found:
        for address in self._wanted.elsewhere:
            name, _, port = address.rpartition(":")
            await self._network.listen(name, int(port), ParameterServer(SECRET).serve)
        fleet = self._hired.fleet(
            lost=_never,
            broken=_broken,
            connect=self._network.connect,
            random01=lambda: 0.5,
            heartbeat_s=BEAT_S,
            silence_s=SILENCE_S,
            logs=Path(),
        )
        await fleet.start()
        try:
            await self._dial()
            return await super().run()
        finally:
            for task in self._listening:
                task.cancel()
            await asyncio.gather(*self._listening, return_exceptions=True)
            await fleet.stop()

    async def _dial(self) -> None:
        """From every volunteer to its server."""
        spec = self._prepared.program.spec
        for me in {event[2].account.volunteer.id: event[2].account.volunteer
                   for event in self._events}.values():  # fmt: skip
            self._hired.parameters.joined(me.id)  # as if it came now: servers know nobody of before
            parts = parts_of(self._hired.places(me.id), spec, "fp32", host="here")
            (link,) = await dial(
                parts, me, connect=self._network.connect, resolve=_as_it_is, host="here"
            )
            self._links[me.id] = link
            listening = link.run(beat_s=BEAT_S, silence_s=SILENCE_S)
            self._listening.append(asyncio.create_task(listening))

    async def _start_of(self, lane: Lane, snapshot: Snapshot) -> Vector:
        state: Vector = np.empty(self._prepared.program.spec.state_words, np.float32)
        link = self._links[lane.account.volunteer.id]
        pulled = await link.push(Push(lane=lane.number % self._lanes), b"", as_bytes(state))
        self._bases[lane.number] = pulled.base
        return state

    async def _take(self, now: float, lane: Lane, update: Update) -> str:
        parameters, who = self.training.parameters, lane.account.volunteer.id
        push = Push(
            unit=update.unit,
            granted=update.base,
            base=self._bases[lane.number],
            lane=lane.number % self._lanes,
            wants=False,
        )
        pushing = self._links[who].push(push, as_bytes(self._update), memoryview(b""))
        answered = asyncio.create_task(pushing)
        received = await parameters.received(who, update, memoryview(b""))
        try:
            return await self.training.take(now, lane.account, update, received)
        finally:
            parameters.let_go(received)
            await answered


async def _as_it_is(name: str) -> tuple[str, ...]:
    return (name,)


async def _never(why: str) -> None:
    raise SystemExit(f"A server was lost: {why}")


def _broken(why: str) -> None:
    raise SystemExit(f"A server is broken: {why}")
