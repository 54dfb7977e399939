"""The volunteer's HTTP API: what the control panel and scripts see and wish of the work.

`GET /status` once, `GET /events` as a stream of the same (server-sent events); `POST /pause`,
`/resume`, `/answer`, `/next`, `/stop`, `PUT /limits`; `/openapi.json`. It listens on this machine
only, answers no page from elsewhere, and a wish needs the token of the announced file
(`crowdgrad/net/local_api.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import Response, StreamingResponse

from crowdgrad import __version__
from crowdgrad.domain.manners import Limits, Profile
from crowdgrad.errors import one_line
from crowdgrad.net import control_file
from crowdgrad.net.http import HttpServer
from crowdgrad.net.local_api import Once, OnlyHere, owner_of
from crowdgrad.net.ports import bind
from crowdgrad.volunteer.remote.desk import Answer, Desk, Reply
from crowdgrad.volunteer.remote.status import WorkStatus, as_json

EVENTS_EVERY_S = 0.25
QUIET_S = 15.0
"""How long a stream may say nothing before it says that it is still there."""
MAX_HTTP_MESSAGE = 64 << 10
MAX_NAMES, MAX_NAME = 3, 40
"""Of a wish that makes no sense, as far as it is repeated."""
DESCRIPTION = """\
What this machine does for others, and what its owner wishes. Only for this machine: requests for
another `Host` or from another `Origin` are refused (403). Wishes need the token of the file named
with `--announce`.
"""
WHERE = "the file named with --announce"
REFUSALS: dict[int | str, dict[str, object]] = {
    401: {"description": "Not the token of this volunteer"},
    403: {"description": "For another host, or from another origin"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseWish:
    seconds: float | None = None
    """How long; null: until resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerWish:
    id: str
    """Of the question."""
    answer: Reply
    """`once`: for this job; `always`: for everything of this host."""


def create_app(desk: Desk, token: str) -> FastAPI:
    """`desk` does what is wished by whoever has `token`."""
    app = FastAPI(
        title="crowdgrad volunteer",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(OnlyHere, who="volunteer")
    _add_reading(app, desk)
    _add_wishes(app, desk, token)
    return app


def _add_reading(app: FastAPI, desk: Desk) -> None:
    in_json = Once(as_json)

    @app.get("/healthz", summary="Is the volunteer alive?")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/status", response_model=WorkStatus, summary="The work as it is now")
    async def status() -> Response:
        return Response(in_json(desk.status()), media_type="application/json")

    @app.get(
        "/events",
        summary="The same as server-sent events whenever it has changed, until it is over",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events() -> StreamingResponse:
        return StreamingResponse(_stream(desk, in_json), media_type="text/event-stream")


def _add_wishes(app: FastAPI, desk: Desk, token: str) -> None:
    async def pause(wish: PauseWish) -> Answer:
        try:
            return desk.pause(wish.seconds)
        except ValueError as error:
            raise HTTPException(422, f"That is no pause: {error}.") from None

    async def answer(wish: AnswerWish) -> Answer:
        return desk.answer(wish.id, wish.answer)

    async def limits(wish: Limits, request: Request) -> Answer:
        if unknown := _unknown(await request.json()):
            raise HTTPException(422, f"No limit is called {', '.join(unknown)}.")
        return desk.limit(wish)

    async def resume() -> Answer:
        return desk.resume()

    async def another() -> Answer:
        return desk.next()

    async def stop() -> Answer:
        return desk.stop()

    wishes: list[tuple[str, str, Callable[..., Awaitable[Answer]], str]] = [
        ("POST", "pause", pause, "Compute nothing, for so long or until resumed"),
        ("POST", "resume", resume, "Work again"),
        ("PUT", "limits", limits, "How hard to work, from now on"),
        ("POST", "answer", answer, "Whether to help the host that asks"),
        ("POST", "next", another, "Leave this job politely and look for another"),
        ("POST", "stop", stop, "Leave the job and end"),
    ]
    owner = owner_of(token, WHERE)
    for method, name, act, sentence in wishes:
        app.add_api_route(
            f"/{name}",
            act,
            methods=[method],
            name=name,
            summary=sentence,
            response_model=Answer,
            dependencies=[Depends(owner)],
            responses=REFUSALS,
        )


def _unknown(wish: Mapping[str, object]) -> list[str]:
    """Names that are not of `Limits`: one misspelt would count as left out."""
    found = sorted(wish.keys() - {field.name for field in fields(Limits)})
    profiles = [wish.get(name) for name in ("in_use", "idle")]
    for profile in profiles:
        if isinstance(profile, Mapping):
            found += sorted(profile.keys() - {field.name for field in fields(Profile)})
    return [one_line(name)[:MAX_NAME] for name in found[:MAX_NAMES]]


async def _stream(desk: Desk, in_json: Callable[[WorkStatus], str]) -> AsyncIterator[str]:
    told, silent_s = "", 0.0
    while True:
        status = desk.status()
        text = in_json(status)
        if text != told:
            told, silent_s = text, 0.0
            yield f"event: status\ndata: {text}\n\n"
        elif silent_s >= QUIET_S:
            silent_s = 0.0
            yield ": still here\n\n"
        if status.state == "over":
            return
        await asyncio.sleep(EVENTS_EVERY_S)
        silent_s += EVENTS_EVERY_S


@contextlib.asynccontextmanager
async def served(desk: Desk, announce: Path | None, port: int) -> AsyncIterator[str]:
    """The API, for as long as the work goes on; its URL. Raises PortBusy, SettingError.

    `announce`: the file that leads to it, gone when it is.
    """
    token = control_file.new_token()
    server = HttpServer(
        create_app(desk, token),
        bind("127.0.0.1", port, "--http-port"),
        max_message_bytes=MAX_HTTP_MESSAGE,
    )
    await server.start()
    url = f"http://{server.address}"
    try:
        if announce is not None:
            control_file.announce(announce, url, token, os.getpid())
        yield url
    finally:
        if announce is not None:
            control_file.withdraw(announce)
        await server.stop()
