"""Frames over TCP: the event loop reads straight into our buffers (`BufferedProtocol`).

uvloop where it is installed, plain asyncio otherwise. A large payload is sent in parts: a socket
takes what it is given for as long as the other side reads, and nobody else has a turn meanwhile.
uvloop writes from where it lies; asyncio copies what the socket does not take at once, so its parts
are smaller.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import cast

from crowdgrad.errors import PeerError, TurnedAway, Unreachable
from crowdgrad.net.framing import Sink, pack
from crowdgrad.net.messages import MAX_BODY_BYTES, Message, problem
from crowdgrad.net.ports import bind
from crowdgrad.net.transport.base import (
    Connection,
    Ear,
    Inbox,
    OnConnection,
    Payload,
    guarded,
    lost,
)

NOTHING = memoryview(b"")
MAX_CONNECTIONS = 4096
OTHER_FILES = 256
"""What a process has open besides connections, at most."""
CLOSE_GRACE_S = 1.0
REFUSE_GRACE_S = 0.5
PART_BYTES = 1 << 20
COPIED_PART_BYTES = 256 << 10
READ_BYTES = 128 << 10
"""How much of a large payload is read at once. libuv reads up to 32 times in a row while there is
more: a quick sender's whole vector would hold the loop."""
SMALL_BYTES = 512 << 10
"""What is left of a payload is read in one go from here on."""


class TcpConnection(asyncio.BufferedProtocol):
    def __init__(self, on_made: OnConnection | None = None) -> None:
        self.peer = "?"
        self.heard_at = self.sent_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._inbox = Inbox(pause=self._pause_reading, resume=self._resume_reading)
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()
        self._refusing = False
        self._copies = isinstance(self._loop, asyncio.BaseEventLoop)
        """Whether writing copies what the socket does not take at once; uvloop does not."""
        self._part_bytes = COPIED_PART_BYTES if self._copies else PART_BYTES
        self._turn = asyncio.Lock()
        """Of sending in parts: nobody else's frame may come in between."""
        self._rest = NOTHING
        """What is still to be given to the transport of the frame that is sent in parts."""
        self.received_bytes = 0
        self._written_bytes = 0

    # -- what callers use ---------------------------------------------------------------------

    @property
    def sent_bytes(self) -> int:
        if self._transport is None:
            return 0
        return self._written_bytes - self._transport.get_write_buffer_size()

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
        except PeerError as error:
            self.refuse(error)

    def set_ear(self, ear: Ear) -> None:
        if self._inbox.error is None:
            self._inbox.ear = ear

    @property
    def free(self) -> bool:
        return self._writable.is_set() and not self._turn.locked()

    async def send(self, message: Message, payload: Payload = b"") -> None:
        if len(payload) > self._part_bytes or self._turn.locked():
            self._inbox.check()
            await self._send_in_parts(message, payload)
        elif not self.send_at_once(message, payload):
            await self.drained()

    def send_at_once(self, message: Message, payload: Payload = b"") -> bool:
        self._inbox.check()
        assert self._transport is not None
        head = pack(message, len(payload))
        self._transport.writelines([head, payload] if len(payload) else [head])
        self._written_bytes += len(head) + len(payload)
        self.sent_at = self._loop.time()
        # Some versions of asyncio forget to say that something is left.
        left = self._copies and self._transport.get_write_buffer_size() > 0
        return self._writable.is_set() and not left

    async def _send_in_parts(self, message: Message, payload: Payload) -> None:
        async with self._turn:
            self._inbox.check()
            self._write(pack(message, len(payload)))
            self._rest = memoryview(payload)
            try:
                while len(self._rest):
                    part, self._rest = self._split()
                    self._write(part)
                    await self._gone()
            except asyncio.CancelledError:
                if self._copies and len(self._rest):  # half a frame: nothing can follow it
                    self.close(lost(self.peer, "We broke off in the middle of a frame"))
                self._hurry()
                raise
            finally:
                self._rest = NOTHING

    def _split(self) -> tuple[memoryview, memoryview]:
        return self._rest[: self._part_bytes], self._rest[self._part_bytes :]

    def _hurry(self) -> None:
        """Give what is left of a frame now: whoever goes, or has a last word, cannot wait."""
        rest, self._rest = self._rest, NOTHING
        if len(rest) and not self._copies:
            self._write(rest)

    def _write(self, part: Payload) -> None:
        assert self._transport is not None
        self._transport.write(part)
        self._written_bytes += len(part)
        self.sent_at = self._loop.time()

    async def _gone(self) -> None:
        """A part has left our hands, and others have had a turn."""
        if self._writable.is_set():
            await asyncio.sleep(0)
        await self.drained()

    async def drained(self) -> None:
        await self._writable.wait()
        self._inbox.check()

    async def receive(self) -> tuple[Message, memoryview]:
        return await self._inbox.get()

    def refuse(self, error: PeerError) -> None:
        """Say what is wrong, then end it.

        We go on reading for a moment: closing with unread bytes would reset the connection, and the
        other side would never hear why.
        """
        self._inbox.end(error)
        assert self._transport is not None
        if self._refusing or self._transport.is_closing():
            return
        self._refusing = True
        self._resume_reading()
        self._hurry()
        self._transport.write(pack(problem(error)))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._loop.call_later(REFUSE_GRACE_S, self._transport.abort)

    def close(self, error: PeerError | None = None) -> None:
        self._inbox.end(error or lost(self.peer, "We closed the connection"))
        if self._transport is None or self._refusing:
            return  # `refuse` ends it, in a moment
        if error is not None:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._hurry()
            self._transport.close()
            self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)

    async def wait_closed(self) -> None:
        await self._closed.wait()

    # -- what the event loop calls ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        self.heard_at = self.sent_at = self._loop.time()
        self.peer = _readable(transport.get_extra_info("peername"))
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._on_made is not None:
            task = self._loop.create_task(guarded(self._on_made, self))
            _TASKS.add(task)
            task.add_done_callback(_TASKS.discard)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._inbox.error is not None:
            return memoryview(bytearray(1 << 16))
        room = self._inbox.reader.buffer()
        return room if len(room) <= SMALL_BYTES else room[:READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_at = self._loop.time()
        self.received_bytes += nbytes
        if self._inbox.error is not None:
            return  # we have said goodbye: whatever still arrives is not looked at
        try:
            self._inbox.filled(nbytes)
        except PeerError as error:
            self.refuse(error)

    def eof_received(self) -> bool:
        # The event loop now closes our half too, once all is sent: not for ever, if nobody reads.
        assert self._transport is not None
        self._inbox.end(lost(self.peer, "The other side closed the connection"))
        self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        why = "The other side closed the connection"
        if isinstance(exc, OSError) and exc.strerror:
            why = exc.strerror
        self._inbox.end(lost(self.peer, why))
        self._writable.set()
        self._closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


_TASKS: set[asyncio.Task[None]] = set()


class TcpListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        host, port = server.sockets[0].getsockname()[:2]
        self.address: tuple[str, int] = (host, port)

    async def close(self) -> None:
        self._server.close()


def allow_connections(count: int) -> None:
    """Ask the system for as many open files: many shells allow 1,024 unless asked."""
    try:
        import resource
    except ImportError:
        return  # Windows has no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # then there are fewer
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def listen(host: str, port: int, handler: OnConnection) -> TcpListener:
    """Call `handler` with every connection; it is closed when the handler returns.

    Raises PortBusy or SettingError.
    """
    allow_connections(MAX_CONNECTIONS)
    loop = asyncio.get_running_loop()
    open_connections: set[TcpConnection] = set()

    async def limited(connection: Connection) -> None:
        tcp = cast(TcpConnection, connection)
        if len(open_connections) >= MAX_CONNECTIONS:
            tcp.refuse(TurnedAway(f"{MAX_CONNECTIONS} connections are open already."))
            return
        open_connections.add(tcp)
        try:
            await handler(tcp)
        finally:
            open_connections.discard(tcp)

    server = await loop.create_server(lambda: TcpConnection(limited), sock=bind(host, port))
    return TcpListener(server)


async def connect(host: str, port: int, *, timeout_s: float = 10.0) -> TcpConnection:
    """Raises Unreachable."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(TcpConnection, host, port)
    except TimeoutError:
        why = f"no answer within {timeout_s:g} s"
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
    else:
        return connection
    raise Unreachable(
        f"Nobody answers at {host}:{port} ({why}).",
        advice="Is the host running, and is the address right?",
    )


def _readable(name: object) -> str:
    if isinstance(name, tuple) and len(name) >= 2:
        host, port = name[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(name or "?")
