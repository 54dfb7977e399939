"""A link that keeps itself alive: announce by HTTP, stay by WebSocket, come back when lost.

Each (re)connection says everything again: the announcement is made afresh from the caller's state,
so nothing has to be replayed and a server that forgot us learns us anew. Only the first connection
raises; later losses are retried with jittered back-off until the server turns us away for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from crowdgrad.errors import (
    ConnectionLost,
    CrowdgradError,
    MessageError,
    Replaced,
    TargetError,
    TurnedAway,
    Unreachable,
)
from crowdgrad.net import rooms
from crowdgrad.net.retry import delay_s

REQUEST_S = 5.0
MAX_REPLACED, REPLACED_S = 3, 60.0
"""How often within a minute somebody may take our place before we leave it to them. Once may be
ourselves: an earlier try of ours that was long on its way."""
ADVICE = "Is the matchmaker running? Start one with `crowdgrad matchmaker`."

T = TypeVar("T")

_problem = msgspec.json.Decoder(rooms.Problem)


class Socket(Protocol):
    """An open WebSocket. Raises OSError or WebSocketException when it ends."""

    async def send(self, message: str, /) -> None: ...

    async def recv(self) -> str | bytes: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How a matchmaker is reached: the web, or a simulated one."""

    post: Callable[[str, bytes], Awaitable[bytes]]
    """Of a URL and a body: the answer's body. Raises Unreachable, TurnedAway."""
    connect: Callable[[str], Awaitable[Socket]]
    """Raises OSError or WebSocketException."""
    abort: Callable[[Socket], None]
    """End a socket without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(Generic[T]):
    """What a link asks its owner."""

    announcement: Callable[[], rooms.Body]
    """Everything the server has to know, as of now."""
    accepted: Callable[[bytes], None]
    """The server's answer to it."""
    receive: Callable[[T], None]
    lost: Callable[[str], None]
    """The server does not answer; we shall try again."""
    turned_away: Callable[[CrowdgradError], None]
    """… and never will: the link has ended."""


class Link(Generic[T]):
    def __init__(
        self,
        url: str,
        *,
        announce_at: str,
        stay_at: str,
        token: str,
        decoder: msgspec.json.Decoder[T],
        calls: Calls[T],
        random01: Callable[[], float],
        wire: Wire | None = None,
    ) -> None:
        """`wire`: by default the web."""
        self.url = normalise(url)
        self._wire = wire or WEB
        self._announce_at = announce_at
        self._stay_at = stay_at
        self._token = token
        self._decoder = decoder
        self._calls = calls
        self._random01 = random01
        self._outbox: deque[rooms.Said] = deque()
        self._wake = asyncio.Event()
        self._socket: Socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._replaced_at: deque[float] = deque(maxlen=MAX_REPLACED)

    @property
    def connected(self) -> bool:
        return self._socket is not None

    async def open(self) -> None:
        """Raises Unreachable, TurnedAway or MessageError."""
        welcome = await self._connect()
        self._task = asyncio.create_task(self._stay(welcome))

    def say(self, message: rooms.Said) -> None:
        """Send soon. While the server is lost nothing is kept: the announcement says it all."""
        self._outbox.append(message)
        self._wake.set()

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
                why = "the connection was lost"
                try:
                    await self._talk(welcome)
                except Replaced as error:
                    self._bear(error, asyncio.get_running_loop().time())
                    why = error.message
                except (OSError, WebSocketException, ConnectionLost):
                    pass
                self._socket = None
                welcome = await self._return(why)
        except (TurnedAway, Replaced, MessageError) as error:
            socket, self._socket = self._socket, None
            if socket is not None:
                await socket.close()
            self._calls.turned_away(error)

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
            raise _turned_away(message)
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

    async def _return(self, why: str) -> rooms.Welcome:
        attempt = 0
        while True:
            self._calls.lost(why)
            await asyncio.sleep(delay_s(attempt, self._random01()))
            attempt += 1
            try:
                return await self._connect()
            except (Unreachable, ConnectionLost) as error:
                why = error.message

    async def _connect(self) -> rooms.Welcome:
        self._outbox.clear()
        body = rooms.encode(self._calls.announcement())
        self._calls.accepted(await self._wire.post(self.url + self._announce_at, body))
        where = "ws" + self.url.removeprefix("http") + self._stay_at
        try:
            socket = await self._wire.connect(where)
        except (OSError, WebSocketException) as error:
            raise Unreachable(f"No WebSocket at {where}: {error}.", advice=ADVICE) from None
        try:
            return await self._greet(socket)
        except BaseException:
            self._wire.abort(socket)
            raise

    async def _greet(self, socket: Socket) -> rooms.Welcome:
        try:
            await socket.send(rooms.encode(rooms.Hello(token=self._token)).decode())
            raw = await _receive(socket, REQUEST_S)
        except (OSError, WebSocketException) as error:
            raise ConnectionLost(f"{self.url} hung up: {error}.", advice=ADVICE) from None
        welcome = rooms.decode(self._decoder, raw)
        if isinstance(welcome, rooms.Refused):
            raise _turned_away(welcome)
        if not isinstance(welcome, rooms.Welcome):
            raise MessageError(f"{self.url} did not begin with a welcome.")
        self._socket = socket
        return welcome


def _turned_away(refused: rooms.Refused) -> TurnedAway | Replaced:
    kind = Replaced if refused.code == Replaced.code else TurnedAway
    return kind(refused.message, advice=refused.advice)


async def _receive(socket: Socket, within_s: float) -> bytes | str:
    try:
        async with asyncio.timeout(within_s):
            return await socket.recv()
    except TimeoutError:
        raise ConnectionLost(f"The matchmaker was silent for {within_s:.0f} s.") from None


async def _web_socket(where: str) -> ClientConnection:
    return await connect(
        where,
        proxy=None if is_loopback(where) else True,
        open_timeout=REQUEST_S,
        close_timeout=1.0,
        ping_interval=None,  # our own heartbeats notice a dead link on both sides
        max_size=rooms.MAX_REPLY_BYTES,
        compression=None,
    )


def _abort(socket: Socket) -> None:
    assert isinstance(socket, ClientConnection)
    socket.transport.abort()


def normalise(url: str) -> str:
    """`http://host:port`, however it was typed. Raises TargetError."""
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise TargetError(
            f"{url[:100]!r} is not the address of a matchmaker.",
            advice="It looks like http://127.0.0.1:8700.",
        )
    return full.rstrip("/")


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


async def post(url: str, body: bytes, *, within_s: float = REQUEST_S) -> bytes:
    """The answer's body. Raises Unreachable, TurnedAway.

    The request runs on a daemon thread, not on the loop's own pool: a program that ends meanwhile
    must not wait for an address that does not answer.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def settle(result: bytes | CrowdgradError) -> None:
        if answer.done():
            return
        if isinstance(result, bytes):
            answer.set_result(result)
        else:
            answer.set_exception(result)

    def work() -> None:
        try:
            result: bytes | CrowdgradError = _post(url, body, within_s)
        except CrowdgradError as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the loop ended before the answer came
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=work, name="matchmaker request", daemon=True).start()
    return await answer


def _post(url: str, body: bytes, within_s: float) -> bytes:
    proxies = [urllib.request.ProxyHandler({})] if is_loopback(url) else []
    opener = urllib.request.build_opener(*proxies)
    request = urllib.request.Request(  # noqa: S310 (normalise lets only http and https through)
        url, data=body, headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with opener.open(request, timeout=within_s) as response:
            answer: bytes = response.read(rooms.MAX_REPLY_BYTES)
            return answer
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(url, error.code, error.read(rooms.MAX_REQUEST_BYTES)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise Unreachable(f"Nobody answers at {url}: {why}.", advice=ADVICE) from None


def _refusal(url: str, status: int, raw: bytes) -> CrowdgradError:
    try:
        problem = rooms.decode(_problem, raw)
    except MessageError:
        return Unreachable(f"{url} answers with {status}: no matchmaker is there.", advice=ADVICE)
    if status == 429 or status >= 500:
        return Unreachable(problem.message, advice=problem.advice)
    return TurnedAway(problem.message, advice=problem.advice)


WEB = Wire(post=post, connect=_web_socket, abort=_abort)
