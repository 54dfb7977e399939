"""Data and models to choose from: the catalogue, uploads, previews, ready-made models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from fastapi import FastAPI, Request

from crowdgrad.capture.ready import KINDS, Slider
from crowdgrad.data.catalogue import ENTRIES
from crowdgrad.errors import DataMissing
from crowdgrad.panel.places import place_of
from crowdgrad.panel.results import DataFound
from crowdgrad.panel.tasks import Failed, Say, errand
from crowdgrad.panel.uploads import Uploaded

if TYPE_CHECKING:
    from crowdgrad.panel.app import Panel

MOST_KNOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    name: str
    title: str
    summary: str
    bytes: int
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWish:
    source: str
    """A name of the catalogue, a path, or an upload's set."""
    target: str | None = None
    """The column to be learned, where it is not to be guessed."""
    skip_bad: bool = False
    """Leave out records that cannot be used, rather than end with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyModel:
    kind: str
    title: str
    sentence: str
    sliders: tuple[Slider, ...]
    fits: str
    """Empty: it fits the data, or none was named; else why not."""


def add(app: FastAPI, panel: Panel) -> None:
    _add_data(app, panel)

    @app.get("/api/models", summary="Ready-made models, and which fit the data")
    async def models(data: str = "") -> list[ReadyModel]:
        fits: dict[str, str] = {}
        if data:
            fits = (panel.known.get(data) or await _found_now(panel, data)).fits
        return [
            ReadyModel(
                kind=ready.kind,
                title=ready.title,
                sentence=ready.sentence,
                sliders=ready.sliders,
                fits=fits.get(ready.kind, ""),
            )
            for ready in KINDS
        ]


def _add_data(app: FastAPI, panel: Panel) -> None:
    @app.get("/api/catalogue", summary="Data sets by name")
    async def catalogue() -> list[CatalogueEntry]:
        cache = panel.settings.home / "data"
        return [
            CatalogueEntry(
                name=entry.name,
                title=entry.title,
                summary=entry.summary,
                bytes=sum(file.size_bytes for file in entry.files),
                here=all((cache / entry.name / file.name).is_file() for file in entry.files),
            )
            for entry in ENTRIES.values()
        ]

    @app.post("/api/uploads", summary="A file, as the request's body; below the home folder")
    async def upload(request: Request, name: str, set: str = "") -> Uploaded:
        async def body() -> AsyncIterator[bytes]:
            async for piece in request.stream():
                yield piece

        return await panel.uploads.take(name, set, body())

    @app.post("/api/data", summary="Fetch or prepare a data set, and look at it: a task")
    async def data(wish: DataWish) -> Begun:
        sources = panel.uploads.sources(wish.source) or [_plain(wish.source)]
        contents = panel.uploads.contents(wish.source)

        async def work(say: Say) -> DataFound:
            # Of two that prepare the same into one place, the second finds it done.
            async with panel.preparing[contents or wish.source]:
                return await find_out(
                    panel, sources, wish.target, say, skip_bad=wish.skip_bad, contents=contents
                )

        return Begun(task=panel.tasks.start("data", work))


def _plain(source: str) -> str:
    """Raises DataMissing, UserError."""
    if not source.strip() or len(source) > 4096:
        raise DataMissing("No data is named.", advice="Drop a file, or choose from the catalogue.")
    return source if source in ENTRIES else str(place_of(source))


async def find_out(
    panel: Panel,
    sources: list[str],
    target: str | None = None,
    say: Say = lambda progress, doing: None,
    *,
    skip_bad: bool = False,
    contents: str = "",
) -> DataFound:
    """What is in a data set. `contents`: of what was uploaded. Raises Failed."""
    wish = {
        "sources": sources,
        "contents": contents,
        "home": str(panel.settings.home),
        "target": target,
        "skip_bad": skip_bad,
    }
    found = msgspec.convert(await errand("data", wish, say), DataFound)
    panel.uploads.used(found.data)
    panel.known.pop(found.data, None)
    panel.known[found.data] = found
    for old in list(panel.known)[:-MOST_KNOWN]:
        del panel.known[old]
    return found


async def _found_now(panel: Panel, data: str) -> DataFound:
    try:
        async with panel.looking:
            return panel.known.get(data) or await find_out(panel, [_plain(data)])
    except Failed as error:
        raise DataMissing(error.problem.message, advice=error.problem.advice) from error
