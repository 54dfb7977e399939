"""The matchmaker as a process: it takes a port, says where it listens, and ends within a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crowdgrad.matchmaker.app import create_app
from crowdgrad.matchmaker.desk import Rules
from crowdgrad.net import rooms
from crowdgrad.net.http import HttpServer
from crowdgrad.net.ports import bind
from crowdgrad.process import stop_requests
from crowdgrad.store.base import Store
from crowdgrad.store.memory import MemoryStore

FAREWELL_S = 0.2
"""What the sockets are given to say good-bye before the server stops."""


async def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8700,
    store: Store | None = None,
    rules: Rules | None = None,
    started: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until SIGINT or SIGTERM. Port 0: any free one.

    `started` is told the address once connections are accepted. Raises PortBusy or SettingError
    when the address cannot be had.
    """
    app = create_app(store or MemoryStore(), rules=rules)
    server = HttpServer(app, bind(host, port), max_message_bytes=rooms.MAX_REQUEST_BYTES)
    with stop_requests() as stop:
        await server.start()
        started(server.address)
        await stop.wait()
        app.state.room.close()
        await asyncio.sleep(FAREWELL_S)
        await server.stop()
