"""What `crowdgrad host` shows: before it starts, where it is found, and how it goes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from crowdgrad.cli.events import Lines
from crowdgrad.cli.output import write_json

if TYPE_CHECKING:
    from rich.console import Console

    from crowdgrad.host.job import Prepared
    from crowdgrad.host.options import Here
    from crowdgrad.host.telling.status import Status

PLAIN_EVERY_S = 2.0
EVENTS_EVERY_S = 1.0


def introduce(console: Console, prepared: Prepared) -> None:
    """What should be known before it starts."""
    if prepared.note:
        console.print(f"Data: {prepared.manifest.title} ({prepared.note})", highlight=False)
    if prepared.earlier is not None:
        console.print(f"Starts from the result of {prepared.earlier.id}", highlight=False)
    for note in prepared.notes:
        console.print(f"Note: {note}", highlight=False, markup=False)


def announce(file: str, here: Here) -> None:
    """For its owner's eyes only: whoever reads it may steer the run."""
    names = ("address", "url", "code", "link", "key", "page", "title", "token")
    told = {name: getattr(here, name) for name in names}
    about = {"run": here.folder.name, "folder": str(here.folder), "pid": os.getpid()}
    write_json(file, {**told, **about}, private=True)


def greet(console: Console, here: Here, matchmaker: str | None, *, qr: bool) -> None:
    """`qr`: draw the link in any case, not only in a terminal."""
    from crowdgrad.cli.joining import Ways, show
    from crowdgrad.domain.routes import RELAY

    ways = Ways(
        code=here.code or "",
        matchmaker=matchmaker or "",
        local_code=here.local_code,
        addresses=tuple(way for way in here.routes if not way.startswith(RELAY))
        if here.admit == "anyone"
        else (),
        link=here.link,
        key=here.key,
    )
    show(console, ways, qr=qr)
    if here.words:
        said = here.words[:1].upper() + here.words[1:]
        console.print(f"{said}.", highlight=False, markup=False)
    console.print(f"Status: {here.url}/status", soft_wrap=True)
    if here.page:
        console.print(f"Page: {here.page}", soft_wrap=True)
    console.print(f"Results: {here.folder}", soft_wrap=True)


def display(
    args: argparse.Namespace, console: Console
) -> tuple[AbstractContextManager[object], Callable[[Status], None]]:
    if args.events:
        return nullcontext(), _events(Lines())
    if args.plain or not console.is_terminal:
        return nullcontext(), _lines(console)
    from rich.live import Live

    from crowdgrad.cli.display import View

    view = View()
    live = Live(console=console, refresh_per_second=5, transient=True)
    return live, lambda status: live.update(view.render(status))


def _lines(console: Console) -> Callable[[Status], None]:
    from crowdgrad.cli.display import plain

    loop, last = asyncio.get_running_loop(), -PLAIN_EVERY_S

    def watch(status: Status) -> None:
        nonlocal last
        if loop.time() - last >= PLAIN_EVERY_S:
            last = loop.time()
            print(plain(status), file=console.file, flush=True)

    return watch


def _events(lines: Lines) -> Callable[[Status], None]:
    """Every second, and whenever state, phase, members or scores become others."""
    from crowdgrad.host.telling.status import as_json

    loop, last = asyncio.get_running_loop(), -EVENTS_EVERY_S
    before: tuple[object, ...] = ()

    def watch(status: Status) -> None:
        nonlocal last, before
        now = (status.state, status.phase, status.paused, status.here, status.validation)
        if loop.time() - last >= EVENTS_EVERY_S or now != before:
            last, before = loop.time(), now
            lines.write("status", {"status": json.loads(as_json(status))})

    return watch
