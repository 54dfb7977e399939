"""The host's connection to one server: what it is told, in order, and what it answers.

Nobody waits for a server: words are put into a line and sent by a task of its own. So whoever
decides tells all servers in one breath, and each hears the same in the same order.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable

from crowdgrad.domain.job import JobId
from crowdgrad.errors import ConnectionLost, FrameError, MessageError, TurnedAway
from crowdgrad.host.allocation import room
from crowdgrad.host.servers import proofs
from crowdgrad.host.servers.words import Words
from crowdgrad.net import handshake
from crowdgrad.net.heartbeat import keep_alive
from crowdgrad.net.messages import (
    CHALLENGE_BYTES,
    Equip,
    Equipped,
    InCharge,
    Kept,
    Message,
    Problem,
    Save,
    Staged,
    TakeCharge,
    expect,
    told,
)
from crowdgrad.net.transport.base import Connection, Payload
from crowdgrad.numerics.vectors import Vector, as_vector

Answer = tuple[Kept, Vector]
"""What was kept, and the numbers: the state, then what the rule remembers."""


class Link:
    def __init__(self, connection: Connection, *, state_bytes: int, memory_bytes: int) -> None:
        """Bytes of the server's part, and of what the rule remembers of it."""
        self.connection = connection
        self._state_bytes = state_bytes
        self._memory_bytes = memory_bytes
        self._words = Words(connection)
        self._tickets = itertools.count(1)
        self._saves: dict[int, tuple[int, asyncio.Future[Answer]]] = {}
        """By ticket: how many bytes are to come, and who waits for them."""
        self._over = False

    async def run(
        self, staged: Callable[[Staged], None], *, beat_s: float, silence_s: float
    ) -> None:
        """Until the connection ends. Raises PeerError."""
        beats = asyncio.create_task(keep_alive(self.connection, beat_s=beat_s, silence_s=silence_s))
        speaking = asyncio.create_task(self._words.speak())
        try:
            while True:
                message, payload = await self.connection.receive()
                if isinstance(message, Staged):
                    staged(message)
                elif isinstance(message, Kept):
                    self._take(message, payload)
                elif isinstance(message, Problem):
                    raise told(message)
                else:
                    raise MessageError(f"A server does not say {type(message).__name__}.")
        finally:
            beats.cancel()
            speaking.cancel()
            await asyncio.gather(beats, speaking, return_exceptions=True)
            self._over = True
            self._fail()

    # -- what it is told ----------------------------------------------------------------------

    def say(self, message: Message, payload: Payload = b"") -> None:
        self._words.say(message, payload)

    def save(self, *, state: bool = True, memory: bool = True) -> asyncio.Future[Answer]:
        """A copy of its part after all it was told so far, or only whether it is finite."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        ticket = next(self._tickets)
        size = (self._state_bytes if state else 0) + (self._memory_bytes if memory else 0)
        self._saves[ticket] = (size, future)
        if self._over:
            self._fail()
            return future
        self.say(Save(ticket=ticket, state=state, memory=memory))
        return future

    # -- what it answers ----------------------------------------------------------------------

    def sink(self, message: Message, length: int) -> memoryview:
        if isinstance(message, Kept) and self._saves.get(message.ticket, (-1,))[0] == length:
            return room(length)
        raise FrameError(f"A {type(message).__name__} came with {length} unexpected bytes.")

    def _take(self, kept: Kept, payload: memoryview) -> None:
        size, future = self._saves.pop(kept.ticket, (-1, None))
        if future is None or size != len(payload):
            raise MessageError("A server kept something else than it was asked for.")
        if not future.done():
            future.set_result((kept, as_vector(payload)))

    def _fail(self) -> None:
        error = ConnectionLost(f"The server at {self.connection.peer} is gone.")
        for _, future in self._saves.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits still gets it; nobody waiting is no news
        self._saves.clear()
        self._words.clear()


async def take_charge(
    connection: Connection, secret: bytes, job: JobId, equip: Equip, *, software: str, vectors: int
) -> Link:
    """Prove ourselves, see the server's proof, and tell it what to hold. Raises PeerError.

    `vectors`: how many the rule remembers.
    """
    ours = secrets.token_bytes(CHALLENGE_BYTES)
    welcome, _ = await handshake.greet(connection, software, ours)
    theirs = welcome.challenge
    await connection.send(TakeCharge(job=job, proof=proofs.of_host(secret, job, ours, theirs)))
    proof = expect(await handshake.hear(connection), InCharge).proof
    if not proofs.same(proof, proofs.of_server(secret, job, ours, theirs)):
        raise TurnedAway(
            f"The server at {connection.peer} does not know our secret.",
            advice="Give both the same file with --secret-file.",
        )
    spec = equip.spec
    link = Link(connection, state_bytes=4 * spec.state_words, memory_bytes=4 * vectors * spec.size)
    connection.set_sink(link.sink)
    await connection.send(equip)
    expect(await handshake.hear(connection), Equipped)
    return link
