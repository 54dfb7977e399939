"""Lending this machine: start and stop the volunteer, its wishes, what it has done."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
from fastapi import FastAPI, Request, Response

from crowdgrad.domain.manners import Limits
from crowdgrad.errors import DataMissing, RunBusy, Unreachable, UserError
from crowdgrad.net.identity import file_of, load_or_make
from crowdgrad.panel.certificate import Gifts, Given, svg
from crowdgrad.panel.problems import Problem
from crowdgrad.volunteer.journal import Entry, Reader
from crowdgrad.volunteer.remote.desk import Answer
from crowdgrad.volunteer.remote.status import WorkStatus

if TYPE_CHECKING:
    from crowdgrad.panel.app import Panel
    from crowdgrad.panel.children import Started

LINES = 200
MOST_LINES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkWish:
    target: str | None = None
    """A code, a link or an address; None: whoever needs help."""
    matchmaker: str | None = None
    causes: tuple[str, ...] = ()
    limits: Limits | None = None
    """From now on, and the next time, too; None: as chosen last, else as the settings say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    id: str
    """Of the child that works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    running: bool
    status: WorkStatus | None = None
    """As the volunteer tells it; None while it does not."""
    error: Problem | None = None
    """Why it ended, where it did not end well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the journal remembers."""

    entries: tuple[Entry, ...]
    """The last of them, oldest first."""
    count: int
    """How many there are in all."""
    totals: Given


def add(app: FastAPI, panel: Panel) -> None:
    _add_wishes(app, panel)
    _add_past(app, panel)

    @app.post("/api/work", summary="Lend this machine")
    async def start(wish: WorkWish) -> Lent:
        if panel.children.working() is not None:
            raise RunBusy("This machine is lent already.", advice="Stop that first.")
        arguments = _arguments(panel, wish)
        if wish.limits is not None:
            panel.limits.keep(wish.limits)
        if panel.limits.file is not None:
            arguments += [f"--limits={panel.limits.file}"]
        return Lent(id=panel.children.start("work", arguments).id)

    @app.get("/api/work", summary="What this machine does for others")
    async def working() -> Working:
        child = panel.children.working()
        if child is None:
            last = panel.children.last_worker()
            return Working(running=False, error=last.state().error if last else None)
        status = None
        if child.entrance is not None:
            with contextlib.suppress(Unreachable, msgspec.DecodeError):
                reply = await panel.caller.ask(child.entrance, "GET", "/status", owner=True)
                status = msgspec.json.decode(reply.body, type=WorkStatus)
        return Working(running=True, status=status)


def _add_wishes(app: FastAPI, panel: Panel) -> None:
    @app.post("/api/work/{wish}", response_model=Answer, summary="A wish to the volunteer")
    async def wished(
        wish: Literal["pause", "resume", "next", "stop", "answer"], request: Request
    ) -> Response:
        if wish == "stop":
            return Response(msgspec.json.encode(_stop(panel)), media_type="application/json")
        child = panel.children.working()
        return await _ask(panel, child, "POST", f"/{wish}", await request.body() or None)

    @app.put("/api/work/limits", response_model=Answer, summary="How hard this machine may work")
    async def limits(wish: Limits) -> Response:
        child = panel.children.working()
        answer = await _ask(panel, child, "PUT", "/limits", msgspec.json.encode(wish))
        if answer.status_code == 200:
            panel.limits.keep(wish)
        return answer


def _stop(panel: Panel) -> Answer:
    """However the volunteer fares: it may be that it does not answer."""
    child = panel.children.working()
    if child is None:
        return Answer(state="over", changed=False, holds=True, reason="it is over already")
    panel.children.stop(child)
    return Answer(state="over", changed=True, holds=True, reason="it is asked to end")


def _add_past(app: FastAPI, panel: Panel) -> None:
    gifts = Gifts(panel.settings.home)

    @app.get("/api/journal", summary="What was done on this machine, and for whom")
    async def journal(lines: int = LINES) -> Past:
        totals, count = await asyncio.to_thread(gifts.look, _key(panel))
        if lines <= 0:
            return Past(entries=(), count=count, totals=totals)
        entries = await asyncio.to_thread(Reader(panel.settings.home).all)
        shown = entries[-min(lines, MOST_LINES) :]
        return Past(entries=tuple(shown), count=len(entries), totals=totals)

    @app.get(
        "/api/certificate.svg",
        summary="What this machine has given, as a picture",
        response_class=Response,
        responses={200: {"content": {"image/svg+xml": {}}}},
    )
    async def certificate() -> Response:
        key = _key(panel)
        all_of_it, _ = await asyncio.to_thread(gifts.look, key)
        if not all_of_it.units:
            raise DataMissing("This machine has not helped anybody yet.", advice="Lend it first.")
        text = svg(panel.settings.name or f"volunteer-{key[:6]}", key, all_of_it, time.time())
        return Response(text, media_type="image/svg+xml")


def _key(panel: Panel) -> str:
    """This machine's; empty while it has none."""
    home = panel.settings.home
    return load_or_make(home).id if file_of(home).is_file() else ""


def _arguments(panel: Panel, wish: WorkWish) -> list[str]:
    """Raises UserError."""
    arguments = ["work", "--plain", "--home", str(panel.settings.home.absolute())]
    if wish.matchmaker:
        arguments += [f"--matchmaker={wish.matchmaker}"]
    arguments += [f"--cause={cause}" for cause in wish.causes]
    if wish.target:
        if wish.target.startswith("-"):
            raise UserError(f"{wish.target[:70]!r} is no job.", advice="Give a code or a link.")
        arguments += [wish.target]
    return arguments


async def _ask(
    panel: Panel, child: Started | None, method: str, path: str, body: bytes | None
) -> Response:
    entrance = child.entrance if child is not None else None
    if entrance is None:
        raise Unreachable("This machine is not lent to anybody.", advice="Start it first.")
    reply = await panel.caller.ask(entrance, method, path, body=body, owner=True)
    return Response(reply.body, status_code=reply.code, media_type=reply.kind)
