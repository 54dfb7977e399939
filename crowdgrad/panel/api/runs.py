"""The runs: what became of each, wishes to those that go on, and what their hosts tell."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, Query, Request, Response

from crowdgrad.errors import RunBusy, Unreachable
from crowdgrad.host.asking import MOST_SAMPLES, Prediction, Samples
from crowdgrad.host.remote.api import MOST_POINTS, Question, RateWish
from crowdgrad.host.remote.control import HOLDS
from crowdgrad.host.remote.runs import Seen, SeenState, look
from crowdgrad.host.telling import afterwards
from crowdgrad.host.telling.history import Curves
from crowdgrad.panel.api.jobs import Started, common
from crowdgrad.panel.children import RESUME
from crowdgrad.panel.runs import is_left, left_of

if TYPE_CHECKING:
    from crowdgrad.panel.app import Panel

Wish = Literal["pause", "resume", "finish", "stop"]
Told = Literal["status", "swarm", "log", "job", "qr.svg"]
PATHS: dict[Told, str] = {"job": "/job.json"}
"""Where a host has it, if not under the same name."""
AFTERWARDS: dict[Told, Callable[[Path], object]] = {
    "status": afterwards.status,
    "swarm": afterwards.swarm,
    "log": afterwards.log,
}
"""What a run's folder tells when its host has ended."""
KINDS = ("application/json", "image/svg+xml")
"""What is passed on: nothing that a browser would take for a page or a script of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wished:
    """What became of a wish."""

    state: SeenState
    changed: bool
    holds: bool
    """Whether it is now as wished."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartWish:
    epochs: int | None = None
    """Until so many are done; None: as it was."""


def add(app: FastAPI, panel: Panel) -> None:
    @app.get("/api/runs", summary="All runs, the newest first")
    async def runs() -> list[Seen]:
        return await panel.runs.every()

    @app.put("/api/runs/{id}/rate", response_model=Wished, summary="Change the learning rate")
    async def rate(id: str, wish: RateWish) -> Response:
        return await _pass(panel, id, "POST", "/rate", wish.model_dump_json().encode())

    @app.get(
        "/api/runs/{id}/history",
        response_model=Curves,
        summary="Its curves, also when its host has ended",
    )
    async def history(
        id: str, points: Annotated[int, Query(ge=2, le=MOST_POINTS)] = 1000
    ) -> Response:
        try:
            return await _pass(panel, id, "GET", f"/history?points={points}")
        except Unreachable:
            curves = functools.partial(afterwards.curves, points=points)
            return _answer(await left_of(_folder(panel, id), curves))

    _add_asking(app, panel)

    @app.get("/api/runs/{id}/{what}", summary="What its host tells, or told last")
    async def told(id: str, what: Told, request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        try:
            return await _pass(panel, id, "GET", f"{PATHS.get(what, f'/{what}')}{query}")
        except Unreachable:
            if what not in AFTERWARDS:
                raise
            found = await left_of(_folder(panel, id), AFTERWARDS[what])
            if found is None and what != "swarm":  # nobody need have passed data on
                raise
            return _answer(found)

    _add_wishes(app, panel)  # last: their path fits others, too


def _add_asking(app: FastAPI, panel: Panel) -> None:
    async def ask(id: str, question: dict[str, Any], error: Unreachable) -> Response:
        """In a process of its own, where no host has the run: beside one that is slow it would read
        the job anew with each checkpoint, and answer with other parameters. Else raises `error`."""
        folder = _folder(panel, id)
        if panel.children.begins_again(folder) or not await is_left(folder):
            raise error
        return _answer(await panel.askers.ask(folder, question))

    @app.get(
        "/api/runs/{id}/samples",
        response_model=Samples,
        summary="What the model makes of some test records",
    )
    async def samples(
        id: str, count: Annotated[int, Query(ge=1, le=MOST_SAMPLES)] = 24
    ) -> Response:
        try:
            return await _pass(panel, id, "GET", f"/samples?count={count}")
        except Unreachable as error:
            return await ask(id, {"count": count}, error)

    @app.post(
        "/api/runs/{id}/predict", response_model=Prediction, summary="Ask the model as it is now"
    )
    async def predict(id: str, question: Question) -> Response:
        try:
            body = question.model_dump_json().encode()
            return await _pass(panel, id, "POST", "/predict", body)
        except Unreachable as error:
            return await ask(id, {"input": question.input}, error)


def _add_wishes(app: FastAPI, panel: Panel) -> None:
    @app.post("/api/runs/{id}/restart", summary="Go on with a run whose host has ended")
    async def restart(id: str, wish: RestartWish | None = None) -> Started:
        folder = _folder(panel, id)
        if panel.children.begins_again(folder):
            raise RunBusy("This run is about to go on already.", advice="Wait a moment.")
        more = wish.epochs if wish is not None else None
        arguments = ["host", RESUME, str(folder), *common(panel)]
        if more is not None:
            arguments += ["--epochs", str(more)]
        return Started(run=panel.children.start("host", arguments).id)

    @app.post(
        "/api/runs/{id}/{wish}",
        response_model=Wished,
        summary="Pause, resume, finish or stop a run",
    )
    async def wished(id: str, wish: Wish) -> Response:
        child = panel.children.find(id)
        if child is not None and child.state().run is None:
            return _answer(_starting(panel, id, wish))
        run = _run_of(panel, id)
        try:
            return await _pass(panel, run, "POST", f"/{wish}")
        except Unreachable:
            seen = await asyncio.to_thread(look, panel.runs.folder_of(run))
            return _answer(_hanging(panel, run, seen, wish) or _nobody_there(seen, wish))


def _hanging(panel: Panel, run: str, seen: Seen, wish: Wish) -> Wished | None:
    """A host of ours that does not answer can still be stopped: in the end by force."""
    child = panel.children.of_run(run)
    if wish != "stop" or child is None or not child.alive or seen.state == "ending":
        return None
    panel.children.stop(child)
    return Wished(state="ending", changed=True, holds=True, reason="it does not answer: it ends")


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
    raise Unreachable(f"It is not running: {seen.reason}.", advice="Let it go on.")


def _run_of(panel: Panel, id: str) -> str:
    child = panel.children.find(id)
    return (child.state().run if child is not None else None) or id


def _folder(panel: Panel, id: str) -> Path:
    """Raises DataMissing."""
    return panel.runs.folder_of(_run_of(panel, id))


async def _pass(
    panel: Panel, id: str, method: str, path: str, body: bytes | None = None
) -> Response:
    """What its host answers. Raises DataMissing, Unreachable."""
    reply = await panel.runs.ask(_run_of(panel, id), method, path, body=body)
    if reply.kind.partition(";")[0] not in KINDS:
        raise Unreachable(f"Who answers for {id} is no host of ours.", advice="Let the run go on.")
    return Response(reply.body, status_code=reply.code, media_type=reply.kind)


def _answer(found: object) -> Response:
    told = found if isinstance(found, bytes) else msgspec.json.encode(found)
    return Response(told, media_type="application/json")
