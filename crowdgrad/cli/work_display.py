"""The live view of a volunteer's work in a terminal: one panel that changes in place."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from crowdgrad.volunteer.consent import size
from crowdgrad.volunteer.remote.status import WorkStatus

EVERY_S = 0.25
SHOWN_LINES = 4
NARROWEST = 20
BORDER = 6
"""Columns of the panel that are not its inside."""
GAP = 3
Cell = tuple[str, str]
"""Its name, and what it is."""
STATES = {"working": "green", "paused": "yellow", "asking": "yellow", "waiting": "yellow"}


def render(status: WorkStatus, width: int | None = None) -> RenderableType:
    """All strangers' words as text, never as markup. `width`: in columns; None: all there are."""
    room = width - BORDER if width is not None else None
    parts: list[RenderableType] = [_doing(status), *_effort(status), Text()]
    parts += _numbers(status, room)
    if status.trouble:
        parts += [Text(), Text(status.trouble, style="bold red")]
    lines = [line for line in status.log if line.text != status.doing][-SHOWN_LINES:]
    if lines:
        parts.append(Text())
    for line in lines:
        at = f"{datetime.fromtimestamp(line.at):%H:%M:%S}"
        said = Text(f"{at}  {line.text}", style="dim", no_wrap=True, overflow="ellipsis")
        parts.append(said)
    job = status.job
    title = Text(job.title if job is not None else "crowdgrad", style="bold")
    if job is not None and job.cause:
        title.append(f" · {job.cause}", style="not bold")
    state = Text(status.state, style=STATES.get(status.state, ""))
    state.append(" · Ctrl-C stops", style="dim")
    return Panel(Group(*parts), title=title, subtitle=state, padding=(1, 2), width=width)


def _doing(status: WorkStatus) -> Text:
    said = Text(status.doing, style=STATES["paused"] if status.state == "paused" else "")
    job = status.job
    if job is not None:
        who = job.host_name or job.host or job.address
        said.append(f"\nFor {who}, as number {job.position}", style="dim")
        if job.memory_bytes:
            said.append(f", with up to {size(job.memory_bytes)} of memory", style="dim")
        if job.why:
            said.append(f"\n{job.why}", style="dim")
    return said


def _effort(status: WorkStatus) -> list[Text]:
    effort = status.effort
    if effort.reason == status.doing:  # it is said already
        return []
    how = "at rest" if effort.share == 0 else f"{100 * effort.share:.0f} % of the time"
    if effort.share and effort.threads > 1:
        how += f" on {effort.threads} cores"
    return [Text(f"Effort: {how}. {effort.reason}", style="" if effort.share else "yellow")]


def _numbers(status: WorkStatus, room: int | None) -> list[Table]:
    """In one row, where it fits into so many columns, else in several."""
    cells = [
        ("samples", f"{status.samples:,}"),
        ("samples/s", f"{status.samples_per_s:,.0f}"),
        ("updates", f"{status.accepted:,}"),
        ("loss", "–" if status.loss is None else f"{status.loss:.4f}"),
        ("at work", _duration(status.compute_s)),
        ("credit so far", credit(status.totals.credit)),
    ]
    if status.job is not None and status.job.share is not None:
        cells.append(("your part", f"{100 * status.job.share:.1f} %"))
    if status.refused:
        cells.append(("refused", f"{status.refused:,}"))
    if status.data is not None and status.data.done < status.data.total:
        cells.append(("data", f"{status.data.done:,} of {status.data.total:,}"))
    return [_grid(row) for row in _rows(cells, room)]


def _rows(cells: list[Cell], room: int | None) -> list[list[Cell]]:
    """As many as fit into each."""
    rows: list[list[Cell]] = [[]]
    taken = 0
    for cell in cells:
        width = GAP + max(map(len, cell))
        if rows[-1] and room is not None and taken + width > room + GAP:
            rows.append([])
            taken = 0
        rows[-1].append(cell)
        taken += width
    return rows


def _grid(cells: list[Cell]) -> Table:
    grid = Table.grid(padding=(0, GAP))
    grid.add_row(*(Text(label, style="dim") for label, _ in cells))
    grid.add_row(*(Text(value, style="bold") for _, value in cells))
    return grid


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def credit(flop: float) -> str:
    """In three digits."""
    for power, letter in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if flop >= 0.9995 * 10**power:
            return f"{flop / 10**power:.3g} {letter}FLOP"
    return f"{flop:.0f} FLOP"


class Screen(contextlib.AsyncExitStack):
    """The panel on the screen, drawn anew a few times a second."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._take: Callable[[], WorkStatus] | None = None
        self._live = self._new()
        self._hidden = False

    async def __aenter__(self) -> Screen:
        await super().__aenter__()
        self._live.start()
        self.callback(lambda: self._live.stop())
        drawing = asyncio.create_task(self._draw())
        self.push_async_callback(_ended, drawing)
        return self

    def show(self, take: Callable[[], WorkStatus]) -> None:
        """Draw what this gives from now on."""
        self._take = take

    def keep(self, text: str) -> None:
        """A line above it that stays."""
        self._console.print(text, highlight=False, markup=False)

    def paused(self) -> ExitStack:
        """Off the screen, until the stack is closed."""
        self._hidden = True
        self._live.stop()
        stack = ExitStack()
        stack.callback(self._resume)
        return stack

    def _resume(self) -> None:
        # A new one each time: one that is started again writes over what came in between.
        self._live = self._new()
        self._live.start()
        self._hidden = False

    def _new(self) -> Live:
        return Live(Text("Starting"), console=self._console, auto_refresh=False, transient=True)

    async def _draw(self) -> None:
        drawn: WorkStatus | None = None
        while True:
            if self._take is not None and not self._hidden:
                status = self._take()
                if drawn is None or status != drawn:
                    # The ^C that a terminal writes behind it must not begin a line of its own.
                    width = max(NARROWEST, self._console.width - len("^C"))
                    self._live.update(render(status, width), refresh=True)
                    drawn = status
            await asyncio.sleep(EVERY_S)


async def _ended(drawing: asyncio.Task[None]) -> None:
    drawing.cancel()
    await asyncio.gather(drawing, return_exceptions=True)
