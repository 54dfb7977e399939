"""One connection between two volunteers that exchange data."""

from __future__ import annotations

import asyncio
import secrets
from typing import Protocol

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import FrameError, MessageError, PeerError
from crowdgrad.net import handshake, identity
from crowdgrad.net.framing import NOWHERE
from crowdgrad.net.heartbeat import keep_alive
from crowdgrad.net.messages import (
    CHALLENGE_BYTES,
    Blob,
    Get,
    Have,
    Lack,
    Meet,
    Message,
    Met,
    Problem,
    Unget,
    expect,
    told,
)
from crowdgrad.net.transport.base import Connection
from crowdgrad.planner.replication.plans import Node
from crowdgrad.replication.outbox import Outbox

MOST_UNGOT = 64
"""Chunks that may still come although we said that we do not need them any more."""


class Ears(Protocol):
    """Who hears what peers say."""

    def has(self, peer: Peer, message: Have) -> None: ...

    def wants(self, peer: Peer, name: ChunkHash) -> None: ...

    def wants_no_more(self, peer: Peer, name: ChunkHash) -> None: ...

    def lacks(self, peer: Peer, name: ChunkHash) -> None: ...

    def begins(self, peer: Peer, name: ChunkHash, length: int) -> bool:
        """A chunk's first bytes; whether it was asked for, and has that size."""
        ...

    def came(self, peer: Peer, name: ChunkHash, payload: memoryview) -> None: ...

    def wasted(self, peer: Peer, length: int) -> None: ...


class Peer:
    def __init__(self, node: Node, connection: Connection, ears: Ears) -> None:
        self.node = node
        self.connection = connection
        self.outbox = Outbox(connection, lambda here, gone: Have(chunks=here, lost=gone))
        self._ears = ears
        self._ungot: dict[ChunkHash, None] = {}

    async def run(self, *, beat_s: float, silence_s: float) -> None:
        """Exchange until it ends. Raises PeerError."""
        self.connection.set_sink(self._sink)
        beats = asyncio.create_task(keep_alive(self.connection, beat_s=beat_s, silence_s=silence_s))
        saying = asyncio.create_task(self._say())
        try:
            while True:
                self._route(*await self.connection.receive())
        except PeerError as error:
            self.connection.refuse(error)
            raise
        finally:
            beats.cancel()
            saying.cancel()
            await asyncio.gather(beats, saying, return_exceptions=True)
            self.connection.close()

    async def _say(self) -> None:
        try:
            await self.outbox.run()
        except PeerError:
            return  # whoever receives on this connection hears of it

    def ask(self, name: ChunkHash) -> None:
        self.outbox.say(Get(hash=name))

    def unget(self, name: ChunkHash) -> None:
        self._ungot[name] = None
        while len(self._ungot) > MOST_UNGOT:
            del self._ungot[next(iter(self._ungot))]
        self.outbox.say(Unget(hash=name))

    def _sink(self, message: Message, length: int) -> memoryview:
        if isinstance(message, Blob):
            if self._ears.begins(self, message.hash, length):
                return memoryview(bytearray(length))
            if message.hash in self._ungot:  # it was on its way already
                del self._ungot[message.hash]
                self._ears.wasted(self, length)
                return NOWHERE
        raise FrameError(f"A {type(message).__name__} came with {length} unexpected bytes.")

    def _route(self, message: Message, payload: memoryview) -> None:
        if isinstance(message, Have):
            self._ears.has(self, message)
        elif isinstance(message, Get):
            self._ears.wants(self, message.hash)
        elif isinstance(message, Unget):
            self._ears.wants_no_more(self, message.hash)
        elif isinstance(message, Lack):
            self._ears.lacks(self, message.hash)
        elif isinstance(message, Blob):
            if len(payload):
                self._ears.came(self, message.hash, payload)
        elif isinstance(message, Problem):
            raise told(message)
        else:
            raise MessageError(f"A volunteer does not say {type(message).__name__} to another.")


async def dial(
    connection: Connection,
    key: identity.Identity,
    job: JobId,
    *,
    software: str,
    pin: VolunteerId,
) -> None:
    """The dialler's half of meeting. Raises PeerError."""
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    welcome, _ = await handshake.greet(connection, software, challenge, pin)
    signature = key.sign(welcome.challenge, connection.binding)
    await connection.send(Meet(job=job, key=key.public, signature=signature))
    expect(await handshake.hear(connection), Met)


async def answer(
    connection: Connection, key: identity.Identity, *, software: str
) -> tuple[VolunteerId, JobId]:
    """The listener's half, up to who it is and what it came for; `Met` is said by whoever knows it.

    Raises PeerError.
    """
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    await handshake.answer(connection, software, challenge, key=key)
    meet = expect(await handshake.hear(connection), Meet)
    return identity.verify(meet.key, challenge, meet.signature, connection.binding), meet.job
