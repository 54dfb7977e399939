"""One socket that somebody has dialled, raw or as a WebSocket: what comes, what still has to go.

A wire is read straight into a buffer that all share, and what is read is handed to whoever owns the
wire at the moment. What the other side does not take at once is kept, and whoever has more for it
must wait until it is drained: so an idle wire costs next to nothing, and a slow one at most what
was read at once. Through the kernel's `splice` more bytes would pass in a second of one core, for a
pipe to each pair and not by WebSocket; home links are far from either.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Protocol

from crowdgrad.errors import FrameError, PeerError
from crowdgrad.net.transport.base import Payload
from crowdgrad.net.transport.layers import Layer

READ_BYTES = 256 << 10
MOST_ANSWERS_BYTES = 64 << 10
"""What a WebSocket may have answered by itself to somebody who does not read."""
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
UNACKNOWLEDGED_MS = 30_000
"""How long bytes may be on their way before the connection counts as lost."""


class Owner(Protocol):
    """Whoever has a wire at the moment. Where it raises PeerError it is told so by `broke`."""

    def room(self, wire: Wire) -> int:
        """How many bytes may be read now; 0: none."""
        ...

    def passed(self, wire: Wire, count: int) -> None:
        """So many bytes have come."""

    def heard(self, wire: Wire, data: memoryview) -> None:
        """… and this is what they say; to be used before returning."""

    def ended(self, wire: Wire) -> None:
        """The other side sends no more; it may still read."""

    def gone(self, wire: Wire, why: str) -> None:
        """The other side neither sends nor reads any more."""

    def drained(self, wire: Wire) -> None:
        """All that was kept has gone."""

    def broke(self, wire: Wire, error: PeerError) -> None:
        """It says what nobody understands."""


class Buffers:
    """What all wires of a loop share."""

    def __init__(self, size: int = READ_BYTES) -> None:
        self.below = memoryview(bytearray(size))
        self.above = memoryview(bytearray(size))
        """For what comes out of a WebSocket."""


class Wire:
    __slots__ = (
        "_answers", "_buffers", "_finishing", "_loop", "_out", "_sock", "address", "closed",
        "has_ended", "layer", "listening", "owner",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        owner: Owner,
        *,
        address: str,
        buffers: Buffers,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`address`: as it is counted."""
        self._sock, self.owner, self.address = sock, owner, address
        self._buffers, self._loop = buffers, loop
        self.layer: Layer | None = None
        self._out: bytearray | None = None
        self._answers = 0
        """Bytes that the layer has answered since all was taken."""
        self.listening = self.closed = self.has_ended = self._finishing = False
        sock.setblocking(False)
        tune(sock)

    @property
    def kept(self) -> int:
        """Bytes that the other side has not taken yet."""
        return len(self._out) if self._out is not None else 0

    def listen(self, wanted: bool) -> None:
        if wanted == self.listening or self.closed:
            return
        self.listening = wanted
        if wanted:
            self._loop.add_reader(self._sock, self.read)
        else:
            self._loop.remove_reader(self._sock)

    def read(self) -> None:
        """What has come, once."""
        most = self.owner.room(self)
        if not most or self.closed:
            return
        try:
            count = self._sock.recv_into(self._buffers.below, min(most, len(self._buffers.below)))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.owner.gone(self, in_words(error))
            return
        try:
            if not count:
                self._end()
                return
            self.owner.passed(self, count)
            if self.layer is None:
                self.owner.heard(self, self._buffers.below[:count])
            else:
                self._unwrap(self._buffers.below[:count])
        except PeerError as error:
            self.owner.broke(self, error)

    def _end(self) -> None:
        self.has_ended = True
        self.listen(False)
        if self.layer is None:
            self.owner.ended(self)
        else:  # there is no half of a WebSocket
            self.owner.gone(self, "closed")

    def wrap(self, layer: Layer, first: bytes) -> None:
        """It turns out to speak like this, from its first bytes on. Raises PeerError."""
        self.layer = layer
        layer.begin()
        self._unwrap(memoryview(first))

    def _unwrap(self, data: memoryview) -> None:
        assert self.layer is not None
        try:
            self.layer.feed(data)
        finally:
            self._answer(self.layer.take())  # a pong, a good-bye, or why it is refused
        while not self.closed and (count := self.layer.read_into(self._buffers.above)):
            self.owner.heard(self, self._buffers.above[:count])
        if self.layer.closed and not self.closed:
            self._end()

    def _answer(self, data: bytes) -> None:
        """Raises FrameError."""
        if self._out is None:
            self._answers = 0
        self._answers += len(data)
        self._pour(data)
        if self._answers > MOST_ANSWERS_BYTES and self._out is not None:
            raise FrameError("It wants answers (pongs), and does not read them.")

    def send(self, data: Payload) -> None:
        """What is not taken at once is kept: look at `kept`."""
        if self.closed or self._finishing:
            return
        if self.layer is None:
            self._pour(data)
            return
        with contextlib.suppress(PeerError):  # it has said good-bye: then it is gone in a moment
            self.layer.write(data)
        self._pour(self.layer.take())

    def _pour(self, data: Payload) -> None:
        if not len(data) or self.closed:
            return
        if self._out is not None:
            self._out += data
            return
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            # Whoever sends is in the midst of something; and it is told only once.
            self._loop.call_soon(self._lose, in_words(error))
            return
        if sent < len(data):
            self._out = bytearray(memoryview(data)[sent:])
            self._loop.add_writer(self._sock, self._write)

    def _lose(self, why: str) -> None:
        if not self.closed:
            self.owner.gone(self, why)

    def _write(self) -> None:
        assert self._out is not None
        try:
            sent = self._sock.send(self._out)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.owner.gone(self, in_words(error))
            return
        del self._out[:sent]
        if self._out:
            return
        self._out = None
        self._loop.remove_writer(self._sock)
        if self._finishing:
            self._shut()
        self.owner.drained(self)

    def finish(self) -> None:
        """Say no more, once all that is kept has gone."""
        if self.closed or self._finishing:
            return
        if self.layer is not None and self.layer.ready:
            self.layer.end()
            self._pour(self.layer.take())
        self._finishing = True
        if self._out is None:
            self._shut()

    def _shut(self) -> None:
        with contextlib.suppress(OSError):  # it has gone already
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self.closed:
            return
        self.listen(False)
        if self._out is not None:
            self._loop.remove_writer(self._sock)
            self._out = None
        self.closed = True
        self._sock.close()


def tune(sock: socket.socket) -> None:
    """Small bytes go at once, and whoever vanishes is noticed, as far as this system can."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options = {**KEEPALIVE, "TCP_USER_TIMEOUT": UNACKNOWLEDGED_MS}
        for name, value in options.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def in_words(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "lost"
