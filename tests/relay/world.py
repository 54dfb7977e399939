"""A relay in the test's own loop, and those who dial it by hand, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Self, TypeVar

import msgspec
import uvloop

from crowdgrad.net import relay_words as words
from crowdgrad.net.framing import FrameReader, refuse_payload
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.messages import Heartbeat, Message, RelayKnock
from crowdgrad.planner.relaying import Limits
from crowdgrad.relay.serve import Relay, relay_running
from crowdgrad.relay.switchboard import Rules

T = TypeVar("T")
W = TypeVar("W", bound=words.Word)
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
HOST, CALLER = guest("host"), guest("caller")
AT = "relay.example.org:8702"


def run(main: Coroutine[Any, Any, T], loop: str = "uvloop") -> T:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main)


@contextlib.asynccontextmanager
async def relay(**limits: Any) -> AsyncIterator[Relay]:
    async with relay_running(Rules(limits=Limits(**limits))) as running:
        yield running


class Dialler:
    """One connection to a relay: words, then bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.nonce = b""

    @classmethod
    async def dial(cls, relay: Relay, *, greet: bool = True, receive_bytes: int = 0) -> Self:
        sock = socket.socket()
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", relay.port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 16)
        self = cls(reader, writer)
        if greet:
            self.write(words.MAGIC + words.pack(words.Hi(version=1)))
            self.nonce = (await self.hear(words.Challenge)).nonce
        return self

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def say(self, word: words.Word) -> None:
        self.write(words.pack(word))

    async def hear(self, wanted: type[W]) -> W:
        length = int.from_bytes(await self.reader.readexactly(2), "little")
        word = words.of_relay(await self.reader.readexactly(length))
        assert isinstance(word, wanted), word
        return word

    async def refused(self, reason: str) -> words.Refused:
        """It is told why, and nothing after that."""
        said = await self.hear(words.Refused)
        assert said.reason == reason, said
        assert await self.reader.read() == b""
        self.close()
        return said

    async def over(self) -> bytes:
        """What still comes until it ends, reset or closed."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""

    def close(self) -> None:
        self.writer.close()


class Host(Dialler):
    """A host at its place."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._frames = FrameReader(refuse_payload)
        self._heard: list[Message] = []
        self.beats = 0

    @classmethod
    async def serve(
        cls, relay: Relay, key: Identity = HOST, *, job: str = "", at: str = AT
    ) -> Self:
        self = await cls.dial(relay)
        self.say(words.serve(key, self.nonce, at=at, job=job))
        self.granted = await self.hear(words.Registered)
        return self

    granted: words.Registered

    async def message(self) -> Message:
        """The next one, heartbeats aside. Raises EOFError."""
        while not self._heard:
            data = await self.reader.read(4096)
            if not data:
                raise EOFError
            room = self._frames.buffer()
            room[: len(data)] = data
            for message, _ in self._frames.filled(len(data)):
                if isinstance(message, Heartbeat):
                    self.beats += 1
                else:
                    self._heard.append(message)
        return self._heard.pop(0)

    async def knock(self) -> bytes:
        message = await self.message()
        assert isinstance(message, RelayKnock), message
        return message.ticket


async def call(
    relay: Relay, key: Identity = CALLER, *, host: str = HOST.id, job: str = "", **how: int
) -> Dialler:
    caller = await Dialler.dial(relay, **how)  # type: ignore[arg-type]
    caller.say(words.call(key, caller.nonce, at=AT, host=host, job=job))
    return caller


async def answer(relay: Relay, ticket: bytes, **how: int) -> Dialler:
    answering = await Dialler.dial(relay, **how)  # type: ignore[arg-type]
    answering.say(words.Answer(ticket=ticket))
    return answering


async def spliced(
    relay: Relay, host: Host, key: Identity = CALLER, **how: int
) -> tuple[Dialler, Dialler]:
    """The host's end and the caller's."""
    caller = await call(relay, key, **how)
    answering = await answer(relay, await host.knock(), **how)
    await answering.hear(words.Spliced)
    await caller.hear(words.Spliced)
    return answering, caller


async def until(true: Callable[[], bool]) -> None:
    """The loop turns until it is so; the test's own timeout ends it where it never is."""
    while not true():  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.005)


def tally(relay: Relay) -> dict[str, object]:
    """All that a refusal must not change."""
    board = relay.board
    return {
        "hosts": sorted(board.hosts),
        "pairs": len(board.pairs),
        "waiting": len(board.waiting),
        "counted": (board.book.hosts.all, board.book.pairs.all, board.book.measures.all),
        "keys": len(board.meters),
    }


def changed(word: W, **fields: object) -> W:
    return msgspec.structs.replace(word, **fields)
