"""How fast the link to a relay is: one round trip, so many bytes down, as many up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from crowdgrad.domain.routes import Route
from crowdgrad.errors import ConnectionLost, MessageError, Unreachable
from crowdgrad.net import relay_words as words
from crowdgrad.net.identity import Identity
from crowdgrad.net.transport.layers import Bare, Layer
from crowdgrad.net.transport.websocket import Dialling

COUNT = 4 << 20
PIECE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    round_trip_s: float
    """Connecting, which takes one; through TLS it takes more."""
    bytes: int
    """Each way: what the relay allowed."""
    down_s: float
    up_s: float

    @property
    def down_per_s(self) -> float:
        return self.bytes / max(self.down_s, 1e-9)

    @property
    def up_per_s(self) -> float:
        return self.bytes / max(self.up_s, 1e-9)


async def measure(
    route: Route, key: Identity, *, count: int = COUNT, timeout_s: float = 30.0
) -> Link:
    """Raises Unreachable, or PeerError with what the relay says."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            before = loop.time()
            reader, writer = await asyncio.open_connection(
                route.host, route.port, ssl=route.url.startswith("wss:") or None
            )
            round_trip_s = loop.time() - before
            try:
                layer: Layer = Dialling(route.url) if route.url else Bare()
                return await _Talk(reader, writer, layer).measure(
                    key, words.at_of(route), count, round_trip_s
                )
            finally:
                writer.close()
    except TimeoutError:
        raise ConnectionLost(f"The relay {route} was not through in {timeout_s:g} s.") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise Unreachable(
            f"No relay answers at {words.at_of(route)} ({why}).", advice="Is the address right?"
        ) from None


class _Talk:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, layer: Layer
    ) -> None:
        self._reader, self._writer, self._layer = reader, writer, layer
        self._piece = memoryview(bytearray(PIECE_BYTES))
        self._words = words.Reader(magic=False)
        self._rest = b""
        """What has come behind the last word."""

    async def measure(self, key: Identity, at: str, count: int, round_trip_s: float) -> Link:
        clock = asyncio.get_running_loop().time
        self._layer.begin()
        while not self._layer.ready:
            self._writer.write(self._layer.take())
            self._layer.feed(memoryview(await self._more()))
        await self._send(words.MAGIC + words.pack(words.Hi(version=words.VERSION)))
        challenge = await self._hear()
        if not isinstance(challenge, words.Challenge):
            raise _out_of_place(challenge)
        await self._send(words.pack(words.measure(key, challenge.nonce, at=at, count=count)))
        granted = await self._hear()
        if not isinstance(granted, words.Measuring) or granted.bytes > count:
            raise _out_of_place(granted)
        began = clock()
        await self._take(granted.bytes)
        down_s, began = clock() - began, clock()
        await self._send(bytes(granted.bytes))
        done = await self._hear()
        if not isinstance(done, words.Measured):
            raise _out_of_place(done)
        return Link(
            round_trip_s=round_trip_s, bytes=granted.bytes, down_s=down_s, up_s=clock() - began
        )

    async def _send(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            self._layer.write(memoryview(data)[at : at + PIECE_BYTES])
            self._writer.write(self._layer.take())
            await self._writer.drain()

    async def _more(self) -> bytes:
        data = await self._reader.read(PIECE_BYTES)
        if not data:
            raise ConnectionLost("The relay closed the connection.")
        return data

    async def _receive(self) -> bytes:
        while not (count := self._layer.read_into(self._piece)):
            self._layer.feed(memoryview(await self._more()))
        return bytes(self._piece[:count])

    async def _hear(self) -> words.FROM_RELAY:
        """Raises PeerError, also what a refusal says."""
        while (body := self._words.body()) is None:
            self._rest = self._words.put(self._rest or await self._receive())
        word = words.of_relay(body)
        if isinstance(word, words.Refused):
            raise words.told(word)
        return word

    async def _take(self, count: int) -> None:
        """So many bytes that mean nothing."""
        held = self._words.rest() + self._rest
        self._rest = b""
        while len(held) < count:
            count -= len(held)
            held = await self._receive()
        self._rest = held[count:]


def _out_of_place(word: words.FROM_RELAY) -> MessageError:
    return MessageError(f"The relay says {type(word).__name__} out of place.")
