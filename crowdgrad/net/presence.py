"""A link that keeps itself alive: come by WebSocket, say who we are, come back when lost.

Each (re)connection says everything again: the announcement is made afresh from the caller's state
and signed, so nothing has to be replayed and a server that forgot us learns us anew. Only the first
connection raises; later losses are retried with jittered back-off, and never before the server
wants to see us again, until it turns us away for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import WebSocketException

from crowdgrad.errors import (
    ConnectionLost,
    CrowdgradError,
    MessageError,
    Replaced,
    TurnedAway,
    Unreachable,
)
from crowdgrad.net import bodies, rooms, signing, web
from crowdgrad.net.identity import Identity
from crowdgrad.net.retry import delay_s

MAX_REPLACED, REPLACED_S = 3, 60.0
"""How often within a minute somebody may take our place before we leave it to them. Once may be
ourselves: an earlier try of ours that was long on its way."""
POLITE_TRIES, POLITE_S = 3, 30.0
"""How often, and how long, a first connection waits for a busy matchmaker."""
HELLO_BYTES = 512
"""More than a Hello takes besides what it announces."""

T = TypeVar("T")


class Socket(Protocol):
    """An open WebSocket. Raises OSError or WebSocketException when it ends."""

    async def send(self, message: str, /) -> None: ...

    async def recv(self) -> str | bytes: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How a matchmaker is reached, and by which clock: the web, or a simulated one."""

    connect: Callable[[str], Awaitable[Socket]]
    """Raises OSError or WebSocketException."""
    abort: Callable[[Socket], None]
    """End a socket without a word."""
    wall: Callable[[], float] = time.time
    random_bytes: Callable[[int], bytes] = secrets.token_bytes


def _abort(socket: Socket) -> None:
    assert isinstance(socket, ClientConnection)
    socket.transport.abort()


WEB = Wire(connect=web.open_socket, abort=_abort)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(Generic[T]):
    """What a link asks its owner."""

    announcement: Callable[[], bodies.Body]
    """Everything the server has to know, as of now."""
    accepted: Callable[[rooms.Welcome], None]
    """The server's answer to it. Raises MessageError."""
    receive: Callable[[T], None]
    lost: Callable[[str], None]
    """The server does not answer; we shall try again."""
    busy: Callable[[str, float], None]
    """It does not want us yet, for this reason; we shall try again in so many seconds."""
    turned_away: Callable[[CrowdgradError], None]
    """… and never will: the link has ended."""


class Link(Generic[T]):
    def __init__(
        self,
        url: str,
        *,
        path: str,
        key: Identity,
        decoder: msgspec.json.Decoder[T],
        calls: Calls[T],
        random01: Callable[[], float],
        wire: Wire | None = None,
    ) -> None:
        """`wire`: by default the web. Raises TargetError."""
        self.url = web.normalise(url)
        self._where = "ws" + self.url.removeprefix("http") + path
        self._wire = wire or WEB
        self._key = key
        self._decoder = decoder
        self._calls = calls
        self._random01 = random01
        self._clock = web.TheirClock(self._wire.wall)
        self._outbox: deque[rooms.Said] = deque()
        self._wake = asyncio.Event()
        self._socket: Socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._replaced_at: deque[float] = deque(maxlen=MAX_REPLACED)

    @property
    def connected(self) -> bool:
        return self._socket is not None

    async def open(self) -> None:
        """Raises Unreachable, ConnectionLost, TurnedAway, Replaced or MessageError."""
        welcome = await self._first()
        self._task = asyncio.create_task(self._stay(welcome))

    def say(self, message: rooms.Said) -> None:
        """Send soon. While the server is lost nothing is kept: the announcement says it all."""
        self._outbox.append(message)
        self._wake.set()

    def come_anew(self) -> None:
        """Leave this connection and open another, at once: from where we were nobody hears us."""
        if self._socket is not None:
            self._wire.abort(self._socket)

    async def close(self) -> None:
        """Send what is left, say good-bye; takes a second at most."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        socket, self._socket = self._socket, None
        if socket is not None:
            with contextlib.suppress(OSError, WebSocketException, TimeoutError):
                async with asyncio.timeout(1.0):
                    while self._outbox:
                        await socket.send(rooms.encode(self._outbox.popleft()).decode())
                    await socket.close()

    async def _stay(self, welcome: rooms.Welcome) -> None:
        try:
            while True:
                why, after_s = "the connection was lost", 0.0
                try:
                    await self._talk(welcome)
                except Replaced as error:
                    self._bear(error, asyncio.get_running_loop().time())
                    why = error.message
                except web.Again as again:
                    why, after_s = again.error.message, again.after_s
                except (OSError, WebSocketException, ConnectionLost):
                    pass
                self._drop()
                welcome = await self._return(why, after_s)
        except (TurnedAway, Replaced, MessageError) as error:
            self._drop()
            self._calls.turned_away(error)

    def _drop(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            self._wire.abort(socket)

    def _bear(self, replaced: Replaced, now: float) -> None:
        """Raises it where that happens too often."""
        often = len(self._replaced_at) == MAX_REPLACED
        if often and now - self._replaced_at[0] < REPLACED_S:
            raise replaced
        self._replaced_at.append(now)

    async def _talk(self, welcome: rooms.Welcome) -> None:
        """Listen until the connection ends. Raises what ended it."""
        socket = self._socket
        assert socket is not None
        writer = asyncio.create_task(self._write(socket, welcome.heartbeat_s))
        try:
            while True:
                self._hear(await _receive(socket, welcome.gone_after_s))
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _hear(self, raw: bytes | str) -> None:
        message = rooms.decode(self._decoder, raw)
        if isinstance(message, rooms.Refused):
            raise web.refused(message)
        if not isinstance(message, rooms.StillHere):
            self._calls.receive(message)

    async def _write(self, socket: Socket, heartbeat_s: float) -> None:
        while True:
            while self._outbox:
                await socket.send(rooms.encode(self._outbox[0]).decode())
                self._outbox.popleft()
            self._wake.clear()
            try:
                async with asyncio.timeout(heartbeat_s):
                    await self._wake.wait()
            except TimeoutError:
                self._outbox.append(rooms.StillHere())

    # -- coming, and coming back --------------------------------------------------------------

    async def _first(self) -> rooms.Welcome:
        waited_s = 0.0
        for attempt in itertools.count():
            try:
                return await self._connect()
            except web.Again as again:
                wait_s = self._wait_s(attempt, again.after_s)
                waited_s += wait_s
                if attempt == POLITE_TRIES or waited_s > POLITE_S:
                    raise again.error from None
                self._calls.busy(again.error.message, wait_s)
                await asyncio.sleep(wait_s)
        raise AssertionError("numbers do not end")

    async def _return(self, why: str, after_s: float) -> rooms.Welcome:
        for attempt in itertools.count():
            wait_s = self._wait_s(attempt, after_s)
            if after_s:
                self._calls.busy(why, wait_s)
            else:
                self._calls.lost(why)
            await asyncio.sleep(wait_s)
            try:
                return await self._connect()
            except web.Again as again:
                why, after_s = again.error.message, again.after_s
            except Replaced as error:  # as soon as it had said hello
                self._bear(error, asyncio.get_running_loop().time())
                why, after_s = error.message, 0.0
            except (Unreachable, ConnectionLost) as error:
                why, after_s = error.message, 0.0
        raise AssertionError("numbers do not end")

    def _wait_s(self, attempt: int, after_s: float) -> float:
        """Those whom a busy server sends away at once must not come again at once."""
        if not after_s:
            return delay_s(attempt, self._random01())
        return after_s + delay_s(attempt, self._random01(), base_s=after_s)

    async def _connect(self) -> rooms.Welcome:
        """Raises Again where we are to come later; else as `open`."""
        try:
            return await self._attempt()
        except web.Again as again:
            if not again.now_ms:
                raise
            self._clock.set(again.now_ms)
        try:
            return await self._attempt()
        except web.Again as again:
            if not again.now_ms:
                raise
            raise Unreachable(again.error.message, advice=again.error.advice) from None

    async def _attempt(self) -> rooms.Welcome:
        try:
            socket = await self._wire.connect(self._where)
        except (OSError, WebSocketException) as error:
            raise web.failure(self.url, error) from None
        try:
            return await self._greet(socket)
        except BaseException:
            self._wire.abort(socket)
            raise

    async def _greet(self, socket: Socket) -> rooms.Welcome:
        try:
            await socket.send(self._hello())
            raw = await _receive(socket, web.REQUEST_S)
        except (OSError, WebSocketException) as error:
            raise ConnectionLost(f"{self.url} hung up: {error}.", advice=web.ADVICE) from None
        welcome = rooms.decode(self._decoder, raw)
        if isinstance(welcome, rooms.Refused):
            raise web.refused(welcome)
        if not isinstance(welcome, rooms.Welcome):
            raise MessageError(f"{self.url} did not begin with a welcome.")
        self._calls.accepted(welcome)
        self._socket = socket
        return welcome

    def _hello(self) -> str:
        self._outbox.clear()
        body = rooms.encode(self._calls.announcement())
        proof = signing.sign(
            self._key,
            method=signing.SOCKET,
            authority=web.authority(self._where),
            path=web.path_of(self._where),
            body=body,
            time_ms=self._clock.now_ms(),
            random_bytes=self._wire.random_bytes,
        )
        hello = rooms.encode(rooms.Hello(**msgspec.structs.asdict(proof), body=body.decode()))
        if len(hello) > rooms.MAX_REQUEST_BYTES:
            raise MessageError(
                f"What we have to say takes {len(hello)} bytes; a matchmaker reads at most "
                f"{rooms.MAX_REQUEST_BYTES}.",
                advice="Shorten the job's description and its hyperparameters.",
            )
        return hello.decode()


async def _receive(socket: Socket, within_s: float) -> bytes | str:
    try:
        async with asyncio.timeout(within_s):
            return await socket.recv()
    except TimeoutError:
        raise ConnectionLost(f"The matchmaker was silent for {within_s:.0f} s.") from None
