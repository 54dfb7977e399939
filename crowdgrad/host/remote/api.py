"""The host's HTTP API: what the terminal, the control panel and scripts see and wish of a job.

`GET /status` once, `GET /events` as a stream of the same (server-sent events), `GET /swarm` for how
the data spreads, `GET /metrics` for Prometheus; `POST /pause`, `/resume`, `/finish`, `/stop`;
`/openapi.json`. However many listen, each status is put into words once.

It listens on this machine only. That does not keep out a web page in the owner's browser, which can
send requests here too: so every request must be meant for this machine by name (a stranger's name
may be made to point here) and come from no other origin, and a wish needs the token that lies in
the run folder, where no page can read it.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Generic, Literal, TypeVar

from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import ASGIApp, Receive, Scope, Send

from crowdgrad import __version__
from crowdgrad.host.remote.control import Answer, Control
from crowdgrad.host.telling.prometheus import render
from crowdgrad.host.telling.status import Status, as_json
from crowdgrad.host.telling.swarm_status import SwarmStatus, swarm_as_json
from crowdgrad.net.exposition import CONTENT_TYPE

T = TypeVar("T")

EVENTS_EVERY_S = 0.5
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
_HERE = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_BEARER = HTTPBearer(auto_error=False, description="The token of the run's control.json.")
_Given = Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]


def create_app(
    take: Callable[[], Status],
    control: Control,
    token: str,
    *,
    everybody: Callable[[], Awaitable[Status]] | None = None,
    swarm: Callable[[], SwarmStatus | None] = lambda: None,
) -> FastAPI:
    """`control` does what is wished by whoever has `token`.

    `take` gives the same status to all who ask at about the same time; `everybody` gives one that
    names every member, which may take a while (None: `take` does). `swarm`: how the data spreads,
    where members pass it on.
    """
    app = FastAPI(
        title="crowdgrad host",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(OnlyHere)
    _add_reading(app, take, everybody)
    _add_swarm(app, swarm)
    _add_wishes(app, control, token)
    return app


def _add_reading(
    app: FastAPI,
    take: Callable[[], Status],
    everybody: Callable[[], Awaitable[Status]] | None,
) -> None:
    in_json, for_prometheus = _Once(as_json), _Once(render)

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
    in_json = _Once(swarm_as_json)

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


def _add_wishes(app: FastAPI, control: Control, token: str) -> None:
    async def owner(given: _Given) -> None:
        found = given.credentials.encode() if given is not None else b""
        if not token or not hmac.compare_digest(found, token.encode()):
            raise HTTPException(
                401,
                "A wish needs the token of the run's control.json: Authorization: Bearer TOKEN.",
                headers={"WWW-Authenticate": "Bearer"},
            )

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
            responses={
                401: {"description": "Not the token of this run"},
                403: {"description": "For another host, or from another origin"},
            },
        )


def _route(act: Callable[[], Answer]) -> Callable[[], Awaitable[Answer]]:
    async def route() -> Answer:
        return act()

    return route


class OnlyHere:
    """Lets through what was sent to this machine by name, and not by a page from elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = _refusal(scope["headers"]) if scope["type"] == "http" else ""
        if refusal:
            await JSONResponse({"detail": refusal}, status_code=403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _refusal(headers: list[tuple[bytes, bytes]]) -> str:
    """Why a request is not answered; empty if it is."""
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    if len(hosts) != 1 or _HERE.fullmatch(hosts[0]) is None:
        return "This is the API of a host on 127.0.0.1: ask for it by that name."
    if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
        return "Pages from elsewhere are not answered."
    return ""


async def _stream(
    take: Callable[[], Status], in_json: Callable[[Status], str]
) -> AsyncIterator[str]:
    while True:
        status = take()
        yield f"event: status\ndata: {in_json(status)}\n\n"
        if status.phase == "over":
            return
        await asyncio.sleep(EVENTS_EVERY_S)


class _Once(Generic[T]):
    """Puts a status into words, once for all who ask while it is the latest."""

    def __init__(self, encode: Callable[[T], str]) -> None:
        self._encode = encode
        self._of: T | None = None
        self._text = ""

    def __call__(self, status: T) -> str:
        if self._of is not status:
            self._of, self._text = status, self._encode(status)
        return self._text
