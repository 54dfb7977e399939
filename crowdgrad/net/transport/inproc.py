"""Frames inside one process: the twin of `tcp` for tests and the simulator.

Bytes go through the same framing as on a wire. A `Route` decides what happens to each frame (when
it arrives, whether it arrives, how often), so that loss, delay and duplication are the test's to
choose. Time is the event loop's, which a test may make virtual.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

from crowdgrad.domain.routes import Whereabouts
from crowdgrad.errors import PeerError, PortBusy, Unreachable
from crowdgrad.net.framing import Sink, pack
from crowdgrad.net.messages import MAX_BODY_BYTES, Message, problem
from crowdgrad.net.transport.base import Ear, Inbox, OnConnection, Payload, guarded, lost

Route = Callable[[Message], tuple[float, ...]]
"""The delays in seconds after which copies of a frame arrive: () loses it, (0, 1) doubles it."""


def straight(message: Message) -> tuple[float, ...]:
    return (0.0,)


class InprocConnection:
    def __init__(self, peer: str, route: Route) -> None:
        self.peer = peer
        self._loop = asyncio.get_running_loop()
        self.heard_at = self.sent_at = self._loop.time()
        self._route = route
        self._inbox = Inbox(pause=self._pause, resume=self._resume)
        self._closed = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._twin: InprocConnection | None = None
        self._backlog: deque[memoryview] = deque()
        """What has arrived behind a payload that has no room yet."""
        self.received_bytes = self._sent_bytes = 0

    @property
    def binding(self) -> bytes:
        return b""

    @property
    def sent_bytes(self) -> int:
        return self._sent_bytes

    @property
    def paused(self) -> bool:
        return self._inbox.paused

    def set_sink(self, sink: Sink) -> None:
        if self._inbox.error is None:
            self._inbox.reader.sink = sink
            self._inbox.reader.max_body_bytes = MAX_BODY_BYTES

    def make_room(self, payload: memoryview) -> None:
        if self._inbox.error is not None:
            return
        try:
            self._inbox.make_room(payload)
            self._read()
        except PeerError as error:
            self.refuse(error)

    def set_ear(self, ear: Ear) -> None:
        if self._inbox.error is None:
            self._inbox.ear = ear

    @property
    def free(self) -> bool:
        return self._twin is not None and self._twin._reading.is_set()

    async def send(self, message: Message, payload: Payload = b"") -> None:
        self.send_at_once(message, payload)
        await asyncio.sleep(0)
        await self.drained()

    def send_at_once(self, message: Message, payload: Payload = b"") -> bool:
        self._inbox.check()
        assert self._twin is not None
        data = pack(message, len(payload)) + bytes(payload)
        self.sent_at = self._loop.time()
        self._sent_bytes += len(data)
        for delay_s in self._route(message):
            if delay_s > 0:
                self._loop.call_later(delay_s, self._twin._arrive, data)
            else:
                self._loop.call_soon(self._twin._arrive, data)
        return self._twin._reading.is_set()

    async def drained(self) -> None:
        assert self._twin is not None
        while not self._twin._reading.is_set():
            await self._twin._reading.wait()
            self._inbox.check()

    async def receive(self) -> tuple[Message, memoryview]:
        return await self._inbox.get()

    def close(self, error: PeerError | None = None) -> None:
        self._end(error or lost(self.peer, "We closed the connection"))
        if self._twin is not None:
            self._loop.call_soon(
                self._twin._end, lost(self._twin.peer, "The other side closed the connection")
            )

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def _arrive(self, data: bytes) -> None:
        if self._inbox.error is not None:
            return
        self.heard_at = self._loop.time()
        self.received_bytes += len(data)
        self._backlog.append(memoryview(data))
        try:
            self._read()
        except PeerError as error:
            self.refuse(error)

    def _read(self) -> None:
        while self._backlog and not self._inbox.reader.stuck:
            view = self._backlog.popleft()
            room = self._inbox.reader.buffer()
            part = min(len(room), len(view))
            room[:part] = view[:part]
            if part < len(view):
                self._backlog.appendleft(view[part:])
            self._inbox.filled(part)

    def refuse(self, error: PeerError) -> None:
        """Say what is wrong, then end it."""
        if self._twin is not None:
            self._loop.call_soon(self._twin._arrive, pack(problem(error)))
        self.close(error)

    def _end(self, error: PeerError) -> None:
        self._inbox.end(error)
        self._backlog.clear()
        self._reading.set()
        self._closed.set()

    def _pause(self) -> None:
        self._reading.clear()

    def _resume(self) -> None:
        self._reading.set()


def pair(
    *, there: Route = straight, back: Route = straight
) -> tuple[InprocConnection, InprocConnection]:
    """Two ends of one connection; `there` carries what the first end sends."""
    first, second = InprocConnection("second", there), InprocConnection("first", back)
    first._twin, second._twin = second, first
    return first, second


class InprocListener:
    def __init__(self, network: InprocNetwork, address: tuple[str, int]) -> None:
        self.address = address
        self._network = network

    async def close(self) -> None:
        self._network.listeners.pop(self.address, None)


class InprocNetwork:
    """Addresses inside one process."""

    def __init__(self) -> None:
        self.listeners: dict[tuple[str, int], OnConnection] = {}
        self._ports = itertools.count(40_000)
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, handler: OnConnection) -> InprocListener:
        address = (host, port or next(self._ports))
        if address in self.listeners:
            raise PortBusy(f"Port {port} on {host} is in use.", advice="Choose another.")
        self.listeners[address] = handler
        return InprocListener(self, address)

    async def dial(self, where: Whereabouts) -> InprocConnection:
        """Along the first way there is."""
        return await self.connect(where.routes[0].host, where.routes[0].port)

    async def connect(
        self, host: str, port: int, *, there: Route = straight, back: Route = straight
    ) -> InprocConnection:
        handler = self.listeners.get((host, port))
        if handler is None:
            raise Unreachable(f"Nobody answers at {host}:{port}.", advice="Is the host running?")
        near, far = pair(there=there, back=back)
        task = asyncio.get_running_loop().create_task(guarded(handler, far))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return near
