"""Servers that keep parameters, and a volunteer that talks to them, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec

from crowdgrad.domain.job import ServerPlace
from crowdgrad.domain.routes import Whereabouts
from crowdgrad.domain.work import LocalSteps, Unit, UnitId, Update, Version
from crowdgrad.errors import (
    TurnedAway,
)
from crowdgrad.net import handshake
from crowdgrad.net.messages import (
    Admit,
    Enter,
    Entered,
    Exchange,
    Grant,
    Message,
    Pulled,
    Push,
    Wait,
    expect,
)
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.inproc import InprocConnection, InprocNetwork, pair
from crowdgrad.volunteer.conversation import Conversation, Reach
from crowdgrad.volunteer.parts import parts_of
from crowdgrad.volunteer.servers import Bases, reached
from tests.net.message_examples import EXAMPLES, VOLUNTEER
from tests.virtual_time import run_virtual
from tests.volunteer.test_parts import places, spec

ADMIT = next(example for example in EXAMPLES if isinstance(example, Admit))
PROGRAM = spec(6, buffers=2, fixed=2)
CUTS = (2, 4)
STATE_BYTES, UPDATE_BYTES = 4 * PROGRAM.state_words, 4 * PROGRAM.update_words
SIZES = (8, 8, STATE_BYTES - 16)
"""Bytes of each server's part of a state."""


def version(count: int, incarnation: int = 0) -> Version:
    return Version(incarnation=incarnation, count=count)


def unit(number: int = 1, kind: str = "train") -> Unit:
    return Unit(id=UnitId(number), kind=kind, epoch=0, shard=0, first_batch=0, batches=1)  # type: ignore[arg-type]


def grant(ticket: int, base: Version, *, kind: str = "train", link: int = 0) -> Grant:
    verdict = "accepted" if ticket > 1 else ""
    return Grant(
        ticket=ticket, unit=unit(ticket, kind), base=base, rate=0.1, link=link, verdict=verdict
    )


def update(number: int = 1, *, link: int = 0) -> Update:
    return Update(
        unit=UnitId(number),
        base=version(0),
        samples=1,
        loss=0.0,
        metrics={},
        compute_s=0.0,
        link=link,
    )


def local(**fields: Any) -> LocalSteps:
    return LocalSteps(batch_size=1, **fields)


async def as_it_is(name: str) -> tuple[str, ...]:
    """Here names are addresses."""
    return (name,)


class Server:
    """One that is told what to say."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.entered: Enter | None = None
        self.heard: asyncio.Queue[tuple[Message, bytes]] = asyncio.Queue()
        self.refuses = self.silent = False

    async def serve(self, connection: Connection) -> None:
        self.connection = connection
        await handshake.answer(connection, "x", b"c" * 32)
        self.entered = expect(await handshake.hear(connection), Enter)
        if self.silent:
            await connection.wait_closed()
        if self.refuses:
            connection.refuse(TurnedAway("I do not know you."))
            return
        connection.set_sink(lambda message, length: memoryview(bytearray(length)))
        await connection.send(Entered())
        while True:
            message, payload = await connection.receive()
            self.heard.put_nowait((message, bytes(payload)))

    async def hears(self) -> tuple[Push, bytes]:
        message, payload = await self.heard.get()
        return expect(message, Push), payload

    async def says(self, message: Message, payload: bytes = b"") -> None:
        assert self.connection is not None
        await self.connection.send(message, payload)

    async def serves(self, base: Version, fill: bytes, size: int) -> Push:
        """Hear a push, and answer it as wanted."""
        push, _ = await self.hears()
        await self.says(Pulled(ticket=push.ticket, base=base), fill * size if push.wants else b"")
        return push


class House:
    """A scripted host with scripted servers, and a volunteer's reach to them."""

    def __init__(
        self, steps: LocalSteps | None = None, servers: int = 3, *, in_step: bool = False
    ) -> None:
        self.in_step = in_step
        self.network = InprocNetwork()
        self.servers = [Server() for _ in range(servers)]
        self.steps = steps or local()
        self.bases: dict[int, Bases] = {}
        self.into = memoryview(bytearray(STATE_BYTES))
        self.whole = memoryview(bytearray(STATE_BYTES))
        self.host: InprocConnection
        self.asking: list[asyncio.Task[Grant | Wait]] = []

    async def connect(self, where: Whereabouts) -> Connection:
        return await self.network.dial(where)

    def places(self) -> list[ServerPlace]:
        return places(PROGRAM, *CUTS[: len(self.servers) - 1])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Callable[[int], Reach]]:
        for number, server in enumerate(self.servers):
            if server.connection is None:
                await self.network.listen("s", number + 1, server.serve)
        near, self.host = pair()
        talk = Conversation(near)
        talk.bare = True
        listening = asyncio.create_task(talk.run(beat_s=1, silence_s=10))
        admit = msgspec.structs.replace(
            ADMIT,
            job=replace(ADMIT.job, local=self.steps),
            heartbeat_s=1.0,
            silence_s=10.0,
            in_step=self.in_step,
        )
        parts = parts_of(self.places(), PROGRAM, "fp32", host="h")
        try:
            async with reached(
                talk,
                admit,
                parts,
                VOLUNTEER,
                connect=self.connect,
                resolve=as_it_is,
                bases=self.bases,
            ) as lane:
                yield lane
        finally:
            await asyncio.sleep(0.01)  # who has been lost hears of it
            for task in (listening, *self.asking):
                task.cancel()
            await asyncio.gather(listening, *self.asking, return_exceptions=True)

    def asks(self, lane: Reach, said: Update | None = None) -> asyncio.Task[Grant | Wait]:
        payload = bytes(range(UPDATE_BYTES)) if said is not None else b""
        asking = asyncio.create_task(
            lane.exchange(Exchange(update=said), payload, self.into, self.whole)
        )
        self.asking.append(asking)
        return asking

    async def host_hears(self) -> Exchange:
        message, payload = await self.host.receive()
        assert not len(payload), "the host has nothing to do with the numbers"
        return expect(message, Exchange)

    async def all_serve(self, base: Version, fill: bytes = b"x") -> list[Push]:
        return [
            await server.serves(base, fill, size)
            for server, size in zip(self.servers, SIZES, strict=True)
        ]

    async def begins(self, lane: Reach, base: Version) -> Grant:
        """A first unit."""
        asking = self.asks(lane)
        await self.host.send(grant((await self.host_hears()).ticket, base))
        await self.all_serve(base)
        answer = await asking
        assert isinstance(answer, Grant)
        return answer

    def nobody_is_asked(self) -> bool:
        return all(server.heard.empty() for server in self.servers)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main())
