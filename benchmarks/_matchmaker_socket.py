"""A WebSocket client that costs next to nothing, so that one process can be ten thousand people.

It knows what a matchmaker says and no more: whole text frames, pings, a close, or an HTTP answer in
place of the handshake. Frames are masked with zeros, which leaves the bytes as they are.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import Protocol

TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
SWITCHING = 101
MOST_BYTES = 4 << 20
_KEY = "AAECAwQFBgcICQoLDA0ODw=="
"""The handshake's nonce; nobody but a proxy would care that it is always the same."""


def frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """As a client sends it."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    return head + b"\0\0\0\0" + payload


def handshake(authority: str, path: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: {authority}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Version: 13\r\n"
        "User-Agent: crowdgrad/0.1\r\n\r\n"
    ).encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an HTTP answer."""

    status: int
    retry_after_s: float | None
    """None: it did not say, or not in a number."""


def read_answer(head: bytes) -> Answer:
    """Raises ValueError for what is no HTTP."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, status = first.split(" ")[:2]
    if not version.startswith("HTTP/1."):
        raise ValueError(f"not HTTP: {first[:40]!r}")
    fields = dict(line.lower().split(":", 1) for line in lines if ":" in line)
    said = fields.get("retry-after", "").strip()
    return Answer(int(status), float(said) if said.isdigit() else None)


def read_frames(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Whole frames a server sent (opcode, payload), and the beginning of the next one.

    Raises ValueError for what no matchmaker sends: fragments, or far too much at once.
    """
    found: list[tuple[int, bytes]] = []
    at, end = 0, len(data)
    while end - at >= 2:
        opcode, size, body = data[at], data[at + 1], at + 2
        if size == 126 and end >= at + 4:
            size, body = int.from_bytes(data[at + 2 : at + 4]), at + 4
        elif size == 127 and end >= at + 10:
            size, body = int.from_bytes(data[at + 2 : at + 10]), at + 10
        elif size >= 126:
            break
        if not opcode & 0x80 or size > MOST_BYTES:
            raise ValueError(f"a frame of {size} bytes that begins with {opcode:#x}")
        if end < body + size:
            break
        found.append((opcode & 0xF, data[body : body + size]))
        at = body + size
    return found, data[at:]


class Listener(Protocol):
    """Whoever holds the client. `ended` comes last, unless the listener itself has closed it."""

    def opened(self) -> None: ...

    def heard(self, text: bytes) -> None: ...

    def ended(self, answer: Answer | None) -> None:
        """`answer`: the server's, where it was no WebSocket; None: it hung up."""


class Client(asyncio.Protocol):
    __slots__ = ("_answer", "_data", "_listener", "_open", "_request", "_transport")

    def __init__(self, request: bytes, listener: Listener) -> None:
        self._request = request
        self._listener: Listener | None = listener
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._data = b""
        self._open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self._listener is None:  # closed while it was on its way
            self._hang_up()
        else:
            self.send(self._request)

    def send(self, data: bytes) -> None:
        """Whole frames."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """What was sent goes out, then the socket closes. The listener hears nothing more."""
        self._listener = None
        self._hang_up()

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data
        try:
            if not self._open:
                self._read_head()
            if self._open:
                self._read_frames()
        except ValueError:
            assert self._transport is not None
            self._transport.abort()

    def _read_head(self) -> None:
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if not end or self._answer is not None:
            return
        answer = read_answer(head)
        if answer.status == SWITCHING:
            self._open, self._data = True, rest
            assert self._listener is not None
            self._listener.opened()
        else:
            self._answer = answer
            self._hang_up()

    def _read_frames(self) -> None:
        frames, self._data = read_frames(self._data)
        for opcode, payload in frames:
            if self._listener is None:
                return
            if opcode == TEXT:
                self._listener.heard(payload)
            elif opcode == PING:
                self.send(frame(payload, PONG))
            elif opcode == CLOSE:
                self.send(frame(payload, CLOSE))
                self._hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        # Nothing here may refer to itself: the load collects no garbage.
        listener, self._listener, self._transport = self._listener, None, None
        if listener is not None:
            listener.ended(self._answer)
