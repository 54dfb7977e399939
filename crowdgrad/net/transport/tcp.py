"""Frames over TCP: listening for connections, and dialling.

uvloop where it is installed, plain asyncio otherwise. What becomes of a connection is in
`net.transport.stream`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import cast

from crowdgrad.errors import ConnectionLost, TurnedAway, Unreachable
from crowdgrad.net.ports import bind
from crowdgrad.net.throttle import Throttle
from crowdgrad.net.transport.base import Connection, OnConnection, lost
from crowdgrad.net.transport.layers import Layer
from crowdgrad.net.transport.stream import TcpConnection

MAX_CONNECTIONS = 4096
OTHER_FILES = 256
"""What a process has open besides connections, at most."""
MOST_AGREEING = 1024
"""Diallers that have not agreed on one yet. Whoever has taken longest makes room for the next."""


class TcpListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        host, port = server.sockets[0].getsockname()[:2]
        self.address: tuple[str, int] = (host, port)

    async def close(self) -> None:
        self._server.close()


def allow_connections(count: int) -> None:
    """Ask the system for as many open files: many shells allow 1,024 unless asked."""
    try:
        import resource
    except ImportError:
        return  # Windows has no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # then there are fewer
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def listen(
    host: str,
    port: int,
    handler: OnConnection,
    *,
    layer: Callable[[str], Layer] | None = None,
    up: Throttle | None = None,
    down: Throttle | None = None,
) -> TcpListener:
    """Call `handler` with every connection; it is closed when the handler returns.

    `layer`: for a connection from that address. `up`, `down`: what all of them may send and read
    together. Raises PortBusy or SettingError.
    """
    allow_connections(MAX_CONNECTIONS + (MOST_AGREEING if layer is not None else 0))
    loop = asyncio.get_running_loop()
    open_connections: set[TcpConnection] = set()
    agreeing = _Agreeing()

    async def limited(connection: Connection) -> None:
        tcp = cast(TcpConnection, connection)
        if len(open_connections) >= MAX_CONNECTIONS:
            tcp.refuse(TurnedAway(f"{MAX_CONNECTIONS} connections are open already."))
            return
        open_connections.add(tcp)
        try:
            await handler(tcp)
        finally:
            open_connections.discard(tcp)

    def dialled() -> TcpConnection:
        connection = TcpConnection(limited, choose=layer, up=up, down=down)
        if layer is not None:
            agreeing.add(connection)
        return connection

    server = await loop.create_server(dialled, sock=bind(host, port))
    return TcpListener(server)


class _Agreeing:
    """Those who have dialled and not agreed on a layer yet, the longest there first."""

    def __init__(self) -> None:
        self._here: dict[TcpConnection, None] = {}

    def add(self, connection: TcpConnection) -> None:
        if len(self._here) >= MOST_AGREEING:
            slowest = next(iter(self._here))
            del self._here[slowest]
            slowest.close(
                lost(slowest.peer, "It made room for others before anything was agreed on")
            )
        self._here[connection] = None
        connection.once_agreed(lambda: self._here.pop(connection, None))


async def connect(
    host: str,
    port: int,
    *,
    layer: Layer | None = None,
    timeout_s: float = 10.0,
    peer: str = "",
    web: ssl.SSLContext | None = None,
    up: Throttle | None = None,
    down: Throttle | None = None,
) -> TcpConnection:
    """Dial, and reach the other side through `layer`. `web`: inside the TLS of the web's
    certificates. `up`, `down`: what may be sent and read, shared with others perhaps. Raises
    Unreachable; PeerError where somebody answers, but not as we do."""
    loop = asyncio.get_running_loop()
    connection: TcpConnection | None = None
    cause: Exception | None = None
    handed_over = False
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                lambda: TcpConnection(layer=layer, peer=peer, up=up, down=down),
                host,
                port,
                ssl=web,
            )
            await connection.agreed()
    except TimeoutError:
        if connection is not None:
            raise ConnectionLost(
                f"Somebody listens at {host}:{port}, but said nothing of use for {timeout_s:g} s.",
                advice="Is it a crowdgrad host? Something in between may not let it through.",
            ) from None
        why = f"no answer within {timeout_s:g} s"
    except (OSError, OverflowError, ValueError) as error:  # a name may be none in many ways
        cause = error
        why = getattr(error, "strerror", None) or str(error)
    else:
        handed_over = True
        return connection
    finally:
        if connection is not None and not handed_over:  # perhaps we were cancelled just then
            connection.close(lost(connection.peer, "We gave up"))
    raise Unreachable(
        f"Nobody answers at {host}:{port} ({why}).",
        advice="Is the host running, and is the address right?",
    ) from cause
