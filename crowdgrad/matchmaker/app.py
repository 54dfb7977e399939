"""The matchmaker's routes: what can be asked, and by whom.

    GET  /healthz                        is it up?
    GET  /v1/jobs                        all published jobs
    GET  /v1/jobs/{job_or_code}          one of them
    POST /v1/jobs                        a host publishes (again)
    WS   /v1/jobs/{job_id}/presence      … and stays
    POST /v1/volunteers                  a volunteer registers (again)
    WS   /v1/volunteers/{id}/presence    … and waits, works, waits

Every refusal is `{code, message, advice}`; `/openapi.json` describes it all.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response, WebSocket
from starlette.exceptions import HTTPException

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import MessageError, TargetError, TurnedAway
from crowdgrad.matchmaker import openapi
from crowdgrad.matchmaker.connection import SocketConnection, visit
from crowdgrad.matchmaker.desk import Desk, Rules
from crowdgrad.matchmaker.loop import Room, keep
from crowdgrad.matchmaker.openapi import describe
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.net import rooms
from crowdgrad.store.base import Store

MAX_LISTED = 500

T = TypeVar("T")

_publish = msgspec.json.Decoder(rooms.Publish)
_register = msgspec.json.Decoder(rooms.Register)


def create_app(
    store: Store,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    rules: Rules | None = None,
) -> FastAPI:
    """`clock` measures silence, `wall` dates what is remembered."""
    rules = rules or Rules()
    desk = Desk(store, wall=wall, random_bytes=random_bytes, rules=rules)
    room = Room(store, desk, clock=clock, rules=rules)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        keeper = asyncio.create_task(keep(room))
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    app = FastAPI(
        title="crowdgrad matchmaker",
        version="1",
        description=(__doc__ or "") + openapi.SOCKET_TEXT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.room = room
    app.include_router(_http(room, desk, store))
    app.include_router(_presence(room, rules))
    _explain_errors(app)
    openapi.install(app)
    return app


def _http(room: Room, desk: Desk, store: Store) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz", **describe("Is the service up?", rooms.Health))
    async def healthz() -> Response:
        return _json(room.health())

    @router.get("/v1/jobs", **describe("All published jobs, the oldest first.", rooms.JobList))
    async def list_jobs() -> Response:
        records = store.jobs()
        jobs = tuple(room.summary(record) for record in records[:MAX_LISTED])
        return _json(rooms.JobList(jobs=jobs, total=len(records)))

    @router.get(
        "/v1/jobs/{job_or_code}",
        **describe("One job, by its id or its code.", rooms.JobSummary, refuses=(404,)),
    )
    async def show_job(job_or_code: str) -> Response:
        return _json(room.summary(desk.find_job(job_or_code)))

    refuses = (400, 403, 413, 429)

    @router.post(
        "/v1/jobs",
        status_code=201,
        **describe(
            "Publish a job, or publish it again under the same id with the same token.",
            rooms.Published, status=201, takes=rooms.Publish, refuses=refuses,
        ),
    )  # fmt: skip
    async def publish(request: Request) -> Response:
        return _json(room.publish(await _body(request, _publish)), 201)

    @router.post(
        "/v1/volunteers",
        status_code=201,
        **describe(
            "Register a volunteer, or register it again under the same id with the same token.",
            rooms.Registered, status=201, takes=rooms.Register, refuses=refuses,
        ),
    )  # fmt: skip
    async def register(request: Request) -> Response:
        return _json(room.register(await _body(request, _register)), 201)

    return router


def _presence(room: Room, rules: Rules) -> APIRouter:
    router = APIRouter()
    welcome = rooms.Welcome(heartbeat_s=rules.heartbeat_s, gone_after_s=rules.patience.gone_after_s)

    @router.websocket("/v1/jobs/{job_id}/presence")
    async def host(socket: WebSocket, job_id: str) -> None:
        job = JobId(job_id)

        def arrive(hello: rooms.Hello, connection: SocketConnection) -> None:
            connection.send(welcome)
            room.host_arrives(job, hello.token, connection)

        await visit(
            socket,
            rooms.from_host,
            hello_within_s=rules.hello_within_s,
            arrive=arrive,
            hear=lambda message, connection: room.host_says(job, message, connection),
            leave=lambda connection: room.host_leaves(job, connection),
        )

    @router.websocket("/v1/volunteers/{volunteer_id}/presence")
    async def volunteer(socket: WebSocket, volunteer_id: str) -> None:
        name = VolunteerId(volunteer_id)

        def arrive(hello: rooms.Hello, connection: SocketConnection) -> None:
            connection.send(welcome)
            room.volunteer_arrives(name, hello.token, connection)

        await visit(
            socket,
            rooms.from_volunteer,
            hello_within_s=rules.hello_within_s,
            arrive=arrive,
            hear=lambda message, connection: room.volunteer_says(name, message, connection),
            leave=lambda connection: room.volunteer_leaves(name, connection),
        )

    return router


def _explain_errors(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refusal(_: Request, error: Refusal) -> Response:
        headers = {"Retry-After": "30"} if error.status == 429 else None
        return _json(error.problem, error.status, headers)

    @app.exception_handler(MessageError)
    async def misunderstood(_: Request, error: MessageError) -> Response:
        return _json(Refusal(400, error).problem, 400)

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path[:100]}: {error.detail}."
        advice = "The routes are described at /openapi.json."
        kind = TargetError if error.status_code == 404 else TurnedAway
        problem = Refusal(error.status_code, kind(message, advice=advice)).problem
        return _json(problem, error.status_code, dict(error.headers or {}))


async def _body(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """Read no more than we would decode. Raises Refusal or MessageError."""
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > rooms.MAX_REQUEST_BYTES:
            raise Refusal(
                413,
                MessageError(
                    f"The body is larger than {rooms.MAX_REQUEST_BYTES} bytes.",
                    advice="Tell less at once.",
                ),
            )
    return rooms.decode(decoder, bytes(read))


def _json(body: rooms.Body, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        rooms.encode(body), status_code=status, headers=headers, media_type="application/json"
    )
