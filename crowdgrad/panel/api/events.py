"""`/api/events`: the one stream. `/api/tasks`: what takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from crowdgrad.errors import MachineError
from crowdgrad.panel.tasks import Task

if TYPE_CHECKING:
    from crowdgrad.panel.app import Panel


def add(app: FastAPI, panel: Panel) -> None:
    @app.get(
        "/api/events",
        summary="Everything that happens, as server-sent events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events(run: str = "") -> StreamingResponse:
        if panel.hub.full:
            raise MachineError("Too many pages listen.", advice="Close some.")
        return StreamingResponse(panel.hub.listen(run[:200]), media_type="text/event-stream")

    @app.get("/api/tasks/{id}", summary="A task as it is now")
    async def task(id: str) -> Task:
        return panel.tasks.find(id)

    @app.delete("/api/tasks/{id}", summary="Stop a task")
    async def stop(id: str) -> Task:
        panel.tasks.find(id)
        return await panel.tasks.stop(id)
