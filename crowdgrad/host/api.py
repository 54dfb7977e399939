"""The host's HTTP API: what the terminal, the control panel and scripts look at while a job runs.

`GET /status` once, `GET /events` as a stream of the same (server-sent events), `/openapi.json`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from fastapi import FastAPI
from fastapi.responses import Response, StreamingResponse

from crowdgrad import __version__
from crowdgrad.host.status import Status, as_json

EVENTS_EVERY_S = 0.5


def create_app(take: Callable[[], Status]) -> FastAPI:
    app = FastAPI(
        title="crowdgrad host",
        version=__version__,
        description="What one job is doing. Read-only.",
        docs_url=None,
        redoc_url=None,
    )

    @app.get("/healthz", summary="Is the host alive?")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/status", response_model=Status, summary="The job as it is now")
    async def status() -> Response:
        return Response(as_json(take()), media_type="application/json")

    @app.get(
        "/events",
        summary="The job's status as server-sent events, until it is over",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events() -> StreamingResponse:
        return StreamingResponse(_stream(take), media_type="text/event-stream")

    return app


async def _stream(take: Callable[[], Status]) -> AsyncIterator[str]:
    while True:
        status = take()
        yield f"event: status\ndata: {as_json(status)}\n\n"
        if status.phase == "over":
            return
        await asyncio.sleep(EVENTS_EVERY_S)
