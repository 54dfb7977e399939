"""A relay that measures, played here: it allows so many bytes, or has had enough of us."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from crowdgrad.domain.routes import Route
from crowdgrad.errors import NotPutThrough
from crowdgrad.net import relay_words as words

NONCE = bytes(range(32))
REFUSED = words.Refused(
    code=NotPutThrough.code, reason="busy", message="Too many.", advice="Come later."
)
Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def played(play: Play) -> AsyncIterator[Route]:
    """Nobody is left with it at the end."""
    visits: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.current_task()
        assert visit is not None
        visits.add(visit)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await play(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Route(kind="relay", host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    await asyncio.gather(*visits)


async def hear(reader: asyncio.StreamReader) -> words.FROM_DIALLER:
    length = int.from_bytes(await reader.readexactly(2), "little")
    return words.of_dialler(await reader.readexactly(length))


class Relay:
    """`often`: how often it measures; whoever comes then is refused."""

    def __init__(self, often: int = 1000) -> None:
        self.often = often
        self.asked: list[int] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(4) != words.MAGIC:
            return  # somebody looks for another service
        assert isinstance(await hear(reader), words.Hi)
        writer.write(words.pack(words.Challenge(nonce=NONCE)))
        wish = await hear(reader)
        assert isinstance(wish, words.Measure)
        assert words.is_signed(wish, NONCE)
        self.asked.append(wish.bytes)
        if len(self.asked) > self.often:
            writer.write(words.pack(REFUSED))
        else:
            writer.write(words.pack(words.Measuring(bytes=wish.bytes)) + bytes(wish.bytes))
            await reader.readexactly(wish.bytes)
            writer.write(words.pack(words.Measured()))
        await writer.drain()
        await reader.read()
