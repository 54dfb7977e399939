"""Frames: a checked header of 24 bytes, a small body (a message), a payload (a vector or a chunk).

    offset  bytes  what
    0       4      magic "cgrd"
    4       1      protocol major: a frame of another major is refused
    5       1      protocol minor
    6       2      kind of message
    8       4      body bytes, at most MAX_BODY_BYTES
    12      8      payload bytes, at most what the receiver allows at this point of the conversation
    20      4      crc32 of the 20 bytes before

All numbers are little-endian. Lengths are checked before anything is allocated. The payload is not
summed again: TCP or TLS vouch for it, and a crc32 of 318 kB would cost 70 % of an echo.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from crowdgrad.errors import FrameError, VersionMismatch
from crowdgrad.net.messages import MAX_BODY_BYTES, PROTOCOL, Message, decode, encode

MAGIC = b"cgrd"
HEADER_BYTES = 24
MAX_FIRST_BODY_BYTES = 16 << 10
_FIELDS = struct.Struct("<4sBBHIQ")
_CHECK = struct.Struct("<I")
UPDATE_ADVICE = "Update crowdgrad on the older side: `pip install -U crowdgrad`."


class Header(NamedTuple):
    kind: int
    body_bytes: int
    payload_bytes: int


def pack(message: Message, payload_bytes: int = 0) -> bytes:
    """Header and body of a frame; the payload follows them on the wire."""
    body = encode(message)
    fields = _FIELDS.pack(MAGIC, PROTOCOL[0], PROTOCOL[1], message.kind, len(body), payload_bytes)
    return fields + _CHECK.pack(zlib.crc32(fields)) + body


def unpack(header: bytes | bytearray | memoryview, max_body_bytes: int = MAX_BODY_BYTES) -> Header:
    """Raises FrameError or VersionMismatch."""
    magic, major, minor, kind, body_bytes, payload_bytes = _FIELDS.unpack_from(header)
    if magic != MAGIC:
        raise FrameError(
            f"The other side does not speak crowdgrad (it began with {bytes(magic)!r}).",
            advice="Check the address and port.",
        )
    if major != PROTOCOL[0]:  # first of all: what follows may mean something else there
        raise VersionMismatch(
            f"The other side speaks protocol {major}.{minor}, we speak "
            f"{PROTOCOL[0]}.{PROTOCOL[1]}.",
            advice=UPDATE_ADVICE,
        )
    if zlib.crc32(memoryview(header)[:20]) != _CHECK.unpack_from(header, 20)[0]:
        raise FrameError("A frame's header is damaged.", advice="Connect again.")
    if body_bytes > max_body_bytes:
        raise FrameError(f"A frame announces a body of {body_bytes} bytes.")
    return Header(kind, body_bytes, payload_bytes)


Sink = Callable[[Message, int], memoryview | None]
"""Where a payload is to go: given its message and length, a writable buffer of that length. None:
not yet; nothing further is read until `make_room` brings one. The buffer may be longer
(`SLACK_BYTES`): what comes behind the payload lands there, and is the next frame's.
`NOWHERE`: nobody wants it; its bytes are read and thrown away, and the message comes without them.
Raises a PeerError to refuse it, and with it whoever sent it."""
NOWHERE = memoryview(b"")
SLACK_BYTES = 64
"""With so much more room than a payload needs, its last read comes back short. Then the event loop
knows that nothing is left and turns to others; otherwise it would try again at once, and whoever
sends its next frame quickly enough would be served over and over."""


def refuse_payload(message: Message, length: int) -> memoryview:
    raise FrameError(f"A {type(message).__name__} came with {length} bytes that nobody asked for.")


Frame = tuple[Message, memoryview]


class FrameReader:
    """Turns a stream of bytes into frames; does no input or output itself.

    The carrier asks `buffer()` where to put the next bytes and calls `filled(n)`, which returns the
    frames that became complete. Headers and bodies pass through a small staging buffer; payloads go
    straight to where the sink says, except for the part that arrived together with its header.
    Where the sink has no room yet the reader is `stuck`: the carrier stops until there is.
    """

    STAGING_BYTES = 4 << 10
    """Enough for nearly every header and body, and little of a payload passes through with them."""
    UNWANTED_BYTES = 64 << 10
    """What is thrown away is read in larger pieces."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.max_body_bytes = MAX_FIRST_BODY_BYTES
        """Small until the receiver knows whom it talks to and sets a sink."""
        self._staging = bytearray(self.STAGING_BYTES)
        self._held = 0  # bytes in staging not yet taken
        self._message: Message | None = None  # the frame whose payload is arriving
        self._payload = memoryview(b"")
        self._length = self._arrived = 0  # of that payload
        self._owed: tuple[Message, int] | None = None  # the frame whose payload has no room yet
        self._unwanted: tuple[Message, int] | None = None  # the frame whose payload nobody wants

    def give_up(self) -> None:
        """Nothing more is read: let go of buffers and of whoever they were for."""
        self.sink = refuse_payload
        self._staging, self._held = bytearray(), 0
        self._message, self._payload = None, memoryview(b"")
        self._owed = self._unwanted = None

    @property
    def stuck(self) -> bool:
        """Whether a payload waits for room; `buffer` and `filled` are not to be called then."""
        return self._owed is not None

    def buffer(self) -> memoryview:
        if self._message is not None:
            return self._payload[self._arrived : self._length + SLACK_BYTES]
        return memoryview(self._staging)[self._held :]

    def filled(self, count: int) -> list[Frame]:
        """Raises PeerError: the stream cannot be followed any further."""
        assert self._owed is None, "there is no room yet"
        frames: list[Frame] = []
        if self._message is not None:
            self._arrived += count
            if self._arrived >= self._length:
                self._complete(frames, self._message)
            return frames
        self._held += count
        self._take(frames, self._throw_away(frames, 0) if self._unwanted is not None else 0)
        if self._unwanted is not None:
            self._make_staging(self.UNWANTED_BYTES)
        return frames

    def make_room(self, payload: memoryview) -> list[Frame]:
        """The buffer that the sink owed, at last; the frames that are complete with it."""
        assert self._owed is not None, "nothing is owed"
        (message, length), self._owed = self._owed, None
        assert len(payload) >= length
        frames: list[Frame] = []
        self._take(frames, self._begin(frames, message, payload, length, 0))
        return frames

    def _complete(self, frames: list[Frame], message: Message) -> None:
        """Hand a payload over; what came behind it is the beginning of the next frame."""
        frames.append((message, self._payload[: self._length]))
        behind = self._payload[self._length : self._arrived]
        self._message, self._payload = None, memoryview(b"")
        if len(behind):
            self._held = len(behind)
            self._staging[: self._held] = behind
            self._take(frames, 0)

    def _take(self, frames: list[Frame], at: int) -> None:
        """Take every whole frame out of staging from there on; leave the rest at its beginning."""
        while self._message is None and self._unwanted is None and self._held - at >= HEADER_BYTES:
            header = unpack(memoryview(self._staging)[at : at + HEADER_BYTES], self.max_body_bytes)
            end = at + HEADER_BYTES + header.body_bytes
            if end > self._held:
                self._grow(HEADER_BYTES + header.body_bytes)
                break
            message = decode(header.kind, memoryview(self._staging)[at + HEADER_BYTES : end])
            at = end
            if header.payload_bytes == 0:
                frames.append((message, memoryview(b"")))
                continue
            payload = self.sink(message, header.payload_bytes)
            if payload is None:
                self._owed = (message, header.payload_bytes)
                break
            if not len(payload):
                self._unwanted = (message, header.payload_bytes)
                at = self._throw_away(frames, at)
                continue
            assert len(payload) >= header.payload_bytes
            at = self._begin(frames, message, payload, header.payload_bytes, at)
        rest = self._held - at
        if at and rest:
            self._staging[:rest] = self._staging[at : self._held]
        self._held = rest

    def _begin(
        self, frames: list[Frame], message: Message, payload: memoryview, length: int, at: int
    ) -> int:
        """Put what has come of a payload where it belongs; returns where staging goes on."""
        here = min(self._held - at, length)
        payload[:here] = memoryview(self._staging)[at : at + here]
        if here == length:
            frames.append((message, payload[:length]))
        else:
            self._message, self._payload = message, payload
            self._length, self._arrived = length, here
        return at + here

    def _throw_away(self, frames: list[Frame], at: int) -> int:
        """Pass over what has come of a payload nobody wants; returns where staging goes on."""
        assert self._unwanted is not None
        message, left = self._unwanted
        here = min(self._held - at, left)
        self._unwanted = (message, left - here) if here < left else None
        if self._unwanted is None:
            frames.append((message, NOWHERE))
        return at + here

    def _grow(self, frame_bytes: int) -> None:
        # A body larger than staging (a roster of thousands) is rare: grow once, up to the bound
        # that `unpack` has checked.
        if frame_bytes > len(self._staging):
            self._make_staging(frame_bytes + self.STAGING_BYTES)

    def _make_staging(self, size: int) -> None:
        if size > len(self._staging):  # a new object, because views of the old one may be in use
            grown = bytearray(size)
            grown[: self._held] = self._staging[: self._held]
            self._staging = grown
