"""The panel's parts, put together, and its application."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from crowdgrad import __version__, webapp
from crowdgrad.errors import (
    CrowdgradError,
    DataMissing,
    MachineError,
    NotAgreed,
    Unreachable,
    one_line,
)
from crowdgrad.panel.api import events, jobs, machine, material, runs, work
from crowdgrad.panel.asking import Askers
from crowdgrad.panel.auth import Guard, Keys
from crowdgrad.panel.calls import Caller
from crowdgrad.panel.children import Children, PanelState
from crowdgrad.panel.hub import Hub
from crowdgrad.panel.limits import Kept
from crowdgrad.panel.problems import Problem, Trouble, of_error, of_mistake
from crowdgrad.panel.results import DataFound
from crowdgrad.panel.runs import Runs
from crowdgrad.panel.saying import Hello, describe
from crowdgrad.panel.tasks import Failed, Task, Tasks
from crowdgrad.panel.uploads import Uploads
from crowdgrad.panel.watching import Watching
from crowdgrad.settings import Settings

STATUS: tuple[tuple[type[CrowdgradError], int], ...] = (
    (DataMissing, 404),
    (NotAgreed, 409),
    (Unreachable, 409),
    (MachineError, 500),
)
RELOAD = "Reload the page: it may be of another version."


class Panel:
    """Everything one panel has; made inside its event loop."""

    def __init__(self, settings: Settings, *, runs: Path, scratch: Path) -> None:
        """`scratch`: for what its children write, gone with it."""
        self.settings = settings
        self.scratch = scratch
        self.hub = Hub(Hello(version=__version__))
        self.caller = Caller()
        self.children = Children(scratch, self._children_changed)
        self.tasks = Tasks(self._task_changed)
        self.askers = Askers()
        self.limits = Kept(settings)
        self.uploads = Uploads(settings.home / "uploads")
        self.runs = Runs(runs.absolute(), self.caller)
        self.watching = Watching(self.hub, self.runs, self.children, self.caller)
        self.known: dict[str, DataFound] = {}
        """What was found out about data, by what a draft calls it."""
        self.looking = asyncio.Lock()
        """One at a time where somebody only reads: many pages ask the same."""
        self.preparing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By what is prepared: two at once would write into one folder."""
        self.children.look()

    @contextlib.asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        looking = asyncio.create_task(self.children.run())
        try:
            yield
        finally:
            looking.cancel()
            self.hub.close()
            await self.watching.close()
            await self.tasks.end()
            await asyncio.gather(self.askers.end(), asyncio.to_thread(self.children.end))
            await asyncio.to_thread(self.uploads.end)
            self.caller.close()

    def _children_changed(self, told: PanelState) -> None:
        self.hub.publish("panel", told)

    def _task_changed(self, task: Task) -> None:
        # Who waits for the result asks for it: the stream would repeat it to every page.
        self.hub.publish("task", replace(task, result=None), which=task.id)


def create_app(panel: Panel) -> FastAPI:
    """Without its guard: see `guarded`."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with panel.living():
            yield

    app = FastAPI(
        title="crowdgrad panel",
        version=__version__,
        description="What the control panel's pages ask. Only for the browser it let in.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses={
            "default": {"model": Trouble, "description": "It did not go well"},
            422: {"model": Trouble, "description": "The request makes no sense"},
        },
        lifespan=lifespan,
    )
    _add_troubles(app)
    webapp.mount(app)
    for part in (machine, material, jobs, runs, work, events):
        part.add(app, panel)
    describe(app)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> str:
        return webapp.page({"serves": "panel", "version": __version__})

    return app


def guarded(panel: Panel, keys: Keys, *, beyond: bool = False) -> ASGIApp:
    return Guard(create_app(panel), keys=keys, beyond=beyond)


def _add_troubles(app: FastAPI) -> None:
    @app.exception_handler(CrowdgradError)
    async def trouble(_: Request, error: CrowdgradError) -> JSONResponse:
        code = next((code for kind, code in STATUS if isinstance(error, kind)), 400)
        return _problem(of_error(error), code)

    @app.exception_handler(Failed)
    async def failed(_: Request, error: Failed) -> JSONResponse:
        return _problem(error.problem, 409)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        words = one_line(f"{where}: {first['msg']}")
        return _problem(Problem(code="422", message=f"The request makes no sense: {words}."), 422)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        problem = Problem(code=str(error.status_code), message=f"{error.detail}.", advice=RELOAD)
        return _problem(problem, error.status_code)

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=400)  # an upload broken off: nobody hears it

    @app.exception_handler(Exception)
    async def mistake(_: Request, error: Exception) -> JSONResponse:
        return _problem(of_mistake(error), 500)


def _problem(problem: Problem, code: int) -> JSONResponse:
    trouble = Trouble(detail=problem.message, error=problem)
    return JSONResponse(asdict(trouble), status_code=code)
