"""A volunteer whose units take no time: what is left is the exchange.

`_quick_agent.py ROUTE [PIN JOB]` is the real agent (identity, connection, conversation, workshop,
shared memory) with a trainer's check of the program, but then a stand-in for the trainer that
answers every unit at once with the same small numbers. It is a player (`_windows.py`): a round trip
is all that happens from the moment a unit is computed to the moment the next one could be, the
agent's own work included. All shards are fetched before the first window. Where the host's pin is
given, all of it is encrypted, on this very machine, too.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from _windows import READY, answer

from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.routes import Whereabouts, route_of
from crowdgrad.net.dialling import Dialler
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Admit
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.vectors import as_vector
from crowdgrad.process import run_async
from crowdgrad.replication.base import Chunks
from crowdgrad.replication.store import MemoryChunks
from crowdgrad.replication.supply import Direct
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.agent import Agent
from crowdgrad.volunteer.conversation import Conversation
from crowdgrad.volunteer.workshop import Workshop

COMPUTE_S = 0.001
SMALL = 1e-3
MEMORY_MB = 4096


class Windows:
    """Times round trips while a window is open; a lane waits for the next one where none is."""

    def __init__(self) -> None:
        self._until = self._began = 0
        self._left: dict[int, int] = {}
        """By slot: when its unit was done."""
        self._trips: list[int] = []
        self._open = asyncio.Event()
        self._waiting = 0

    async def pass_through(self, slot: int, lanes: int) -> None:
        now = time.perf_counter_ns()
        if slot in self._left:
            self._trips.append(now - self._left[slot])
        if now >= self._until:
            await self._stand_still(now, lanes)
        self._left[slot] = time.perf_counter_ns()

    async def _stand_still(self, now: int, lanes: int) -> None:
        self._waiting += 1
        if self._waiting == lanes:
            print(answer((now - self._began) / 1e9, self._trips) if self._began else READY,
                  flush=True)  # fmt: skip
        await self._open.wait()
        self._waiting -= 1

    def play(self, seconds: float) -> None:
        self._trips.clear()
        self._left.clear()
        self._began = time.perf_counter_ns()
        self._until = self._began + int(seconds * 1e9)
        self._open.set()
        self._open.clear()  # who waits goes on; who comes later waits


class NoTrainer:
    """What a `TrainerLink` is to a workshop, after the check."""

    engine = "nothing"
    broken = False
    deaths = 0

    def __init__(self, shop: Workshop, checked: talk.Checked | None, windows: Windows) -> None:
        self._shop = shop
        self._windows = windows
        self._slots = shop._setup.plan.slots
        self._memory = shop._arena.memory
        self._packing = Packing(shop.job.local.codec, shop.spec.size)
        self.checked = checked

    async def start(self) -> None:
        for slot in self._slots:
            _fill(slot.update.of(self._memory))

    async def compute(self, ask: talk.Compute, share: Callable[[], float]) -> talk.Computed:
        share()
        numbers = ask.numbers
        samples = self._shop._plan(ask.unit).samples(numbers.start, len(numbers))
        slot = self._slots[ask.slot]
        if slot.coded:  # what a trainer does besides computing belongs to the round trip
            state = as_vector(slot.state.of(self._memory))
            self._packing.decode(slot.comes.of(self._memory), state)
        await self._windows.pass_through(ask.slot, self._shop.slots)
        if slot.coded:
            update = as_vector(slot.update.of(self._memory))
            self._packing.encode(update, slot.goes.of(self._memory))
        return talk.Computed(
            unit=ask.unit.id, samples=samples, loss=2.3, metrics={}, compute_s=COMPUTE_S
        )

    async def close(self) -> None:
        return None


def _fill(update: memoryview) -> None:
    numbers = as_vector(update)
    numbers[:] = np.random.default_rng(0).normal(0, SMALL, len(numbers))


class QuickShop:
    """Opens workshops without trainers."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    async def __call__(
        self, admit: Admit, talk_to: Conversation, chunks: Chunks, **options: Any
    ) -> Workshop:
        shop = await Workshop.open(admit, talk_to, chunks, **options)
        await shop.trainer.close()
        shop.trainer = NoTrainer(shop, shop.trainer.checked, self._windows)  # type: ignore[assignment]
        for shard in shop._setup.plan.shards:
            await shop.need(shard, Direct(talk_to.get, chunks), lambda done, total: None, slot=0)
        return shop


def hear(windows: Windows, agent: Agent) -> None:
    said = os.read(0, 4096).decode()
    if not said:
        asyncio.get_running_loop().remove_reader(0)
        agent.leave()
        return
    windows.play(float(said))


async def main() -> None:
    route, pin, job = (*sys.argv[1:], "", "")[:3]
    where = Whereabouts(routes=(route_of(route),), key=pin, job=job)
    windows, identity = Windows(), guest()
    me = Volunteer(
        id=identity.id, name="quick", cores=1, memory_mb=MEMORY_MB, engine="none", software="bench"
    )
    agent = Agent(
        identity=identity,
        volunteer=me,
        chunks=MemoryChunks(),
        connect=Dialler(key=identity, always=bool(where.key)),
        watch=lambda event: None,
        random01=random.random,
        reconnect_s=1.0,
        open_shop=QuickShop(windows),
    )
    asyncio.get_running_loop().add_reader(0, hear, windows, agent)
    print(await agent.work_for(where), file=sys.stderr)


if __name__ == "__main__":
    run_async(main())
