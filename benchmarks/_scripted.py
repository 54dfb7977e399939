"""A crowd of scripted volunteers in one process: they speak the real protocol and compute nothing.

`_scripted.py HOST:PORT COUNT THINK_MS BATCH` joins so many, each over a connection of its own, in
lock-step: exchange, think, exchange. A unit is answered with the same small numbers each time;
nobody looks at what comes. It is a player (`_windows.py`): a round trip is an exchange, and `least`
and `most` are those of whoever had the fewest and the most.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from _windows import READY, answer

from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.work import Update
from crowdgrad.errors import ConnectionLost
from crowdgrad.net.dialling import Dialler
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Grant, Wait
from crowdgrad.net.transport import tcp
from crowdgrad.process import run_async
from crowdgrad.program.artifact import decode
from crowdgrad.volunteer.conversation import Conversation, Reach
from crowdgrad.volunteer.parts import machine_of, parts_of
from crowdgrad.volunteer.servers import reached

SMALL = 1e-3
AGAIN_S = 0.5


class Room:
    """What all of them share: the numbers they send, a place for those they get, the windows."""

    def __init__(self, count: int, think_s: float, batch: int) -> None:
        self.count, self.think_s, self.batch = count, think_s, batch
        self.state = self.update = memoryview(b"")
        self.trips: list[list[int]] = [[] for _ in range(count)]
        self._until = self._began = 0
        self._open = asyncio.Event()
        self._waiting = 0

    def furnish(self, words: int) -> None:
        if not len(self.state):
            numbers = np.random.default_rng(0).normal(0, SMALL, words).astype(np.float32)
            self.update, self.state = numbers.view(np.uint8).data, memoryview(bytearray(4 * words))

    async def stand_still(self) -> None:
        """Until the next window, where this one is over; the last to come says how it went."""
        if time.perf_counter_ns() < self._until:
            return
        self._waiting += 1
        if self._waiting == self.count:
            print(self._result() if self._began else READY, flush=True)
        await self._open.wait()
        self._waiting -= 1

    def _result(self) -> str:
        seconds = (time.perf_counter_ns() - self._began) / 1e9
        counts = [len(trips) for trips in self.trips]
        everyone = [trip for trips in self.trips for trip in trips]
        return answer(seconds, everyone, least=min(counts), most=max(counts))

    def hear(self, everybody: asyncio.Task[None]) -> None:
        said = os.read(0, 4096).decode()
        if not said:
            everybody.cancel()
            return
        for trips in self.trips:
            trips.clear()
        self._began = time.perf_counter_ns()
        self._until = self._began + int(float(said) * 1e9)
        self._open.set()
        self._open.clear()  # who waits goes on; who comes later waits


async def live(number: int, address: tuple[str, int], room: Room) -> None:
    """Come back as long as servers have no numbers yet, as any volunteer does."""
    while True:
        try:
            await visit(number, address, room)
        except* ConnectionLost:
            if room.trips[number]:
                raise
            await asyncio.sleep(AGAIN_S)


async def visit(number: int, address: tuple[str, int], room: Room) -> None:
    identity = guest()
    me = Volunteer(
        id=identity.id, name=f"s{number}", cores=1, memory_mb=1, engine="none", software="bench"
    )
    connection = await tcp.connect(*address)
    talk = Conversation(connection)
    try:
        admit = await talk.join(me, identity)
        async with asyncio.TaskGroup() as group:
            group.create_task(talk.run(beat_s=admit.heartbeat_s, silence_s=admit.silence_s))
            program = decode(await talk.get(admit.job.program, admit.program_bytes))
            room.furnish(program.spec.state_words)
            near = machine_of(connection.peer)
            spec, codec = program.spec, admit.job.local.codec
            parts = parts_of(admit.servers, spec, codec, host=near) if admit.servers else ()
            async with reached(
                talk, admit, parts, me, connect=Dialler(key=identity), bases={}
            ) as reach:
                await go_round(reach(0), room, room.trips[number])
    finally:
        connection.close()


async def go_round(reach: Reach, room: Room, trips: list[int]) -> None:
    update: Update | None = None
    while True:
        began = time.perf_counter_ns()
        payload = room.update if update is not None else b""
        said = await reach.exchange(Exchange(update=update), payload, room.state, room.state)
        trips.append(time.perf_counter_ns() - began)
        update = None
        if isinstance(said, Wait):
            await asyncio.sleep(said.seconds)
            continue
        update = done(said, room.batch)
        await room.stand_still()
        if room.think_s:
            await asyncio.sleep(room.think_s)


def done(grant: Grant, batch: int) -> Update:
    return Update(
        unit=grant.unit.id,
        base=grant.base,
        link=grant.link,
        samples=batch * grant.unit.batches,
        loss=2.3,
        metrics={},
        compute_s=0.001,
    )


async def crowd(address: tuple[str, int], room: Room) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(room.count):
            group.create_task(live(number, address, room))


async def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    room = Room(int(sys.argv[2]), float(sys.argv[3]) / 1000, int(sys.argv[4]))
    everybody = asyncio.create_task(crowd((host, int(port)), room))
    asyncio.get_running_loop().add_reader(0, room.hear, everybody)
    with contextlib.suppress(asyncio.CancelledError):
        await everybody


if __name__ == "__main__":
    run_async(main())
