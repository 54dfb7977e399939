"""The relay at work: a listening socket, the switchboard, and figures for whoever runs it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from crowdgrad.net.http import SPARE_DESCRIPTORS, HttpServer, take_descriptors
from crowdgrad.net.ports import bind, spell
from crowdgrad.relay.entrance import Entrance
from crowdgrad.relay.metrics import application
from crowdgrad.relay.switchboard import Rules, Switchboard

LOOPBACK = "127.0.0.1"
MAX_HTTP_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    host: str = LOOPBACK
    port: int = 8702
    """0: any free one."""
    metrics_host: str = LOOPBACK
    metrics_port: int | None = None
    """None: no figures."""
    rules: Rules = field(default_factory=Rules)


class Relay:
    """A relay that listens, in the running loop."""

    def __init__(self, listening: socket.socket, rules: Rules) -> None:
        loop = asyncio.get_running_loop()
        most = take_descriptors()
        self.address = spell(listening)
        self.board = Switchboard(
            rules,
            loop=loop,
            random_bytes=secrets.token_bytes,
            most_wires=max(most - SPARE_DESCRIPTORS, most // 2),
        )
        self._entrance = Entrance(listening, self.board.arrive, self._trouble, loop)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def _trouble(self, why: str) -> None:
        self.board.events.refused("out-of-descriptors", f"no connection can be accepted: {why}")

    def close(self) -> None:
        self._entrance.close()
        self.board.close()


@contextlib.asynccontextmanager
async def relay_running(
    rules: Rules | None = None, *, host: str = LOOPBACK, port: int = 0
) -> AsyncIterator[Relay]:
    """A relay in this very process. Raises PortBusy or SettingError."""
    relay = Relay(bind(host, port), rules or Rules())
    try:
        yield relay
    finally:
        relay.close()


async def serve(
    door: Door,
    *,
    stop: asyncio.Event,
    started: Callable[[Relay, str], None] = lambda relay, figures: None,
) -> None:
    """Serve until `stop`. `started` is told, once connections are accepted, the relay and the
    address of its figures, if there are any. Raises PortBusy or SettingError."""
    async with contextlib.AsyncExitStack() as stack:
        relay = await stack.enter_async_context(
            relay_running(door.rules, host=door.host, port=door.port)
        )
        figures = ""
        if door.metrics_port is not None:
            listening = bind(door.metrics_host, door.metrics_port, "--metrics-port")
            server = HttpServer(
                application(relay.board), listening, max_message_bytes=MAX_HTTP_BYTES
            )
            await server.start()
            stack.push_async_callback(server.stop)
            figures = server.address
        started(relay, figures)
        await stop.wait()
