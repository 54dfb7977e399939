"""The live view of a job in a terminal, from the host's status: calm, one screen, no scrolling."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from crowdgrad.host.status import MemberStatus, Status, score, spell

SPARKS = "▁▂▃▄▅▆▇█"
PHASES = {
    "training": "training",
    "validating": "checking the last parameters",
    "testing": "testing the best parameters, once",
    "over": "over",
}


class View:
    """Keeps the curve's history; `render` draws one frame."""

    def __init__(self) -> None:
        self._metric: list[float] = []
        self._seen_at = -1.0

    def render(self, status: Status) -> RenderableType:
        self._remember(status)
        notice = [Text(status.notice, style="yellow"), Text()] if status.notice else []
        return Panel(
            Group(
                self._bar(status),
                Text(),
                self._numbers(status),
                Text(),
                *notice,
                members(status),
            ),
            title=f"[bold]{escape(status.title)}[/] · {status.recipe}",
            subtitle=PHASES.get(status.phase, status.phase),
            padding=(1, 2),
        )

    def _remember(self, status: Status) -> None:
        found = status.validation
        if found is not None and found.at_s > self._seen_at:
            self._seen_at = found.at_s
            self._metric.append(score(found))

    def _bar(self, status: Status) -> RenderableType:
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(ratio=1)
        row.add_column(justify="right")
        done = f"epoch {status.epochs_done:.1f} of {status.epochs}, {status.elapsed_s:.0f} s"
        row.add_row(ProgressBar(total=1.0, completed=status.progress), done)
        return row

    def _numbers(self, status: Status) -> RenderableType:
        grid = Table.grid(padding=(0, 2))  # seven of them within 80 columns
        cells = [
            ("samples/s", f"{status.samples_per_s:,.0f}"),
            ("updates/s", f"{status.updates_per_s:,.0f}"),
            ("staleness", f"{status.mean_staleness:.1f}"),
            ("rate", f"{status.learning_rate:.3g}"),
            ("loss", "–" if status.train_loss is None else f"{status.train_loss:.4f}"),
            (status.metric or "validation", spell(status, status.validation)),
            ("", sparkline(self._metric[-12:])),
        ]
        grid.add_row(*(Text(label, style="dim") for label, _ in cells))
        grid.add_row(*(Text(value, style="bold" if label else "green") for label, value in cells))
        return grid


def members(status: Status) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    rows = [_member(member) for member in status.members]
    headings = ("who is here", "/s", "samples", "share", "stale")
    for number, heading in enumerate(headings):
        width = max(len(row[number]) for row in ((*headings, ""), *rows))
        right = "right" if number else "left"
        table.add_column(heading, justify=right, no_wrap=True, min_width=width)  # type: ignore[arg-type]
    table.add_column("state", overflow="ellipsis", max_width=44, no_wrap=True)
    for member, row in zip(status.members, rows, strict=True):
        # As text, not as markup: names and reasons are strangers' words.
        table.add_row(*map(Text, row), style="" if member.connected else "dim")
    return table


def _member(member: MemberStatus) -> tuple[str, ...]:
    mark = "●" if member.connected else "○"
    return (
        f"{mark} {member.position} {member.name[:20]}",
        f"{member.samples_per_s:,.0f}",
        f"{member.samples:,}",
        f"{100 * member.share:.1f} %",
        f"{member.mean_staleness:.1f}",
        member.state,
    )


def summary(console: Console, status: Status, folder: str) -> None:
    """What a person wants to know when it is over."""
    console.print()
    colour = "green" if status.state == "finished" else "yellow"
    console.print(f"[bold {colour}]{status.state.capitalize()}[/]: {escape(status.reason)}.")
    name = status.watched
    if status.test is not None:
        console.print(f"Test {name}: [bold]{spell(status, status.test)}[/]", highlight=False)
    if status.best is not None:
        console.print(f"Best validation {name}: {spell(status, status.best)}", highlight=False)
    speed = status.samples / max(status.elapsed_s, 1e-9)
    console.print(
        f"{status.updates:,} updates with {status.samples:,} samples in {status.elapsed_s:.1f} s "
        f"({speed:,.0f} samples/s), mean staleness {status.mean_staleness:.1f}.",
        highlight=False,
    )
    if status.ignored:
        late = sorted((m for m in status.members if m.ignored), key=lambda m: -m.ignored)
        whose = ", ".join(f"{m.name} {m.ignored:,}" for m in late[:3])
        console.print(
            f"{status.ignored:,} updates came too late to be used ({escape(whose)}).",
            highlight=False,
        )
    if status.notice:
        console.print(f"[yellow]{escape(status.notice)}[/]", highlight=False)
    console.print(members(status))
    console.print(f"Model, metrics and report: [bold]{folder}[/]", soft_wrap=True)


def plain(status: Status) -> str:
    """One line for a log."""
    here = sum(member.connected for member in status.members)
    loss = "–" if status.train_loss is None else f"{status.train_loss:.4f}"
    return (
        f"{status.elapsed_s:6.1f} s  {status.phase}  epoch {status.epochs_done:.2f}/{status.epochs}"
        f"  {status.samples_per_s:,.0f} samples/s  {status.updates_per_s:,.0f} updates/s"
        f"  staleness {status.mean_staleness:.1f}  loss {loss}"
        f"  {status.metric or 'validation'} {spell(status, status.validation)}  {here} here"
        f"{_waiting(status)}"
    )


def _waiting(status: Status) -> str:
    """Before anything is learned: what for."""
    states = [m.state for m in status.members if m.state.startswith("waiting: ")]
    return f"  {states[0]}" if states and status.updates == 0 else ""


def sparkline(values: list[float]) -> str:
    if len(values) < 2:
        return ""
    low, span = min(values), (max(values) - min(values)) or 1.0
    return "".join(SPARKS[min(7, int(8 * (v - low) / span))] for v in values)
