"""What every carrier of frames promises, and the half of it that all of them share.

A connection carries frames both ways, in order, whole. `send` returns when the bytes have left our
hands, so a buffer may be reused after it; a peer that does not read makes `send` wait
(back-pressure). `receive` hands over frames one by one; when too many are waiting, or a payload
has no room yet (its sink returned None), the carrier stops reading until `receive` or `make_room`
is called, and what the other side goes on sending waits on its way. Whatever ended the connection
is the error that `receive` and `send` raise from then on.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from crowdgrad.errors import ConnectionLost, PeerError
from crowdgrad.net.framing import Frame, FrameReader, Sink, refuse_payload
from crowdgrad.net.messages import Heartbeat, Message

logger = logging.getLogger(__name__)

Payload = bytes | bytearray | memoryview
Ear = Callable[[Message, memoryview], bool]
"""Whether a frame is dealt with; otherwise `receive` hands it over. It must not wait, nor raise."""
RELAYED = "relay "
"""Before the relay's address, as the name of a peer behind one."""
MAX_WAITING_FRAMES = 16
MAX_WAITING_PAYLOADS = 2


@runtime_checkable
class Connection(Protocol):
    peer: str
    """Whom we talk to, as an address a person can read."""
    heard_at: float
    """Loop time at which bytes last arrived."""
    sent_at: float
    """Loop time at which something was last sent."""
    received_bytes: int
    """All that has arrived, frames and heartbeats included."""

    @property
    def binding(self) -> bytes:
        """The public key in the listener's certificate; empty where nothing is encrypted. Proofs
        are made for it, so that nobody in between can pass them on."""
        ...

    @property
    def sent_bytes(self) -> int:
        """All that has left our hands: what still waits for the other side to read is not in it."""
        ...

    @property
    def paused(self) -> bool:
        """Whether we have stopped reading because frames are waiting, a payload has no room yet, or
        a cap wants it: silence is our own doing."""
        ...

    def set_sink(self, sink: Sink) -> None:
        """Say where payloads go from now on; until then every payload is refused."""

    def make_room(self, payload: memoryview) -> None:
        """The buffer for the payload to which the sink said None; reading goes on. Does nothing
        where the connection has ended."""

    def set_ear(self, ear: Ear) -> None:
        """Offer frames to `ear` the moment they arrive, where `receive` waits for the next one."""

    @property
    def free(self) -> bool:
        """Whether what is sent now goes out now: nothing waits before it."""
        ...

    async def send(self, message: Message, payload: Payload = b"") -> None: ...

    def send_at_once(self, message: Message, payload: Payload = b"") -> bool:
        """Send, where the connection is `free`; False: not all has left our hands yet, `drained`
        says when. Raises PeerError."""
        ...

    async def drained(self) -> None:
        """Wait until all that was sent has left our hands. Raises PeerError."""

    async def receive(self) -> tuple[Message, memoryview]:
        """The next frame. Heartbeats are not handed over: `heard_at` tells of them."""
        ...

    def refuse(self, error: PeerError) -> None:
        """Tell the other side what is wrong, then end it."""

    def close(self, error: PeerError | None = None) -> None:
        """End it now. What was sent before still goes out unless `error` says the peer is gone."""

    async def wait_closed(self) -> None: ...


class Listener(Protocol):
    address: tuple[str, int]

    async def close(self) -> None:
        """Stop accepting. Connections that exist go on."""


OnConnection = Callable[[Connection], Awaitable[None]]


async def guarded(handler: OnConnection, connection: Connection) -> None:
    """Run a conversation that a stranger began: whatever it meets ends it and nothing else."""
    try:
        await handler(connection)
    except PeerError as error:
        logger.info("%s: %s", connection.peer, error)
    except Exception:
        logger.exception("%s: the conversation failed", connection.peer)
        connection.refuse(PeerError("Something went wrong here.", advice="Try again later."))
    finally:
        connection.close()


class Inbox:
    """Frames that have arrived and wait for `receive`: the part every carrier shares."""

    def __init__(self, *, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self.reader = FrameReader(refuse_payload)
        self.error: PeerError | None = None
        self.ear: Ear | None = None
        self._frames: deque[tuple[Message, memoryview]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._pause = pause
        self._resume = resume
        self.paused = False
        self._payloads = 0

    def filled(self, count: int) -> None:
        """Raises PeerError: the bytes are not frames of ours."""
        self._add(self.reader.filled(count))

    def make_room(self, payload: memoryview) -> None:
        """The buffer the sink owed. Raises PeerError as `filled` does."""
        self._add(self.reader.make_room(payload))
        self._go_on()

    def _add(self, frames: list[Frame]) -> None:
        for message, payload in frames:
            # A heartbeat has said all it has to say by arriving. Kept, they would pile up behind a
            # long send of ours until we stopped reading and took the other side for dead.
            if isinstance(message, Heartbeat) or self._heard(message, payload):
                continue
            self._frames.append((message, payload))
            self._payloads += len(payload) > 0
        if self._frames:
            self._wake()
        elif not self.reader.stuck:
            return  # as mostly
        if not self.paused and self._full:
            self.paused = True
            self._pause()

    def _heard(self, message: Message, payload: memoryview) -> bool:
        """Whether it was dealt with at once: only where nothing else is to be dealt with before."""
        if self.ear is None or self._frames or self._waiter is None:
            return False
        return self.ear(message, payload)

    def _go_on(self) -> None:
        if self.paused and not self._full:
            self.paused = False
            self._resume()

    @property
    def _full(self) -> bool:
        return (
            self.reader.stuck
            or len(self._frames) >= MAX_WAITING_FRAMES
            or self._payloads >= MAX_WAITING_PAYLOADS
        )

    def end(self, error: PeerError) -> None:
        if self.error is None:
            self.error = copy.copy(error)
            self.reader.give_up()
        self.ear = None
        self._wake()

    def check(self) -> None:
        """Raises what ended it, each time anew: what is raised remembers who heard of it, down to
        the vector that was being sent, and nobody may be kept alive by that."""
        if self.error is not None:
            raise copy.copy(self.error)

    async def get(self) -> tuple[Message, memoryview]:
        while not self._frames:
            self.check()
            assert self._waiter is None, "two receivers on one connection"
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        frame = self._frames.popleft()
        self._payloads -= len(frame[1]) > 0
        self._go_on()
        return frame

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def lost(peer: str, why: str) -> ConnectionLost:
    return ConnectionLost(f"{why} ({peer}).")
