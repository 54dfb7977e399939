"""The runs: what became of each, wishes to those that go on, and what their hosts tell."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from fastapi import FastAPI, Request, Response

from crowdgrad.errors import Unreachable
from crowdgrad.host.remote.control import HOLDS
from crowdgrad.host.remote.runs import Seen, look
from crowdgrad.panel.api.jobs import Started, common

if TYPE_CHECKING:
    from crowdgrad.panel.app import Panel

Wish = Literal["pause", "resume", "finish", "stop"]
Told = Literal["status", "history", "samples", "swarm", "log", "job", "qr.svg"]
PATHS: dict[Told, str] = {"job": "/job.json"}
"""Where a host has it, if not under the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wished:
    """What became of a wish."""

    state: str
    changed: bool
    holds: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartWish:
    epochs: int | None = None
    """Until so many are done; None: as it was."""


def add(app: FastAPI, panel: Panel) -> None:
    _add_wishes(app, panel)

    @app.get("/api/runs", summary="All runs, the newest first")
    async def runs() -> list[dict[str, Any]]:
        return [_as_json(panel, seen) for seen in await panel.runs.every()]

    @app.put("/api/runs/{id}/rate", summary="Change the learning rate")
    async def rate(id: str, request: Request) -> Response:
        return await _pass(panel, id, "POST", "/rate", await request.body(), owner=True)

    @app.post("/api/runs/{id}/predict", summary="Ask the model as it is now")
    async def predict(id: str, request: Request) -> Response:
        return await _pass(panel, id, "POST", "/predict", await request.body(), owner=True)

    @app.get("/api/runs/{id}/{what}", summary="What its host tells")
    async def told(id: str, what: Told, request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        return await _pass(panel, id, "GET", f"{PATHS.get(what, f'/{what}')}{query}", owner=True)


def _add_wishes(app: FastAPI, panel: Panel) -> None:
    @app.post("/api/runs/{id}/restart", summary="Go on with a run whose host has ended")
    async def restart(id: str, wish: RestartWish | None = None) -> Started:
        folder = panel.runs.folder_of(_run_of(panel, id))
        more = wish.epochs if wish is not None else None
        arguments = ["host", "--resume", str(folder), *common(panel)]
        if more is not None:
            arguments += ["--epochs", str(more)]
        return Started(run=panel.children.start("host", arguments).id)

    @app.post("/api/runs/{id}/{wish}", summary="Pause, resume, finish or stop a run")
    async def wished(id: str, wish: Wish) -> Response:
        child = panel.children.find(id)
        if child is not None and child.state().run is None:
            return _answer(_starting(panel, id, wish))
        run = _run_of(panel, id)
        try:
            return await _pass(panel, run, "POST", f"/{wish}", owner=True)
        except Unreachable:
            return _answer(_nobody_there(look(panel.runs.folder_of(run)), wish))


def _starting(panel: Panel, id: str, wish: Wish) -> Wished:
    """A host that has no run yet can only be stopped. Raises Unreachable."""
    child = panel.children.find(id)
    assert child is not None
    if wish != "stop":
        raise Unreachable(f"It cannot {wish}: it has not begun.", advice="Wait a moment.")
    if not child.alive:
        return Wished(state="stopped", changed=False, holds=True, reason="it is over already")
    panel.children.stop(child)
    return Wished(state="stopped", changed=True, holds=True, reason="it ends before it has begun")


def _nobody_there(seen: Seen, wish: Wish) -> Wished:
    """It may be as wished all the same. Raises Unreachable."""
    ending = seen.state == "ending" and wish in ("stop", "finish")
    if ending or (seen.state in HOLDS[wish] and not seen.alive):
        return Wished(state=seen.state, changed=False, holds=True, reason=seen.reason)
    if seen.alive:
        raise Unreachable(f"It cannot {wish}: {seen.reason}.", advice="Try again.")
    raise Unreachable(f"It is not running: {seen.reason}.", advice="Resume it to let it go on.")


def _run_of(panel: Panel, id: str) -> str:
    child = panel.children.find(id)
    return (child.state().run if child is not None else None) or id


async def _pass(
    panel: Panel, id: str, method: str, path: str, body: bytes | None = None, *, owner: bool
) -> Response:
    run = _run_of(panel, id)
    reply = await panel.runs.ask(run, method, path, body=body, owner=owner)
    return Response(reply.body, status_code=reply.code, media_type=reply.kind)


def _answer(wished: Wished) -> Response:
    return Response(msgspec.json.encode(wished), media_type="application/json")


def _as_json(panel: Panel, seen: Seen) -> dict[str, Any]:
    child = panel.children.of_run(seen.id)
    return {**asdict(seen), "folder": str(seen.folder), "child": child.id if child else None}
