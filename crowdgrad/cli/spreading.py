"""How the data spreads, in a terminal: one bar for all, and a strip for each who still lacks some.

A strip is the data from its beginning to its end in twenty characters, the darker the more of it is
there. It stays for a moment when everybody has what it wants, and goes when nobody wants more:
where units ask for data as they come, it would flicker else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from crowdgrad.host.telling.swarm_status import BEHIND_CELLS, SpreadSummary, resampled

LINGER_S = 3.0
SHADES = "·░▒▓█"


class Lingering:
    """Whether to show it: while somebody lacks something, and a little longer."""

    def __init__(self) -> None:
        self._until = -math.inf

    def shows(self, spreading: SpreadSummary, elapsed_s: float) -> bool:
        if spreading.complete < spreading.members:
            self._until = elapsed_s + LINGER_S
        return elapsed_s < self._until


def spreading_view(spreading: SpreadSummary) -> list[RenderableType]:
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(no_wrap=True)
    row.add_column(ratio=1, min_width=8)
    row.add_column(justify="right", no_wrap=True)
    bar = ProgressBar(total=1.0, completed=spreading.progress)
    row.add_row(Text("data", style="dim"), bar, _words(spreading))
    return [row, _strips(spreading)] if spreading.behind else [row]


def _words(spreading: SpreadSummary) -> str:
    return (
        f"{per_cent(spreading.progress)}, {spreading.complete} of {spreading.members} have all, "
        f"{host_sent(spreading)}"
    )


def _strips(spreading: SpreadSummary) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(max_width=24, no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for one in spreading.behind:
        # As text, not as markup: names are strangers' words.
        name = Text(f"  {one.position} {one.name}", no_wrap=True, overflow="ellipsis")
        table.add_row(name, Text(strip(one.map), style="blue"), per_cent(one.progress))
    left = spreading.members - spreading.complete - len(spreading.behind)
    if left > 0:
        table.add_row(Text(f"  and {left} more", style="dim"), "", "")
    return table


def strip(cells: Sequence[float]) -> str:
    """Only what is all there looks full, only what is not there at all looks empty."""
    shown = resampled(cells, BEHIND_CELLS) or [0.0] * BEHIND_CELLS
    last = len(SHADES) - 1
    return "".join(
        SHADES[last if cell >= 1 else math.ceil(cell * (last - 1))] if cell > 0 else SHADES[0]
        for cell in shown
    )


def per_cent(part: float) -> str:
    """Rounded down: 100 % is all of it."""
    return f"{math.floor(100 * part)} %"


def host_sent(spreading: SpreadSummary) -> str:
    return f"host sent {spreading.host_copies:.2f} copies"


def in_words_at_the_end(spreading: SpreadSummary) -> str:
    return (
        f"Data by {spreading.plan}: {spreading.complete} of {spreading.members} members had all "
        f"they wanted; the host sent {spreading.host_copies:.2f} copies."
    )
