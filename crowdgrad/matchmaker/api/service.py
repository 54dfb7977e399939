"""For whoever runs the service: is it up, can it serve, its figures."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Response

from crowdgrad.matchmaker.api.answers import SAFE, answer
from crowdgrad.matchmaker.metrics import CONTENT_TYPE, Metrics
from crowdgrad.matchmaker.openapi import describe
from crowdgrad.matchmaker.room import Room
from crowdgrad.net import rooms
from crowdgrad.store.base import Store


def routes(room: Room, store: Store, metrics: Metrics, alive: Callable[[], bool]) -> APIRouter:
    """`alive`: whether passes are made."""
    router = APIRouter()

    @router.get("/healthz", **describe("Is the service up?", rooms.Health))
    async def healthz() -> Response:
        return answer(room.health())

    @router.get(
        "/readyz",
        **describe("Can it serve: are promises kept?", rooms.Readiness, also=(503,)),
    )
    async def readyz() -> Response:
        trouble = store.trouble or ("" if alive() else "no passes are made")
        ready = rooms.Readiness(ready=not trouble, reason=trouble or "all is well")
        return answer(ready, 503 if trouble else 200)

    @router.get(
        "/metrics",
        **describe("Figures, as Prometheus reads them.", None, media="text/plain"),
    )
    async def figures() -> Response:
        text = metrics.render(room.figures())
        return Response(text, media_type=CONTENT_TYPE, headers=SAFE)

    return router
