"""`/api/events`: the one stream, a WebSocket. `/api/tasks`: what takes long.

A WebSocket, since a browser opens only six plain connections to one server: the seventh page with
a stream of its own would wait for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from fastapi import FastAPI, WebSocket
from starlette.websockets import WebSocketDisconnect

from crowdgrad.panel.auth import PROTOCOL
from crowdgrad.panel.tasks import Task

if TYPE_CHECKING:
    from crowdgrad.panel.app import Panel
    from crowdgrad.panel.hub import Hub

EVENTS = "/api/events"
GOING_AWAY, TRY_AGAIN = 1001, 1013
MOST_LETTERS = 200


def add(app: FastAPI, panel: Panel) -> None:
    @app.websocket(EVENTS)
    async def events(socket: WebSocket, run: str = "") -> None:
        await socket.accept(PROTOCOL)
        if panel.hub.full:
            await socket.close(TRY_AGAIN, "Too many pages listen.")
            return
        telling = asyncio.create_task(_tell(socket, panel.hub, run[:MOST_LETTERS]))
        try:
            while (await socket.receive())["type"] != "websocket.disconnect":
                continue  # pages have nothing to say here
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    @app.get("/api/tasks/{id}", summary="A task as it is now")
    async def task(id: str) -> Task:
        return panel.tasks.find(id)

    @app.delete("/api/tasks/{id}", summary="Stop a task")
    async def stop(id: str) -> Task:
        panel.tasks.find(id)
        return await panel.tasks.stop(id)


async def _tell(socket: WebSocket, hub: Hub, run: str) -> None:
    async with contextlib.aclosing(hub.listen(run)) as messages:
        with contextlib.suppress(WebSocketDisconnect):
            async for message in messages:
                await socket.send_text(message.decode())
            await socket.close(GOING_AWAY)
