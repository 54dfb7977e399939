"""An HTTP server inside our own event loop: takes a port, handles no signals, stops when told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from fastapi import FastAPI

from crowdgrad.errors import SettingError
from crowdgrad.net.ports import spell

PATIENCE_S = 0.5
"""How long a stopping server waits for connections to close."""


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: whoever runs it decides when it stops."""

    def __init__(self, app: FastAPI, listening: socket.socket, *, max_message_bytes: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                lifespan="on",
                http="h11",
                ws="websockets-sansio",
                ws_max_size=max_message_bytes,
                ws_per_message_deflate=False,
                ws_ping_interval=None,  # our own heartbeats say more
                timeout_keep_alive=5,
                timeout_graceful_shutdown=1,
                server_header=False,
                proxy_headers=False,
            )
        )
        self._listening = listening
        self._task: asyncio.Task[None] | None = None
        self.address = spell(listening)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def start(self) -> None:
        """Return when connections are accepted."""
        self._task = asyncio.create_task(self._run())
        while not self.started:
            if self._task.done():
                self._listening.close()
                self._task.result()
                raise SettingError(f"The server on {self.address} ended as it started.")
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self.should_exit = True
        asyncio.get_running_loop().call_later(PATIENCE_S, self._hurry)
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        try:
            await self.serve(sockets=[self._listening])
        except SystemExit:
            return  # uvicorn's word for an application that did not start; `start` has a better one

    def _hurry(self) -> None:
        self.force_exit = True
