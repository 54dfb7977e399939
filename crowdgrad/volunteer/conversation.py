"""One connection to a host: questions out, answers to whoever asked.

An exchange or a fetch is answered by its ticket, a blob by its hash. The host may speak unasked
(roster, data that grew, finished). Payloads land where they are used: parameters in the slot of
whoever waits for them. A unit that goes on where another ended comes without any, and so does every
unit of a job whose parameters are kept by servers (`crowdgrad/volunteer/servers.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from typing import Protocol

import msgspec

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.work import UnitId
from crowdgrad.errors import ConnectionLost, CrowdgradError, FrameError, PeerError
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
    GiveBack,
    Grant,
    Grew,
    Join,
    Message,
    Neighbours,
    Problem,
    RosterChanged,
    Wait,
    expect,
    told,
)
from crowdgrad.net.transport.base import Connection, Payload
from crowdgrad.replication.sharing import Sharer
from crowdgrad.volunteer.questions import Questions

Answer = Grant | Wait
NO_ROOM = memoryview(b"")
Rooms = tuple[memoryview, memoryview]
"""Where parameters to train from go, and where those to evaluate."""
NO_ROOMS = (NO_ROOM, NO_ROOM)


class Reach(Protocol):
    """What a lane needs of the other side, wherever the parameters are kept.

    A `Conversation` is one where the host keeps them itself, `Servers` where others do.
    """

    async def exchange(
        self, ask: Exchange, payload: Payload, into: memoryview, whole: memoryview
    ) -> Answer:
        """What an update and a question bring; the parameters of a Grant are in their place.

        `into` receives those of a unit to train, as they travel; `whole` those of an evaluation,
        which travel in full precision always. A unit that goes on needs neither.
        """
        ...

    async def fetch(self, into: memoryview) -> object:
        """The newest parameters, into `into`, in the middle of a unit."""
        ...

    async def get(self, wanted: ChunkHash, size: int) -> bytes:
        """The bytes with that hash, of exactly that size; the caller verifies the hash."""
        ...

    async def give_back(self, unit: UnitId, reason: str, *, rests: bool = False) -> None:
        """Say that a unit cannot be finished here. `rests`: because we pause."""
        ...


class Conversation:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.finished: Finished | None = None
        self.host_key = ""
        """Fingerprint of the key the host has proven when we joined; empty if it has not."""
        self.host_name = ""
        self.host_public = b""
        """That key itself."""
        self.grew: Grew | None = None
        """The data it has told us of last, since it has admitted us."""
        self.sharer: Sharer | None = None
        """Takes chunks of the host's own choosing, and hears with whom to exchange others."""
        self.bare = False
        """Servers keep the parameters: units come without them."""
        self.fetched_bytes, self.fetched_s = 0, 0.0
        """Blobs that came, and how long we were waiting for any."""
        self._fetching_since = 0.0
        tickets = itertools.count(1)
        self._exchanges: Questions[Rooms, Answer] = Questions(NO_ROOMS, tickets)
        self._fetches: Questions[memoryview, Fresh] = Questions(NO_ROOM, tickets)
        self._blobs: dict[ChunkHash, tuple[int, asyncio.Future[bytes]]] = {}
        connection.set_sink(self._sink)

    async def join(
        self,
        volunteer: Volunteer,
        identity: Identity,
        *,
        pin: str = "",
        token: str = "",
        introduction: str = "",
    ) -> Admit:
        """`pin`: of the key the host must prove. Raises PeerError, TurnedAway where the host does
        not want us."""
        challenge = secrets.token_bytes(CHALLENGE_BYTES)
        welcome, self.host_key = await handshake.greet(
            self.connection, volunteer.software, challenge, pin
        )
        self.host_name, self.host_public = welcome.name, welcome.key
        await self.connection.send(
            Join(
                volunteer=volunteer,
                key=identity.public,
                signature=identity.sign(welcome.challenge, self.connection.binding),
                token=token,
                introduction=introduction,
            )
        )
        admit = expect(await handshake.hear(self.connection), Admit)
        self.bare = bool(admit.servers)
        return admit

    async def run(self, *, beat_s: float, silence_s: float) -> Finished:
        """Listen until the job is over. Raises PeerError when the connection ends before."""
        beats = asyncio.create_task(keep_alive(self.connection, beat_s=beat_s, silence_s=silence_s))
        self.connection.set_ear(self._at_once)
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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        if not self._blobs:
            self._fetching_since = loop.time()
        self._blobs[wanted] = (size, future)
        await self.connection.send(Get(hash=wanted))
        return await future

    async def exchange(
        self,
        ask: Exchange,
        payload: Payload,
        into: memoryview,
        whole: memoryview | None = None,
    ) -> Answer:
        """As `Reach` says; `whole` is `into` where nothing else is said."""
        ticket, answer = self._exchanges.ask((into, into if whole is None else whole))
        await self.connection.send(msgspec.structs.replace(ask, ticket=ticket), payload)
        return await answer

    async def fetch(self, into: memoryview) -> Fresh:
        """The newest parameters, into `into`."""
        ticket, fresh = self._fetches.ask(into)
        await self.connection.send(Fetch(ticket=ticket))
        return await fresh

    async def give_back(self, unit: UnitId, reason: str, *, rests: bool = False) -> None:
        await self.connection.send(GiveBack(unit=unit, reason=reason, rests=rests))

    def _sink(self, message: Message, length: int) -> memoryview:
        into = NO_ROOM
        if isinstance(message, Grant) and message.link == 0 and not self.bare:
            into = self._exchanges.room(message.ticket)[message.unit.kind != "train"]
        elif isinstance(message, Fresh):
            into = self._fetches.room(message.ticket)
        if len(into) == length:
            return into
        if isinstance(message, Blob) and self._blobs.get(message.hash, (-1,))[0] == length:
            return memoryview(bytearray(length))
        if isinstance(message, Blob) and self.sharer is not None:
            room = self.sharer.host_begins(message.hash, length)
            if room is not None:
                return room
        raise FrameError(f"A {type(message).__name__} came with {length} unexpected bytes.")

    def _at_once(self, message: Message, payload: memoryview) -> bool:
        """The hot path: whoever waits for a unit is woken without our waking up before."""
        if not isinstance(message, Grant | Grew):
            return False
        try:
            self._route(message, payload)
        except PeerError:
            return False  # it is raised where it is heard
        return True

    def _route(self, message: Message, payload: memoryview) -> None:
        if isinstance(message, Grant | Wait):
            if isinstance(message, Grant) and not (payload or message.link or self.bare):
                raise FrameError("A unit came without parameters.")
            self._exchanges.answer(message.ticket, message)
        elif isinstance(message, Fresh):
            if not payload:
                raise FrameError("Fresh parameters came without their bytes.")
            self._fetches.answer(message.ticket, message)
        elif isinstance(message, Blob):
            self._blob(message, payload)
        elif isinstance(message, Neighbours):
            if self.sharer is not None:
                self.sharer.arranged(message)
        elif isinstance(message, Grew):
            self.grew = message
        elif isinstance(message, Finished):
            self.finished = message
        elif isinstance(message, Problem):
            raise told(message)
        elif not isinstance(message, RosterChanged):
            raise FrameError(f"A host does not say {type(message).__name__}.")

    def _blob(self, message: Blob, payload: memoryview) -> None:
        _, blob = self._blobs.pop(message.hash, (0, None))
        if blob is not None:
            self._note_fetched(len(payload))
            if not blob.done():
                blob.set_result(bytes(payload))
        elif self.sharer is not None and len(payload):
            self.sharer.host_sent(message, payload)

    def _note_fetched(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        self.fetched_bytes += size
        self.fetched_s += max(0.0, now - self._fetching_since)
        self._fetching_since = now

    def _fail(self, error: CrowdgradError) -> None:
        self._exchanges.fail(error)
        self._fetches.fail(error)
        for _, blob in self._blobs.values():
            if not blob.done():
                blob.set_exception(error)
                blob.exception()  # whoever waits still gets it; nobody waiting is no news
        self._blobs.clear()
