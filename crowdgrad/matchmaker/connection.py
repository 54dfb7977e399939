"""One WebSocket: an outbox that never makes the room wait, and a bounded inbox.

Ten thousand people wait here, so a socket that has nothing to say costs one task and no timer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ClassVar, TypeVar

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from crowdgrad.errors import MessageError
from crowdgrad.matchmaker.refusal import Refusal, says_too_much
from crowdgrad.net import rooms

MOST_SAID, WINDOW_S = 100, 10.0
"""Messages of one socket, in so many seconds."""
OUTBOX_BYTES = 2 << 20
"""What may wait for a peer that does not read: two rosters of a thousand members, with room."""
FAREWELL_S = 3.0
GOING_AWAY = 1001
POLICY = 1008
BUSY = 1013

T = TypeVar("T")


class SocketConnection:
    """What the room says is sent, or queued and sent by a task; who does not read is dropped."""

    _last: ClassVar[tuple[rooms.Said | None, str]] = (None, "")
    """What was encoded last: a roster goes to many at once."""

    def __init__(
        self, socket: WebSocket, send_now: Callable[[str], bool] = lambda text: False
    ) -> None:
        """`send_now` sends a text if that is possible without waiting."""
        self._socket = socket
        self._send_now = send_now
        self._outbox: deque[str] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self._sending: asyncio.Task[None] | None = None
        self._farewell = (GOING_AWAY, "the matchmaker goes away, or has not heard from you")
        self._limit: asyncio.Timeout | None = None

    def send(self, message: rooms.Said) -> None:
        if self._closed:
            return
        if self._waiting_bytes > OUTBOX_BYTES:
            self._farewell = (BUSY, "you do not read what you are told")
            self.close()
            return
        self._put(message)

    def close(self, why: Refusal | None = None) -> None:
        """What was said before still goes out, if the peer takes it within a few seconds."""
        if self._closed:
            return
        if why is not None:
            self._farewell = (POLICY, why.error.code)
            self._put(why.refused)
        self._closed = True
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + FAREWELL_S)
        self._send_soon()

    def _put(self, message: rooms.Said) -> None:
        if SocketConnection._last[0] is not message:
            SocketConnection._last = (message, rooms.encode(message).decode())
        text = SocketConnection._last[1]
        if self._sending is None and self._send_now(text):
            return
        self._outbox.append(text)
        self._waiting_bytes += len(text)
        self._send_soon()

    def _send_soon(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._outbox:
                text = self._outbox.popleft()
                await self._socket.send_text(text)
                self._waiting_bytes -= len(text)
            if self._closed and self._socket.application_state is WebSocketState.CONNECTED:
                await self._socket.close(*self._farewell)
        except (WebSocketDisconnect, RuntimeError):
            # RuntimeError is what Starlette says of a socket closed in the meantime. The reader
            # notices the same and ends the visit.
            self._closed = True
            self._outbox.clear()
        finally:
            self._sending = None

    async def read(self, decoder: msgspec.json.Decoder[T]) -> T | None:
        """The next message, None when the peer is gone. Raises MessageError."""
        event = await self._socket.receive()
        if event["type"] == "websocket.disconnect":
            return None
        raw = event.get("text") or event.get("bytes") or ""
        if len(raw) > rooms.MAX_REQUEST_BYTES:
            raise MessageError(
                f"A message has {len(raw)} bytes; {rooms.MAX_REQUEST_BYTES} at most."
            )
        return rooms.decode_exactly(decoder, raw)

    async def _say_good_bye(self) -> None:
        """Let what was said last go out, if the peer takes it."""
        if self._sending is None:
            return
        _, late = await asyncio.wait({self._sending}, timeout=FAREWELL_S)
        for task in late:
            task.cancel()

    async def visit(
        self,
        decoder: msgspec.json.Decoder[T],
        *,
        hello_within_s: float,
        arrive: Callable[[rooms.Hello], None],
        hear: Callable[[T], None],
        leave: Callable[[], None],
        refused: Callable[[Refusal], None] = lambda refusal: None,
    ) -> None:
        """The life of one socket: hello, messages, good-bye. A refusal is told, then it ends."""
        try:
            async with asyncio.timeout(hello_within_s) as self._limit:
                try:
                    await self._listen(decoder, arrive, hear)
                except Refusal as refusal:
                    refused(refusal)
                    self.close(refusal)
        except TimeoutError:
            self._limit = None
            self.close(Refusal(400, MessageError("Nobody said Hello in time.")))
        finally:
            leave()
            self._limit = None
            self.close()
            await self._say_good_bye()

    async def _listen(
        self,
        decoder: msgspec.json.Decoder[T],
        arrive: Callable[[rooms.Hello], None],
        hear: Callable[[T], None],
    ) -> None:
        """Raises Refusal."""
        try:
            first = await self.read(decoder)
            if first is None:
                return
            if not isinstance(first, rooms.Hello):
                raise MessageError("The first message says Hello, signed.")
            arrive(first)
            assert self._limit is not None
            if not self._closed:
                self._limit.reschedule(None)
            loop, said, began = asyncio.get_running_loop(), 0, 0.0
            while (message := await self.read(decoder)) is not None:
                if loop.time() - began > WINDOW_S:
                    said, began = 0, loop.time()
                said += 1
                if said > MOST_SAID:
                    raise says_too_much()
                hear(message)
        except MessageError as error:
            raise Refusal(400, error) from None
