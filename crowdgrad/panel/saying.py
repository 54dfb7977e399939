"""What the panel says in its one stream: each event, and what it carries.

OpenAPI knows no WebSockets; its webhooks are the nearest it has to what is said without being
asked. So they stand there in the panel's document, by the event's name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Body, FastAPI

from crowdgrad.host.telling.recent import LogLine
from crowdgrad.host.telling.status import Status
from crowdgrad.host.telling.swarm_status import SwarmStatus
from crowdgrad.panel.children import PanelState
from crowdgrad.panel.tasks import Task
from crowdgrad.volunteer.remote.status import WorkStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first word to whoever listens."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What a run's log has said since."""

    anew: bool
    """In place of all before: they come from another host of that run."""
    lines: tuple[LogLine, ...]


EVENTS: dict[str, tuple[Any, str]] = {
    "hello": (Hello, "Once, before everything else"),
    "here": (None, "Nothing has happened, and the panel is there"),
    "panel": (PanelState, "The hosts and the volunteer it has started"),
    "task": (Task, "A task has come further, or ended; its result is asked for"),
    "work": (
        WorkStatus | None,
        "What this machine does for others; null: it is not lent, or not yet",
    ),
    "status": (Status, "The run that is followed, as its host tells it"),
    "swarm": (SwarmStatus, "How that run's data spreads"),
    "log": (Lines, "New lines of its log"),
}
"""Of each event what `data` is, and when it is said."""


def describe(app: FastAPI) -> None:
    """Put them into the app's document."""
    for event, (kind, sentence) in EVENTS.items():
        app.webhooks.add_api_route(
            event,
            _said(kind),
            methods=["POST"],
            summary=sentence,
            status_code=204,
            responses={"default": {"description": "Nobody answers"}},
        )


def _said(kind: Any) -> Callable[..., Awaitable[None]]:
    async def said(data: Any) -> None:
        raise AssertionError("nobody calls this: it has the shape of what is said")

    said.__annotations__["data"] = Annotated[kind, Body()]
    return said
