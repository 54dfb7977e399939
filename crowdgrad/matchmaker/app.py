"""The matchmaker's routes: what can be asked, and by whom.

    GET    /healthz /readyz /metrics         is it up, can it serve, its figures
    GET    /v1/jobs                          public jobs that need help
    GET    /v1/jobs/{job_or_code}            one of them
    DELETE /v1/jobs/{job_id}                 its host withdraws it (signed)
    GET    /v1/keys/{key_id}                 what a key gave
    GET    /v1/totals                        what was given in all
    GET    /v1/relays                        who helps those whom nobody can dial
    POST   /v1/reach                         can others dial the caller? (signed)
    GET    /v1/me                            everything kept about the caller (signed)
    DELETE /v1/me                            forget all of that (signed)
    GET    / /j/{code} /k/{key_id} /privacy  pages for people, and /assets/ of the web app
    WS     /v1/jobs/{job_id}/presence        a host publishes its job, and stays
    WS     /v1/volunteers/{id}/presence      a volunteer registers, waits, works, waits

Every refusal is `{code, message, advice}`; `/openapi.json` describes it all.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from fastapi import Depends, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from crowdgrad import webapp
from crowdgrad.errors import CannotWrite, MessageError, TargetError, TurnedAway
from crowdgrad.matchmaker import openapi
from crowdgrad.matchmaker.api import pages, reach, service
from crowdgrad.matchmaker.api.answers import answer, wants_page
from crowdgrad.matchmaker.api.presence import Sockets
from crowdgrad.matchmaker.api.v1 import v1
from crowdgrad.matchmaker.desk import Desk, Rules
from crowdgrad.matchmaker.dialling import Dial, Dialling, Resolve, knock
from crowdgrad.matchmaker.doorkeeper import Admission, Doorkeeper
from crowdgrad.matchmaker.loop import feel_the_load, keep
from crowdgrad.matchmaker.metrics import Metrics
from crowdgrad.matchmaker.names import Names
from crowdgrad.matchmaker.refusal import Refusal, cannot_keep
from crowdgrad.matchmaker.room import Room
from crowdgrad.matchmaker.telling import Telling
from crowdgrad.net.identity import Identity, from_seed, new_seed
from crowdgrad.store.base import Store

KEY = "key"
"""What the service's own key is called in the store."""


def own_key(store: Store) -> Identity:
    """The service's key, made at the first start and kept with everything else."""
    seed = store.secret(KEY)
    if seed is None:
        seed = new_seed()
        store.keep_secret(KEY, seed)
    return from_seed(seed)


@dataclass(frozen=True, slots=True)
class Service:
    """The matchmaker, ready to be served."""

    app: ASGIApp
    http: FastAPI
    """Of that, what is not a WebSocket."""
    room: Room


def create_service(
    store: Store,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    rules: Rules | None = None,
    doorkeeper: Doorkeeper | None = None,
    admission: Admission | None = None,
    metrics: Metrics | None = None,
    public_url: str = "",
    relays: tuple[str, ...] = (),
    dial: Dial = knock,
    resolve: Resolve | None = None,
) -> Service:
    """`clock` measures silence, `wall` dates what is remembered. `relays`: routes that people are
    told. `dial` and `resolve`: how somebody is reached who asks for it."""
    rules = rules or Rules()
    metrics = metrics or Metrics()
    doorkeeper = doorkeeper or Doorkeeper(wall=wall, clock=clock)
    admission = admission or Admission()
    desk = Desk(store, wall=wall, random_bytes=random_bytes, rules=rules)
    tell = Telling(metrics)
    room = Room(
        store,
        desk,
        key=own_key(store),
        clock=clock,
        wall=wall,
        rules=rules,
        public_url=public_url,
        tell=tell,
    )
    dialling = Dialling(dial=dial, resolve=resolve or Names().addresses, clock=clock, tell=tell)
    metrics.also(dialling.figures)
    pulse = _Pulse(store, room, admission)
    http = FastAPI(
        title="crowdgrad matchmaker",
        version="1",
        description=(__doc__ or "") + openapi.SOCKET_TEXT,
        lifespan=pulse.lifespan,
        docs_url=None,
        redoc_url=None,
    )
    asked = [Depends(_asked(doorkeeper))]
    site = pages.routes(room, desk, store, public_url=public_url, rules=rules)
    http.include_router(service.routes(room, store, metrics, pulse.beats))
    http.include_router(v1(room, desk, store, doorkeeper, tell), dependencies=asked)
    reaching = reach.routes(doorkeeper, dialling, relays=relays, wall=wall)
    http.include_router(reaching, dependencies=asked)
    http.include_router(site, dependencies=asked)
    webapp.mount(http)
    _explain_errors(http, tell)
    openapi.install(http)
    app = Sockets(
        http, room=room, rules=rules, doorkeeper=doorkeeper, admission=admission, tell=tell
    )
    return Service(app, http, room)


class _Pulse:
    """What goes on while nobody asks for anything: matching, and feeling the load."""

    def __init__(self, store: Store, room: Room, admission: Admission) -> None:
        self._store = store
        self._room = room
        self._admission = admission
        self._running: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        await self._store.kept()
        self._running.append(asyncio.create_task(keep(self._room)))
        self._running.append(asyncio.create_task(feel_the_load(self._admission)))
        try:
            yield
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def beats(self) -> bool:
        return bool(self._running) and not any(task.done() for task in self._running)


def _asked(doorkeeper: Doorkeeper) -> Callable[[Request], Awaitable[None]]:
    async def question(request: Request) -> None:
        doorkeeper.admit_question(doorkeeper.address_of(request.scope))

    return question


def _explain_errors(app: FastAPI, tell: Telling) -> None:
    def explain(request: Request, refusal: Refusal) -> Response:
        tell.refused(refusal)
        if wants_page(request):
            return pages.problem(refusal)
        return answer(refusal.problem, refusal.status, refusal.headers)

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return explain(request, error)

    @app.exception_handler(CannotWrite)
    async def not_kept(request: Request, error: CannotWrite) -> Response:
        return explain(request, cannot_keep(error.message))

    @app.exception_handler(MessageError)
    async def misunderstood(request: Request, error: MessageError) -> Response:
        return explain(request, Refusal(400, error))

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path[:100]}: {error.detail}."
        advice = "The routes are described at /openapi.json."
        kind = TargetError if error.status_code == 404 else TurnedAway
        response = explain(request, Refusal(error.status_code, kind(message, advice=advice)))
        response.headers.update(dict(error.headers or {}))
        return response
