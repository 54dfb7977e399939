"""One WebSocket: an outbox that never makes the room wait, and a bounded inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from crowdgrad.errors import MessageError
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.net import rooms

OUTBOX = 256
FAREWELL_S = 3.0
GOING_AWAY = 1001
POLICY = 1008
BUSY = 1013

T = TypeVar("T")


class SocketConnection:
    """What the room says is queued and sent by a task; a peer that does not read is dropped."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._closed = False
        self._farewell = (GOING_AWAY, "the matchmaker goes away, or has not heard from you")
        self.pump = asyncio.create_task(self._send_all())

    def send(self, message: rooms.Said) -> None:
        if self._closed:
            return
        if self._outbox.qsize() >= OUTBOX:
            self._farewell = (BUSY, "you do not read what you are told")
            self.close()
            return
        self._outbox.put_nowait(rooms.encode(message))

    def close(self, why: Refusal | None = None) -> None:
        """What was said before still goes out, if the peer takes it within a few seconds."""
        if self._closed:
            return
        self._closed = True
        if why is not None:
            self._farewell = (POLICY, why.error.code)
            self._outbox.put_nowait(rooms.encode(why.refused))
        self._outbox.put_nowait(None)
        asyncio.get_running_loop().call_later(FAREWELL_S, self.pump.cancel)

    async def _send_all(self) -> None:
        try:
            while (raw := await self._outbox.get()) is not None:
                await self._socket.send_text(raw.decode())
            if self._socket.application_state is WebSocketState.CONNECTED:
                await self._socket.close(*self._farewell)
        except (WebSocketDisconnect, RuntimeError):
            # RuntimeError is what Starlette says of a socket closed in the meantime. The reader
            # notices the same and ends the visit.
            return

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
        return rooms.decode(decoder, raw)


async def visit(
    socket: WebSocket,
    decoder: msgspec.json.Decoder[T],
    *,
    hello_within_s: float,
    arrive: Callable[[rooms.Hello, SocketConnection], None],
    hear: Callable[[T, SocketConnection], None],
    leave: Callable[[SocketConnection], None],
) -> None:
    """The life of one socket: hello, messages, good-bye. A refusal is told, then it ends."""
    await socket.accept()
    connection = SocketConnection(socket)

    async def listen() -> None:
        async with asyncio.timeout(hello_within_s):
            first = await connection.read(decoder)
        if first is None:
            return
        if not isinstance(first, rooms.Hello):
            raise MessageError("The first message says Hello with the token.")
        arrive(first, connection)
        while (message := await connection.read(decoder)) is not None:
            hear(message, connection)

    reading = asyncio.create_task(_explained(listen, connection))
    try:
        await asyncio.wait({reading, connection.pump}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leave(connection)
        connection.close()
        reading.cancel()
        await asyncio.gather(connection.pump, return_exceptions=True)
    if not reading.cancelled():
        reading.result()


async def _explained(listen: Callable[[], Awaitable[None]], connection: SocketConnection) -> None:
    try:
        await listen()
    except Refusal as refusal:
        connection.close(refusal)
    except MessageError as error:
        connection.close(Refusal(400, error))
    except TimeoutError:
        connection.close(Refusal(400, MessageError("Nobody said Hello in time.")))
