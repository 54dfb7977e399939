"""The host's HTTP API: what the terminal, the control panel and scripts see and wish of a job.

`GET /status` once, `GET /events` as a stream of the same (server-sent events), `GET /swarm` for how
the data spreads, `GET /metrics` for Prometheus, `/history` for curves, `/log`, `/samples` for what
the model makes of test records; `POST /pause`, `/resume`, `/rate`, `/finish`, `/stop`, and
`/predict` to ask the model; `/openapi.json`; the public page (`page.py`). However many listen,
each status is put into words once.

It listens on this machine only. That does not keep out a web page in the owner's browser, which can
send requests here too: so every request must be meant for this machine by name (a stranger's name
may be made to point here) and come from no other origin, and a wish needs the token that lies in
the run folder, where no page can read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.requests import Request

from crowdgrad import __version__
from crowdgrad.errors import CrowdgradError, DataMalformed
from crowdgrad.host.asking import MOST_NUMBERS, MOST_SAMPLES, Asking, Prediction, Samples
from crowdgrad.host.remote.control import Answer, Control
from crowdgrad.host.remote.page import add_page
from crowdgrad.host.telling.history import Curves, curves_as_json
from crowdgrad.host.telling.job_page import JobPage
from crowdgrad.host.telling.prometheus import render
from crowdgrad.host.telling.recent import LogPart, Recent
from crowdgrad.host.telling.status import Status, as_json
from crowdgrad.host.telling.swarm_status import SwarmStatus, swarm_as_json
from crowdgrad.net.exposition import CONTENT_TYPE
from crowdgrad.net.local_api import Once, OnlyHere, Owner, owner_of

EVENTS_EVERY_S = 0.5
MOST_POINTS = 5000
MOST_RATE = 1000.0
DESCRIPTION = """\
What one job is doing, and what its owner wishes. Only for this machine: requests for another `Host`
or from another `Origin` are refused (403). Wishes need the token of the run's `control.json`.
"""
SENTENCES = {
    "pause": "No further units; what is under way is still taken",
    "resume": "Give units again",
    "finish": "Train no further: validate, test the best, write the results",
    "stop": "End now; the best parameters so far are kept",
}
_REFUSED: dict[int | str, dict[str, object]] = {
    401: {"description": "Not the token of this run"},
    403: {"description": "For another host, or from another origin"},
}


class RateWish(BaseModel):
    """The learning rate from now on."""

    learning_rate: float = Field(gt=0, le=MOST_RATE, allow_inf_nan=False)


class Question(BaseModel):
    """One record to ask the model about: a picture's brightness 0 to 1, or numbers as stored."""

    input: list[float] = Field(min_length=1, max_length=MOST_NUMBERS)


def create_app(
    take: Callable[[], Status],
    control: Control,
    token: str,
    *,
    everybody: Callable[[], Awaitable[Status]] | None = None,
    swarm: Callable[[], SwarmStatus | None] = lambda: None,
    history: Callable[[int], Curves] | None = None,
    log: Recent | None = None,
    asking: Asking | None = None,
    page: Callable[[], JobPage | None] = lambda: None,
) -> FastAPI:
    """`control` does what is wished by whoever has `token`.

    `take` gives the same status to all who ask at about the same time; `everybody` gives one that
    names every member, which may take a while (None: `take` does). `swarm`: how the data spreads,
    where members pass it on. `history(points)`: its curves. `asking`: the model as it is now.
    `page`: the job as anybody may see it.
    """
    app = FastAPI(
        title="crowdgrad host",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(OnlyHere)
    app.add_exception_handler(RequestValidationError, _makes_no_sense)
    _add_reading(app, take, everybody)
    _add_swarm(app, swarm)
    owner = owner_of(token, "the run's control.json")
    _add_story(
        app, history or (lambda points: Curves(evaluations=[], training=[])), log or Recent()
    )
    _add_wishes(app, control, owner)
    if asking is not None:
        _add_asking(app, asking, owner)
    add_page(app, page)
    return app


def _add_reading(
    app: FastAPI,
    take: Callable[[], Status],
    everybody: Callable[[], Awaitable[Status]] | None,
) -> None:
    in_json, for_prometheus = Once(as_json), Once(render)

    @app.get("/healthz", summary="Is the host alive?")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/status", response_model=Status, summary="The job as it is now")
    async def status(members: Literal["shown", "all"] = "shown") -> Response:
        if members == "all" and everybody is not None:
            text = await asyncio.to_thread(as_json, await everybody())
        else:
            text = in_json(take())
        return Response(text, media_type="application/json")

    @app.get(
        "/events",
        summary="The job's status as server-sent events, until it is over",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events() -> StreamingResponse:
        return StreamingResponse(_stream(take, in_json), media_type="text/event-stream")

    @app.get(
        "/metrics",
        summary="The job's numbers for Prometheus",
        response_class=Response,
        responses={200: {"content": {CONTENT_TYPE: {}}}},
    )
    async def metrics() -> Response:
        return Response(for_prometheus(take()), media_type=CONTENT_TYPE)


def _add_swarm(app: FastAPI, take: Callable[[], SwarmStatus | None]) -> None:
    in_json = Once(swarm_as_json)

    @app.get(
        "/swarm",
        response_model=SwarmStatus,
        summary="Who holds what of the data, and who sends it to whom",
        responses={404: {"description": "The host alone sends the data"}},
    )
    async def swarm() -> Response:
        found = take()
        if found is None:
            raise HTTPException(404, "Members do not pass data on here: the host alone sends it.")
        return Response(in_json(found), media_type="application/json")


def _add_story(app: FastAPI, history: Callable[[int], Curves], log: Recent) -> None:
    @app.get("/history", response_model=Curves, summary="The job's curves so far")
    async def curves(points: Annotated[int, Query(ge=2, le=MOST_POINTS)] = 1000) -> Response:
        return Response(curves_as_json(history(points)), media_type="application/json")

    @app.get("/log", summary="What the host's log said last")
    async def lines(after: Annotated[int, Query(ge=0)] = 0) -> LogPart:
        return log.after(after)


def _add_asking(app: FastAPI, asking: Asking, owner: Owner) -> None:
    cannot: dict[int | str, dict[str, object]] = {
        503: {"description": "The model cannot be asked now"}
    }

    @app.get(
        "/samples",
        response_model=Samples,
        summary="Some test records, and what the model makes of them now",
        dependencies=[Depends(owner)],
        responses={**_REFUSED, **cannot},
    )
    async def samples(count: Annotated[int, Query(ge=1, le=MOST_SAMPLES)] = 24) -> Response:
        try:
            told = await asking.samples_as_json(count)
            return Response(told, media_type="application/json")
        except CrowdgradError as error:
            raise HTTPException(503, _told(error)) from None

    @app.post(
        "/predict",
        summary="What the model makes of this record now",
        dependencies=[Depends(owner)],
        responses={**_REFUSED, **cannot, 422: {"description": "No input of this model"}},
    )
    async def predict(question: Question) -> Prediction:
        try:
            return await asking.predict(question.input)
        except DataMalformed as error:
            raise HTTPException(422, _told(error)) from None
        except CrowdgradError as error:
            raise HTTPException(503, _told(error)) from None


async def _makes_no_sense(request: Request, error: Exception) -> Response:
    """What is wrong with a request, without repeating it: it may be long, or no JSON at all."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:3])
    return JSONResponse({"detail": f"{where}: {first['msg']}."[:300]}, status_code=422)


def _told(error: CrowdgradError) -> str:
    return f"{error.message} {error.advice}".strip()


def _add_wishes(app: FastAPI, control: Control, owner: Owner) -> None:
    wishes = {
        "pause": control.pause,
        "resume": control.resume,
        "finish": control.finish,
        "stop": control.stop,
    }
    for name, act in wishes.items():
        app.add_api_route(
            f"/{name}",
            _route(act),
            methods=["POST"],
            name=name,
            summary=SENTENCES[name],
            response_model=Answer,
            dependencies=[Depends(owner)],
            responses=_REFUSED,
        )

    @app.post(
        "/rate",
        summary="Another learning rate from the next unit on",
        dependencies=[Depends(owner)],
        responses={**_REFUSED, 422: {"description": "No learning rate for this recipe"}},
    )
    async def rate(wish: RateWish) -> Answer:
        try:
            return control.rate(wish.learning_rate)
        except ValueError as error:
            raise HTTPException(422, f"{error}.") from None


def _route(act: Callable[[], Answer]) -> Callable[[], Awaitable[Answer]]:
    async def route() -> Answer:
        return act()

    return route


async def _stream(
    take: Callable[[], Status], in_json: Callable[[Status], str]
) -> AsyncIterator[str]:
    while True:
        status = take()
        yield f"event: status\ndata: {in_json(status)}\n\n"
        if status.phase == "over":
            return
        await asyncio.sleep(EVENTS_EVERY_S)
