"""From a draft to a running host: check it, save it, start it."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from fastapi import FastAPI

from crowdgrad.errors import JobFileError, NotAgreed
from crowdgrad.panel.api.material import Begun
from crowdgrad.panel.jobs import Draft, save, save_to_check, to_toml
from crowdgrad.panel.places import place_of
from crowdgrad.panel.results import CheckReport, Stays, Travels
from crowdgrad.panel.tasks import Say, command
from crowdgrad.settings import Settings

if TYPE_CHECKING:
    from crowdgrad.panel.app import Panel

LOOPBACK = "127.0.0.1"
MOST_HELPERS = 64
Reach = Literal["here", "network", "matchmaker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckWish:
    draft: Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveWish:
    draft: Draft
    folder: str | None = None
    helpers: int = 0
    reach: Reach = "here"
    matchmaker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    path: str
    toml: str
    command: str
    """What starts it at a terminal, with as many helpers, and reached as widely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWish:
    draft: Draft | None = None
    path: str | None = None
    """Of a job file, in place of a draft."""
    helpers: int = 0
    reach: Reach = "here"
    matchmaker: str | None = None
    agree: bool = False
    """Every volunteer may read and keep the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    run: str
    """The child's id; its run is named once it has begun."""


def add(app: FastAPI, panel: Panel) -> None:
    @app.post("/api/check", summary="Can this model travel, and what will it cost? A task")
    async def check(wish: CheckWish) -> Begun:
        to_toml(wish.draft)  # what cannot be said is told at once

        async def work(say: Say) -> CheckReport:
            return await _check(panel, wish.draft, say)

        return Begun(task=panel.tasks.start("check", work))

    @app.post("/api/job", summary="Save a draft as a job file")
    async def save_job(wish: SaveWish) -> Saved:
        reached(panel.settings, wish)  # what cannot be is told before a file is written
        path = await asyncio.to_thread(save, wish.draft, panel.settings.home, wish.folder)
        told = at_terminal(panel.settings, panel.runs.folder, path, wish)
        return Saved(path=str(path), toml=path.read_text(encoding="utf-8"), command=told)

    @app.post("/api/host", summary="Start a host")
    async def host(wish: HostWish) -> Started:
        return Started(run=panel.children.start("host", host_arguments(panel, wish)).id)


def host_arguments(panel: Panel, wish: HostWish) -> list[str]:
    """Raises UserError, NotAgreed."""
    if (wish.draft is None) == (wish.path is None):
        raise JobFileError("What is to be trained?", advice="Give a draft, or a job file's path.")
    how = reached(panel.settings, wish)
    if wish.reach != "here" and not wish.agree:
        raise NotAgreed(
            "Nobody has agreed to publish the data.",
            advice="Agree that every volunteer may read and keep it, or train on this machine.",
        )
    if wish.draft is not None:
        job = save(wish.draft, panel.settings.home)
    else:
        assert wish.path is not None
        job = place_of(wish.path).absolute()
        if not job.is_file() or job.suffix != ".toml":
            raise JobFileError(f"{job} is no job file.", advice="Give the path of a .toml file.")
    agreed = [] if wish.reach == "here" else ["--yes"]
    return ["host", str(job), *how, *common(panel), *agreed]


def at_terminal(settings: Settings, runs: Path, job: Path, wish: SaveWish) -> str:
    """The command that starts a saved job as `host_arguments` would, for a person: whether others
    may have the data is asked there, and where keys and results are is said if it is not the
    usual place."""
    words = ["crowdgrad", "host", str(job), *reached(settings, wish)]
    if settings.home.absolute() != Settings().home.expanduser().absolute():
        words += ["--home", str(settings.home.absolute())]
    if runs.absolute() != Path("runs").absolute():
        words += ["--runs", str(runs.absolute())]
    return shlex.join(words)


def reached(settings: Settings, wish: SaveWish | HostWish) -> list[str]:
    """Who helps, and from where, as arguments of `crowdgrad host`. Raises JobFileError."""
    if not 0 <= wish.helpers <= MOST_HELPERS:
        raise JobFileError(f"{wish.helpers} helpers.", advice=f"Start {MOST_HELPERS} at most.")
    arguments = ["--helpers", str(wish.helpers)]
    if wish.reach == "here":
        return [*arguments, "--host", LOOPBACK]
    if wish.reach == "matchmaker":
        return [*arguments, f"--matchmaker={wish.matchmaker or settings.matchmaker}"]
    return [*arguments, "--page", "0"]  # a matchmaker would have one


def common(panel: Panel) -> list[str]:
    return ["--plain", "--home", home_of(panel), "--runs", str(panel.runs.folder)]


def home_of(panel: Panel) -> str:
    return str(panel.settings.home.absolute())


async def _check(panel: Panel, draft: Draft, say: Say) -> CheckReport:
    say(None, "Looking at the model")
    job = save_to_check(draft, panel.scratch)
    try:
        answer = panel.scratch / f"{job.stem}.json"
        told = await command(["check", str(job), "--home", home_of(panel)], answer)
    finally:
        await asyncio.to_thread(job.unlink, missing_ok=True)
    if not told["travels"]:
        return msgspec.convert(told, Stays)
    return msgspec.convert(told, Travels)
