"""One connection that carries frames over TCP: the event loop reads straight into our buffers.

Between the socket and the frames there may be a layer (`net.transport.layers`): TLS, a WebSocket, a
relay's first words. Without one, as on loopback, nothing is copied on the way.

A large payload is sent in parts: a socket takes what it is given for as long as the other side
reads, and nobody else has a turn meanwhile. uvloop writes from where it lies; asyncio copies what
the socket does not take at once, so its parts are smaller.

Where there is a throttle (`net.throttle`), all that passes is charged. While anything is owed we do
not read, and whoever sends waits, between parts or after a small frame; heartbeats never do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import weakref
from collections.abc import Callable
from typing import cast

from crowdgrad.domain.routes import spelled
from crowdgrad.errors import FrameError, PeerError
from crowdgrad.net.addresses import is_loopback
from crowdgrad.net.framing import Sink, pack
from crowdgrad.net.messages import MAX_BODY_BYTES, Heartbeat, Message, problem
from crowdgrad.net.throttle import Throttle
from crowdgrad.net.transport.base import Ear, Inbox, OnConnection, Payload, guarded, lost
from crowdgrad.net.transport.layers import Bare, Layer, Sniffing, innermost
from crowdgrad.net.transport.pacing import Pace, bound_buffers
from crowdgrad.net.transport.tls import Tls

logger = logging.getLogger(__name__)

NOTHING = memoryview(b"")
CLOSE_GRACE_S = 1.0
REFUSE_GRACE_S = 0.5
PART_BYTES = 1 << 20
COPIED_PART_BYTES = 256 << 10
READ_BYTES = 128 << 10
"""How much of a large payload is read at once. libuv reads up to 32 times in a row while there is
more: a quick sender's whole vector would hold the loop."""
SMALL_BYTES = 512 << 10
"""What is left of a payload is read in one go from here on."""
LAYERED_PART_BYTES = 256 << 10
"""What a layer is given at once: it stays in the processor's cache between its passes."""
UNSENT_BYTES = 128 << 10
"""What the system may hold of a connection to another machine that it has not sent yet."""
AGREEING_S = 10.0
"""How long a dialler may take to agree on a layer."""
MOST_ANSWERS_BYTES = 1 << 20
"""What a layer may have answered to somebody who does not read it (a WebSocket's pongs)."""


class TcpConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        on_made: OnConnection | None = None,
        *,
        layer: Layer | None = None,
        choose: Callable[[str], Layer] | None = None,
        peer: str = "",
        up: Throttle | None = None,
        down: Throttle | None = None,
    ) -> None:
        """`on_made`: called once the other side has been reached, through `layer` where there is
        one; `choose`: it depends on where the connection comes from. `peer`: whom we talk to, where
        it is not whoever the socket is connected to. `up`, `down`: what may be sent and read; other
        connections may share them."""
        self.peer = peer or "?"
        self._choose = choose
        self.heard_at = self.sent_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._inbox = Inbox(pause=self._pause_reading, resume=self._resume_reading)
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()
        self._refusing = False
        self._caps = (up, down)
        self._up = Pace(up, self._loop) if up is not None else None
        self._down = Pace(down, self._loop, reads=True) if down is not None else None
        self._slowed = False
        """Whether we do not read because of `down`."""
        self._copies = isinstance(self._loop, asyncio.BaseEventLoop)
        """Whether writing copies what the socket does not take at once; uvloop does not."""
        self._layer = layer
        self._pumping = False
        self._agreed: asyncio.Future[bool] = self._loop.create_future()
        """Set when frames can be sent, or never will be."""
        self._agreeing: asyncio.TimerHandle | None = None
        self._answers_bytes = 0
        """What the layer has answered since the other side last read all there was."""
        self._part_bytes = COPIED_PART_BYTES if self._copies else PART_BYTES
        if layer is not None:
            self._part_bytes = LAYERED_PART_BYTES
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
        return self._inbox.paused or self._slowed

    @property
    def binding(self) -> bytes:
        layer = innermost(self._layer)
        return layer.key if isinstance(layer, Tls) else b""

    async def agreed(self) -> None:
        """Wait until the other side has been reached. Raises PeerError.

        It may have gone again since: what it has said can still be received.
        """
        if not await self._agreed:
            self._inbox.check()

    def once_agreed(self, call: Callable[[], None]) -> None:
        """Call it when the other side has been reached, or never will be."""
        self._agreed.add_done_callback(lambda _: call())

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
        clear = self._up is None or self._up.clear
        return clear and self._writable.is_set() and not self._turn.locked()

    async def send(self, message: Message, payload: Payload = b"") -> None:
        most = self._part_bytes if self._up is None else self._up.part(self._part_bytes)
        if len(payload) > most or self._turn.locked():
            self._inbox.check()
            await self._send_in_parts(message, payload)
        elif not self.send_at_once(message, payload):
            await self._left(message)

    def send_at_once(self, message: Message, payload: Payload = b"") -> bool:
        self._inbox.check()
        assert self._transport is not None
        head = pack(message, len(payload))
        if self._layer is None:
            self._transport.writelines([head, payload] if len(payload) else [head])
            self._wrote(len(head) + len(payload))
        else:
            self._layer.write(head)
            self._layer.write(payload)
            self._flush()
        self.sent_at = self._loop.time()
        # Some versions of asyncio forget to say that something is left.
        left = self._copies and self._transport.get_write_buffer_size() > 0
        clear = self._up is None or self._up.clear
        return clear and self._writable.is_set() and not left

    async def _send_in_parts(self, message: Message, payload: Payload) -> None:
        async with self._turn:
            self._inbox.check()
            if self._up is not None:
                await self._left(message)
            self._write(pack(message, len(payload)))
            self._rest = memoryview(payload)
            try:
                while len(self._rest):
                    part, self._rest = self._split()
                    self._write(part)
                    await self._gone()
            except asyncio.CancelledError:
                if not self._hurries and len(self._rest):  # half a frame: nothing can follow it
                    self.close(lost(self.peer, "We broke off in the middle of a frame"))
                self._hurry()
                raise
            finally:
                self._rest = NOTHING

    def _split(self) -> tuple[memoryview, memoryview]:
        size = self._part_bytes if self._up is None else self._up.part(self._part_bytes)
        return self._rest[:size], self._rest[size:]

    def _hurry(self) -> None:
        """Give what is left of a frame now: whoever goes, or has a last word, cannot wait."""
        rest, self._rest = self._rest, NOTHING
        if len(rest) and self._hurries:
            self._write(rest)

    @property
    def _hurries(self) -> bool:
        """Whether all of a payload can be given at once: without a copy of it, nor beyond a cap."""
        return not self._copies and self._layer is None and self._up is None

    def _write(self, part: Payload) -> None:
        assert self._transport is not None
        if self._layer is None:
            self._transport.write(part)
            self._wrote(len(part))
        else:
            self._layer.write(part)
            self._flush()
        self.sent_at = self._loop.time()

    def _flush(self) -> int:
        """Send what the layer has for the socket; how much that was."""
        assert self._transport is not None
        assert self._layer is not None
        data = self._layer.take()
        if data:
            self._transport.write(data)
            self._wrote(len(data))
        return len(data)

    def _wrote(self, count: int) -> None:
        self._written_bytes += count
        if self._up is not None:
            self._up.take(count)

    def _answer(self) -> None:
        """Send what the layer answers to what has arrived. Raises FrameError."""
        if self._writable.is_set():
            self._answers_bytes = 0
        self._answers_bytes += self._flush()
        if self._answers_bytes > MOST_ANSWERS_BYTES:
            raise FrameError("The other side wants answers and does not read them.")

    async def _gone(self) -> None:
        """A part has left our hands, and others have had a turn."""
        if self._writable.is_set():
            await asyncio.sleep(0)
        await self.drained()

    async def _left(self, message: Message) -> None:
        """What was sent has left our hands, and more may be sent: a heartbeat may at any time."""
        if isinstance(message, Heartbeat):
            await self._writable.wait()
            self._inbox.check()
        else:
            await self.drained()

    async def drained(self) -> None:
        await self._writable.wait()
        self._inbox.check()
        if self._up is not None and not self._up.clear:
            await self._up.turn()
            self._inbox.check()

    async def receive(self) -> tuple[Message, memoryview]:
        return await self._inbox.get()

    def refuse(self, error: PeerError) -> None:
        """Say what is wrong, then end it.

        We go on reading for a moment: closing with unread bytes would reset the connection, and the
        other side would never hear why.
        """
        self._end(error)
        assert self._transport is not None
        if self._refusing or self._transport.is_closing():
            return
        self._refusing = True
        self._resume_reading()
        with contextlib.suppress(PeerError):  # a broken layer carries no last words
            self._hurry()
            self._last_words(pack(problem(error)))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._loop.call_later(REFUSE_GRACE_S, self._transport.abort)

    def _last_words(self, words: bytes) -> None:
        assert self._transport is not None
        if self._layer is None or self._layer.ready:
            self._write(words)
        elif isinstance(self._layer, Sniffing) and self._layer.chosen is None:
            # Nobody can tell what it speaks.
            self._transport.write(words)
        if self._layer is not None:  # an alert may say why nothing came about
            self._layer.end()
            self._flush()

    def close(self, error: PeerError | None = None) -> None:
        self._end(error or lost(self.peer, "We closed the connection"))
        if self._transport is None or self._refusing:
            return  # `refuse` ends it, in a moment
        if error is not None:
            self._transport.abort()
        elif not self._transport.is_closing():
            with contextlib.suppress(PeerError):
                self._hurry()
                self._last_words(b"")
            self._transport.close()
            self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)

    def _end(self, error: PeerError) -> None:
        self._inbox.end(error)
        for pace in (self._up, self._down):
            if pace is not None:
                pace.end()
        if not self._agreed.done():
            self._settle(reached=False)
            if self._on_made is not None:  # nobody else will ever hear of it
                logger.info("%s has not come in: %s", self.peer, error)

    async def wait_closed(self) -> None:
        await self._closed.wait()

    # -- what the event loop calls ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._inbox.error is not None:  # it had to make room before it was here
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=0)
        self.heard_at = self.sent_at = self._loop.time()
        if self.peer == "?":
            self.peer = _readable(transport.get_extra_info("peername"))
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not is_loopback(str(sock.getpeername()[0])):
                _keep_little_unsent(sock)
            up, down = self._caps
            bound_buffers(sock, up=up, down=down)
        if self._choose is not None:
            name = transport.get_extra_info("peername")
            self._layer = self._choose(str(name[0]) if isinstance(name, tuple) else "")
            self._part_bytes = LAYERED_PART_BYTES
        if self._layer is None:
            self._reached()
            return
        if self._on_made is not None:  # whoever dials has its own patience
            self._agreeing = self._loop.call_later(AGREEING_S, self._agree_or_go)
        try:
            self._layer.begin()
            self._pump()
        except PeerError as error:
            self.refuse(error)

    def _agree_or_go(self) -> None:
        if not self._agreed.done():
            self.close(lost(self.peer, f"Nothing was agreed on within {AGREEING_S:g} s"))

    def _reached(self) -> None:
        """The other side: frames may be sent from now on."""
        if self._agreed.done():
            return
        self._settle(reached=True)
        if self._on_made is not None:
            task = self._loop.create_task(guarded(self._on_made, self))
            _TASKS.add(task)
            task.add_done_callback(_TASKS.discard)

    def _settle(self, *, reached: bool) -> None:
        self._agreed.set_result(reached)
        if self._agreeing is not None:  # a timer keeps whatever it is about
            self._agreeing.cancel()
            self._agreeing = None

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._inbox.error is not None or self._layer is not None:
            room = _scratch(self._loop)
        else:
            room = self._inbox.reader.buffer()
        if self._down is not None:
            return room[: self._down.part(READ_BYTES)]
        return room if len(room) <= SMALL_BYTES else room[:READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_at = self._loop.time()
        self.received_bytes += nbytes
        if self._down is not None:
            self._slow_down(self._down, nbytes)
        if self._inbox.error is not None:
            return  # we have said goodbye: whatever still arrives is not looked at
        try:
            if self._layer is None:
                self._inbox.filled(nbytes)
            else:
                self._layer.feed(_scratch(self._loop)[:nbytes])
                self._pump()
        except PeerError as error:
            self.refuse(error)

    def _pump(self) -> None:
        """Take frames out of the layer for as long as somebody wants them. Raises PeerError."""
        layer = self._layer
        if self._pumping or layer is None:
            return
        self._pumping = True
        try:
            self._answer()
            if layer.ready:
                self._reached()
                if self._read_from(layer) and layer.closed:
                    self._leave_behind()
                self._drop_bare(layer)
        finally:
            self._pumping = False

    def _read_from(self, layer: Layer) -> bool:
        """Whether all it has was wanted."""
        while not self._inbox.paused and self._inbox.error is None:
            count = layer.read_into(self._inbox.reader.buffer())
            if not count:
                return True
            self._inbox.filled(count)
        return False

    def _drop_bare(self, layer: Layer) -> None:
        """Where frames come as they are, nothing need be in between any more."""
        bare = layer.chosen if isinstance(layer, Sniffing) else layer
        if isinstance(bare, Bare) and bare.empty:
            self._layer = None
            self._part_bytes = COPIED_PART_BYTES if self._copies else PART_BYTES

    def eof_received(self) -> bool:
        self._leave_behind()
        return False

    def _leave_behind(self) -> None:
        """The other side sends no more: what we have said still goes, but not for ever."""
        assert self._transport is not None
        self._end(lost(self.peer, self._how_it_ended()))
        self._transport.close()
        self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)

    def _how_it_ended(self) -> str:
        layer = innermost(self._layer)
        if isinstance(layer, Tls) and not layer.closed:
            return "The connection was cut off"  # nobody who reads along can say good-bye for them
        return "The other side closed the connection"

    def connection_lost(self, exc: Exception | None) -> None:
        why = self._how_it_ended()
        if isinstance(exc, OSError) and exc.strerror:
            why = exc.strerror
        self._end(lost(self.peer, why))
        self._writable.set()
        self._closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _slow_down(self, down: Pace, nbytes: int) -> None:
        """Charge what has come; read no more until nothing is owed."""
        if down.take(nbytes) or self._slowed or self._inbox.error is not None:
            return
        self._slowed = True
        self._pause_reading()
        down.turn().add_done_callback(self._speed_up)

    def _speed_up(self, turn: asyncio.Future[None]) -> None:
        self._slowed = False
        if not self._inbox.paused:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._layer is not None and self._inbox.error is None:
            try:
                self._pump()  # what it holds comes first
            except PeerError as error:
                self.refuse(error)
                return
            if self._inbox.paused:
                return
        if self._slowed and self._inbox.error is None:
            return
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


_TASKS: set[asyncio.Task[None]] = set()
_SCRATCH: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = (
    weakref.WeakKeyDictionary()
)


def _scratch(loop: asyncio.AbstractEventLoop) -> memoryview:
    """Where a loop's sockets are read for layers: what arrives is fed before the next is read."""
    found = _SCRATCH.get(loop)
    if found is None:
        found = _SCRATCH[loop] = memoryview(bytearray(READ_BYTES))
    return found


def _keep_little_unsent(sock: socket.socket) -> None:
    """What has left our hands should be on its way, not in the system's buffers: megabytes would
    fit there, before whatever is said next, and `send` would say that all is sent."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def _readable(name: object) -> str:
    if isinstance(name, tuple) and len(name) >= 2:
        host, port = name[:2]
        # A socket for both kinds of addresses says it so.
        return spelled(host.removeprefix("::ffff:"), port)
    return str(name or "?")
