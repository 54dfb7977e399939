"""One connection to a host: questions out, answers to whoever asked.

An exchange or a fetch is answered by its ticket, a blob by its hash. The host may speak unasked
(roster, finished). Payloads land where they are used: parameters in the slot of whoever waits for
them. A unit that goes on where another ended comes without any.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from typing import TypeVar

import msgspec

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.job import Volunteer
from crowdgrad.errors import ConnectionLost, CrowdgradError, FrameError
from crowdgrad.net import handshake
from crowdgrad.net.heartbeat import keep_alive
from crowdgrad.net.identity import Identity
from crowdgrad.net.messages import (
    CHALLENGE_BYTES,
    Admit,
    Blob,
    Exchange,
    Fetch,
    Finished,
    Fresh,
    Get,
    Grant,
    Join,
    Message,
    Problem,
    RosterChanged,
    Wait,
    expect,
    told,
)
from crowdgrad.net.transport.base import Connection, Payload

Answer = Grant | Wait
A = TypeVar("A")
NO_ROOM = memoryview(b"")


class Conversation:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.finished: Finished | None = None
        self.host_key = ""
        """Fingerprint of the key the host has proven when we joined; empty if it has not."""
        self.host_name = ""
        self._tickets = itertools.count(1)
        self._exchanges: dict[int, tuple[memoryview, asyncio.Future[Answer]]] = {}
        self._fetches: dict[int, tuple[memoryview, asyncio.Future[Fresh]]] = {}
        self._blobs: dict[ChunkHash, tuple[int, asyncio.Future[bytes]]] = {}
        connection.set_sink(self._sink)

    async def join(self, volunteer: Volunteer, identity: Identity, *, token: str = "") -> Admit:
        """Raises PeerError, TurnedAway where the host does not want us."""
        challenge = secrets.token_bytes(CHALLENGE_BYTES)
        welcome, self.host_key = await handshake.greet(
            self.connection, volunteer.software, challenge
        )
        self.host_name = welcome.name
        await self.connection.send(
            Join(
                volunteer=volunteer,
                key=identity.public,
                signature=identity.sign(welcome.challenge),
                token=token,
            )
        )
        return expect(await handshake.hear(self.connection), Admit)

    async def run(self, *, beat_s: float, silence_s: float) -> Finished:
        """Listen until the job is over. Raises PeerError when the connection ends before."""
        beats = asyncio.create_task(keep_alive(self.connection, beat_s=beat_s, silence_s=silence_s))
        try:
            while self.finished is None:
                message, payload = await self.connection.receive()
                self._route(message, payload)
            return self.finished
        except CrowdgradError as error:
            self._fail(error)
            raise
        finally:
            beats.cancel()
            self._fail(ConnectionLost("The conversation is over."))

    async def get(self, wanted: ChunkHash, size: int) -> bytes:
        """The bytes with that hash, of exactly that size; the caller verifies the hash."""
        if wanted in self._blobs:
            return await asyncio.shield(self._blobs[wanted][1])
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._blobs[wanted] = (size, future)
        await self.connection.send(Get(hash=wanted))
        return await future

    async def exchange(self, ask: Exchange, payload: Payload, into: memoryview) -> Answer:
        """`into` receives the parameters of a Grant, unless its unit goes on without."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        ticket = next(self._tickets)
        self._exchanges[ticket] = (into, future)
        await self.connection.send(msgspec.structs.replace(ask, ticket=ticket), payload)
        return await future

    async def fetch(self, into: memoryview) -> Fresh:
        """The newest parameters, into `into`."""
        future: asyncio.Future[Fresh] = asyncio.get_running_loop().create_future()
        ticket = next(self._tickets)
        self._fetches[ticket] = (into, future)
        await self.connection.send(Fetch(ticket=ticket))
        return await future

    def _sink(self, message: Message, length: int) -> memoryview:
        into = NO_ROOM
        if isinstance(message, Grant) and message.link == 0:
            into = _room(self._exchanges, message.ticket)
        elif isinstance(message, Fresh):
            into = _room(self._fetches, message.ticket)
        if len(into) == length:
            return into
        if isinstance(message, Blob) and self._blobs.get(message.hash, (-1,))[0] == length:
            return memoryview(bytearray(length))
        raise FrameError(f"A {type(message).__name__} came with {length} unexpected bytes.")

    def _route(self, message: Message, payload: memoryview) -> None:
        if isinstance(message, Grant | Wait):
            if isinstance(message, Grant) and message.link == 0 and not payload:
                raise FrameError("A unit came without parameters.")
            _answer(self._exchanges, message.ticket, message)
        elif isinstance(message, Fresh):
            if not payload:
                raise FrameError("Fresh parameters came without their bytes.")
            _answer(self._fetches, message.ticket, message)
        elif isinstance(message, Blob):
            _, blob = self._blobs.pop(message.hash, (0, None))
            if blob is not None and not blob.done():
                blob.set_result(bytes(payload))
        elif isinstance(message, Finished):
            self.finished = message
        elif isinstance(message, Problem):
            raise told(message)
        elif not isinstance(message, RosterChanged):
            raise FrameError(f"A host does not say {type(message).__name__}.")

    def _fail(self, error: CrowdgradError) -> None:
        futures: list[asyncio.Future[Answer] | asyncio.Future[Fresh] | asyncio.Future[bytes]] = [
            future for _, future in self._exchanges.values()
        ]
        futures.extend(future for _, future in self._fetches.values())
        futures.extend(future for _, future in self._blobs.values())
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits still gets it; nobody waiting is no news
        self._exchanges.clear()
        self._fetches.clear()
        self._blobs.clear()


def _room(asked: dict[int, tuple[memoryview, asyncio.Future[A]]], ticket: int) -> memoryview:
    """Where the answer's payload goes, once: a second one would change what is worked from."""
    if ticket not in asked:
        return NO_ROOM
    into, waiting = asked[ticket]
    asked[ticket] = (NO_ROOM, waiting)
    return into


def _answer(asked: dict[int, tuple[memoryview, asyncio.Future[A]]], ticket: int, said: A) -> None:
    if ticket not in asked:
        raise FrameError("An answer to a question nobody asked.")
    _, waiting = asked.pop(ticket)
    if not waiting.done():
        waiting.set_result(said)
