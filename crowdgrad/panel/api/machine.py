"""What this machine is and could give, which recipes there are."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from fastapi import FastAPI

from crowdgrad import __version__
from crowdgrad.domain.manners import Limits
from crowdgrad.errors import missing_module
from crowdgrad.panel.browsers import find_chromium
from crowdgrad.recipes import RECIPES
from crowdgrad.recipes.describe import FieldInfo, describe
from crowdgrad.volunteer import speed
from crowdgrad.volunteer.probe import find_gpu

if TYPE_CHECKING:
    from crowdgrad.panel.app import Panel

Kind = Literal["number", "whole", "flag", "choice", "text", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    name: str
    os: str
    cores: int
    memory_mb: int
    gpu: str
    gflops: float
    """Measured, on one thread."""
    can_host: bool
    why_not: str
    version: str
    matchmaker: str
    limits: Limits
    """How hard it works when it is lent: as chosen last, else as the settings say."""
    chromium: bool
    """Whether the panel can have a window of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeField:
    name: str
    help: str
    default: bool | int | float | str | None
    """None where it is a table."""
    kind: Kind
    """A table has fields of its own."""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeInfo:
    name: str
    sentence: str
    when: str
    fields: tuple[RecipeField, ...]


def add(app: FastAPI, panel: Panel) -> None:
    @app.get("/api/machine", summary="What this machine is, and how fast")
    async def machine() -> Machine:
        return await asyncio.to_thread(_machine, panel)

    @app.get("/api/recipes", summary="How volunteers can learn together")
    async def recipes() -> list[RecipeInfo]:
        return [
            RecipeInfo(
                name=kind.name,
                sentence=kind.sentence,
                when=kind.when,
                fields=tuple(map(_field, describe(kind))),
            )
            for kind in RECIPES.values()
        ]


def _machine(panel: Panel) -> Machine:
    missing = next(
        (name for name in ("torch", "onnx", "onnxscript") if find_spec(name) is None), ""
    )
    why = missing_module(ModuleNotFoundError(name=missing)) if missing else None
    return Machine(
        name=panel.settings.name or socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        cores=os.cpu_count() or 1,
        memory_mb=_memory_mb(),
        gpu=find_gpu()[0],
        gflops=speed.known(panel.settings.home, time.time()).gflops,
        can_host=why is None,
        why_not=f"{why.message} {why.advice}" if why else "",
        version=__version__,
        matchmaker=panel.settings.matchmaker,
        limits=panel.limits.now(),
        chromium=find_chromium(sys.platform) is not None,
    )


def _memory_mb() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000
    except (ValueError, OSError, AttributeError):
        return 0


def _field(info: FieldInfo) -> RecipeField:
    kind: Kind = "table"
    default = None
    if info.part is None:
        default = getattr(info.default, "name", info.default)
        kinds: dict[type, Kind] = {bool: "flag", int: "whole", float: "number"}
        kind = "choice" if info.choices else kinds.get(type(default), "text")
    return RecipeField(
        name=info.name, help=info.what, default=default, kind=kind, choices=info.choices
    )
