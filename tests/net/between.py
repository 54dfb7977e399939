"""Somebody on the way between a dialler and a host, and a small host for both to come to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any, Literal, TypeVar

import uvloop

from crowdgrad.data.shards import content_hash
from crowdgrad.domain.routes import Whereabouts, at
from crowdgrad.errors import CrowdgradError
from crowdgrad.host.door import Admits, anyone
from crowdgrad.host.server import Server
from crowdgrad.net import identity
from crowdgrad.net.dialling import Dialler
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.messages import Message
from crowdgrad.net.transport import secure, tcp, tls
from crowdgrad.net.transport.base import Connection
from crowdgrad.volunteer.conversation import Conversation
from tests.host import small

T = TypeVar("T")
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
HOST, MALLORY, ADA, BEN = (guest(name) for name in ("the host", "mallory", "ada", "ben"))
PIN = identity.digest_of(HOST.public)
PROGRAM = b"the program that nobody else is to see" * 500


def run(main: Coroutine[Any, Any, T], loop: str = "uvloop") -> T:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main)


async def until(true: Callable[[], bool]) -> None:
    """The loop turns until it is so; the test's own timeout ends it where it never is."""
    while not true():  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.002)


# -- the host -------------------------------------------------------------------------------------


class Host:
    """A small job; it listens, and lets in whom it admits."""

    def __init__(self, address: tuple[str, int], server: Server, training: Any) -> None:
        self.host, self.port = address
        self.server = server
        self.training = training

    @property
    def where(self) -> Whereabouts:
        """With its pin."""
        return at(self.host, self.port, PIN)

    @property
    def open_address(self) -> Whereabouts:
        """As somebody writes it on a board."""
        return at(self.host, self.port)

    def state(self) -> object:
        """All that nobody may change who is turned away."""
        everyone = self.training.ledger.everyone()
        return (
            [(one.volunteer.id, one.state, one.samples) for one in everyone],
            sorted(self.server._talking),
            self.training.course.phase,
            self.training.parameters.version,
        )

    def members(self) -> list[str]:
        return sorted(self.server._talking)


@contextlib.asynccontextmanager
async def hosting(
    admits: Admits = anyone, *, key: Identity = HOST, always: bool = True, port: int = 0
) -> AsyncIterator[Host]:
    data, blobs = small.manifest(validation=False, test=False)
    job = replace(small.job(of=data), program=content_hash(PROGRAM))
    training = small.training(data=data, the_job=job)
    server = Server(
        training,
        {**blobs, job.program: PROGRAM, job.manifest: b"m"},
        token="the worker's token",
        max_volunteers=20,
        heartbeat_s=2.0,
        silence_s=20.0,
        clock=asyncio.get_running_loop().time,
        admits=admits,
        key=key,
    )
    listener = await secure.listen("127.0.0.1", port, server.serve, key, always=always)
    host = Host(listener.address, server, training)
    try:
        yield host
    finally:
        await listener.close()
        await server.farewell("over")
        await until(lambda: not host.members())


async def join(
    who: Identity, where: Whereabouts, *, dialler: Dialler | None = None, introduction: str = ""
) -> Conversation:
    """Become a member. Raises CrowdgradError."""
    connection = await (dialler or Dialler(key=who, always=True))(where)
    talk = Conversation(connection)
    me = replace(small.volunteer("someone"), id=who.id)
    try:
        await talk.join(me, who, introduction=introduction)
    except CrowdgradError:
        connection.close()
        raise
    return talk


async def leave(host: Host, *talks: Conversation) -> None:
    for talk in talks:
        talk.connection.close()
        await talk.connection.wait_closed()
    await until(lambda: not host.members())


async def still_serves(host: Host) -> None:
    """Whoever comes properly is let in, and goes again."""
    who = guest("whoever comes next")
    talk = await join(who, host.where)
    assert who.id in host.members()
    await leave(host, talk)


# -- in between -----------------------------------------------------------------------------------

Verdict = Literal["pass", "reset", "swallow"]


def only_the_web(first: bytes) -> Verdict:
    return "pass" if first.startswith(b"GET ") else "reset"


class Between:
    """Passes bytes on and keeps a copy; or does not, by how a connection begins."""

    def __init__(self, to: tuple[str, int], judge: Callable[[bytes], Verdict]) -> None:
        self._to, self._judge = to, judge
        self.there = bytearray()
        self.back = bytearray()
        self.verdicts: list[Verdict] = []
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.read(1 << 16)
            verdict = self._judge(first)
            self.verdicts.append(verdict)
            if verdict == "pass":
                await self._pass(first, reader, writer)
            elif verdict == "swallow":
                while await reader.read(1 << 16):
                    pass
            else:
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _pass(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._to)
        try:
            self.there += first
            far_writer.write(first)
            await asyncio.gather(
                self._copy(reader, far_writer, self.there),
                self._copy(far_reader, writer, self.back),
            )
        finally:
            far_writer.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
    ) -> None:
        while data := await reader.read(1 << 16):
            kept += data
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def between(
    to: tuple[str, int], judge: Callable[[bytes], Verdict] = lambda first: "pass"
) -> AsyncIterator[Between]:
    middle = Between(to, judge)
    server = await asyncio.start_server(middle.came, "127.0.0.1", 0)
    middle.port = server.sockets[0].getsockname()[1]
    try:
        yield middle
    finally:
        server.close()
        await middle.close()
        await server.wait_closed()


Alter = Callable[[Message], Message]


class Mallory:
    """Has a certificate of its own, reads all that is said, and passes it on."""

    def __init__(self, to: tuple[str, int], alter: Alter) -> None:
        self._to, self._alter = to, alter
        self.where = ("", 0)
        self.heard: list[Message] = []
        """What the dialler said."""

    async def serve(self, victim: Connection) -> None:
        host = await tcp.connect(*self._to, layer=tls.dialler())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(victim, host, self.heard.append))
                group.create_task(self._pass(host, victim, lambda message: None))
        except* CrowdgradError:
            pass
        finally:
            host.close()
            await host.wait_closed()

    async def _pass(
        self, one: Connection, other: Connection, note: Callable[[Message], object]
    ) -> None:
        try:
            while True:
                message, _ = await one.receive()
                note(message)
                await other.send(self._alter(message))
        finally:
            other.close()


@contextlib.asynccontextmanager
async def mallory(to: Host, alter: Alter = lambda message: message) -> AsyncIterator[Mallory]:
    middle = Mallory((to.host, to.port), alter)
    listener = await secure.listen("127.0.0.1", 0, middle.serve, MALLORY, always=True)
    middle.where = listener.address
    try:
        yield middle
    finally:
        await listener.close()


class Raw:
    """Somebody who says whatever it likes, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, where: tuple[str, int], data: bytes = b"") -> Raw:
        raw = cls(*await asyncio.open_connection(*where))
        raw.writer.write(data)
        return raw

    async def rest(self) -> bytes:
        """What is still said until it ends, closed or reset."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()
