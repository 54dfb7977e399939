"""The live view of a job in a terminal, from the host's status: calm, one screen, no scrolling."""

from __future__ import annotations

import io

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from crowdgrad.cli.spreading import (
    Lingering,
    host_sent,
    in_words_at_the_end,
    per_cent,
    spreading_view,
)
from crowdgrad.host.members.departures import STAYED, in_words
from crowdgrad.host.telling.status import MemberStatus, Status, score, spell
from crowdgrad.planner.label_noise import noise_in_words

SHOWN_DEPARTURES = 3
LIVE_ROWS, SUMMARY_ROWS = 12, 40
"""Members shown while it runs, and at the end."""
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
        self._spreading = Lingering()

    def render(self, status: Status) -> RenderableType:
        self._remember(status)
        return Panel(
            Group(
                self._bar(status),
                Text(),
                self._numbers(status),
                Text(beside(status), style="dim", no_wrap=True, overflow="ellipsis"),
                Text(),
                *(part for words in _said(status) for part in (words, Text())),
                *self._data(status),
                members(status, LIVE_ROWS),
                *_departures(status),
            ),
            title=f"[bold]{escape(status.title)}[/] · {status.recipe}",
            subtitle=_phase(status),
            padding=(1, 2),
        )

    def _data(self, status: Status) -> list[RenderableType]:
        spreading = status.spreading
        if spreading is None or not self._spreading.shows(spreading, status.elapsed_s):
            return []
        return [*spreading_view(spreading), Text()]

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


def _phase(status: Status) -> str:
    paused = status.paused and status.phase == "training"
    return "[bold yellow]paused[/]" if paused else PHASES.get(status.phase, status.phase)


def _said(status: Status) -> list[Text]:
    """What must not be overlooked."""
    trouble = status.checkpoint.trouble if status.checkpoint is not None else ""
    said = [Text(trouble, style="bold red")] if trouble else []
    return said + ([Text(status.notice, style="yellow")] if status.notice else [])


def beside(status: Status) -> str:
    """What matters less than the numbers: the network, checkpoints, who came and went."""
    parts = [f"↓ {_amount(status.bytes_received_per_s)}B/s ↑ {_amount(status.bytes_sent_per_s)}B/s"]
    if status.checkpoint is not None:
        age_s = status.checkpoint.age_s
        parts.append("not saved yet" if age_s is None else f"saved {_age(age_s)} ago")
    parts.append(f"{status.arrivals} came, {sum(status.departures_by_kind.values())} went")
    if status.resumed:
        parts.append(f"{status.resumed} restarts")
    if status.growing:
        parts.append(f"{status.train_records:,} records, grew {status.growths}×")
    return " · ".join(parts)


def _departures(status: Status) -> list[Text]:
    """The last who went, and why."""
    shown = status.departures[-SHOWN_DEPARTURES:]
    lines = [
        Text(f"{gone.name[:20]} went after {_age(gone.stayed_s)}: {gone.reason}", style="dim")
        for gone in shown
    ]  # fmt: skip
    return [Text(), *lines] if lines else []


def _age(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _amount(value: float) -> str:
    """In three digits, with what comes before a unit."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 0.9995 * 10**power:
            return f"{value / 10**power:.3g} {letter}"
    return f"{value:.0f} "


def members(status: Status, most: int) -> Table:
    """Of a large crowd only those who gave the most, and who is here before who has gone."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    first = sorted(status.members, key=lambda m: (not m.connected, -m.samples, m.position))[:most]
    shown = sorted(first, key=lambda m: m.position)
    rows = [_member(member, _speed(status, member)) for member in shown]
    rest = [_others(status, shown)] if len(shown) < status.took_part else []
    headings = ("who is here", "/s", "samples", "share", "stale")
    for number, heading in enumerate(headings):
        width = max(len(row[number]) for row in ((*headings, ""), *rows, *rest))
        right = "right" if number else "left"
        table.add_column(heading, justify=right, no_wrap=True, min_width=width)  # type: ignore[arg-type]
    table.add_column("state", max_width=44)  # what does not fit is taken from here
    for member, (*numbers, state) in zip(shown, rows, strict=True):
        # As text, not as markup: names and reasons are strangers' words.
        cells = [*map(Text, numbers), Text(state, no_wrap=True, overflow="ellipsis")]
        table.add_row(*cells, style="" if _counts_as_here(member) else "dim")
    for row in rest:
        table.add_row(*row, style="dim")
    return table


def _others(status: Status, shown: list[MemberStatus]) -> tuple[str, ...]:
    """All who are not shown, in one row."""
    here = status.here - sum(member.connected for member in shown)
    named = sum(m.samples for m in status.members) - sum(m.samples for m in shown)
    share = sum(m.share for m in status.members) - sum(m.share for m in shown)
    return (
        f"and {status.took_part - len(shown)} more, {here} here",
        "",
        _amount(status.others.samples + named).rstrip(),
        f"{100 * max(0.0, status.others.share + share):.1f} %",
        "",
    )


def _counts_as_here(member: MemberStatus) -> bool:
    return member.connected or member.state == STAYED


def _speed(status: Status, member: MemberStatus) -> float:
    """In samples a second: now, or when all is over, for as long as the member was here."""
    if status.phase != "over":
        return member.samples_per_s
    times = member.times
    here_s = times.compute_s + times.exchange_s + times.wait_s
    return member.samples / here_s if here_s > 0 else 0.0


def _member(member: MemberStatus, speed: float) -> tuple[str, ...]:
    mark = "●" if _counts_as_here(member) else "○"
    return (
        f"{mark} {member.position} {member.name[:20]}",
        _amount(speed).rstrip(),
        _amount(member.samples).rstrip(),
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
    if status.label_noise is not None:
        console.print(escape(noise_in_words(status.label_noise)), highlight=False)
    speed = status.samples / max(status.elapsed_s, 1e-9)
    console.print(
        f"{status.updates:,} updates with {status.samples:,} samples in {status.elapsed_s:.1f} s "
        f"({speed:,.0f} samples/s), mean staleness {status.mean_staleness:.1f}.",
        highlight=False,
    )
    console.print(_traffic(status), highlight=False)
    if status.spreading is not None:
        console.print(in_words_at_the_end(status.spreading), highlight=False)
    if status.refused:
        console.print(f"Refused updates: {_counted(status.refused_by_reason)}.", highlight=False)
    if status.ignored:
        late = sorted((m for m in status.members if m.ignored), key=lambda m: -m.ignored)
        whose = ", ".join(f"{m.name} {m.ignored:,}" for m in late[:3])
        console.print(
            f"{status.ignored:,} updates came too late to be used ({escape(whose)}).",
            highlight=False,
        )
    if status.notice:
        console.print(f"[yellow]{escape(status.notice)}[/]", highlight=False)
    console.print(members(status, SUMMARY_ROWS))
    console.print(f"Model, metrics and report: [bold]{folder}[/]", soft_wrap=True)


def _traffic(status: Status) -> str:
    gone = in_words(status.departures_by_kind)
    went = f", {sum(status.departures_by_kind.values())} went ({gone})" if gone else ""
    often = "once" if status.resumed == 1 else f"{status.resumed} times"
    again = f" The host was started again {often}." if status.resumed else ""
    return (
        f"{_amount(status.bytes_received)}B received, {_amount(status.bytes_sent)}B sent; "
        f"{status.arrivals} came{went}.{again}{_growth(status)}"
    )


def _growth(status: Status) -> str:
    if not status.growing:
        return ""
    often = {0: "did not grow", 1: "grew once"}.get(status.growths, f"grew {status.growths} times")
    return f" The data {often}, to {status.train_records:,} training records."


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{why.replace('_', ' ')} {count:,}" for why, count in counts.items())


def qr_code(link: str) -> Text:
    """A link for a telephone's camera: two rows of its picture in a row of characters."""
    import segno

    drawn = io.StringIO()
    segno.make(link, micro=False).terminal(drawn, border=2, compact=True)
    # Blocks are the light parts: in colours of its own it reads the same on any background.
    return Text(drawn.getvalue().rstrip("\n"), style="bright_white on black", no_wrap=True)


def plain(status: Status) -> str:
    """One line for a log."""
    loss = "–" if status.train_loss is None else f"{status.train_loss:.4f}"
    return (
        f"{status.elapsed_s:6.1f} s  {status.phase}  epoch {status.epochs_done:.2f}/{status.epochs}"
        f"  {status.samples_per_s:,.0f} samples/s  {status.updates_per_s:,.0f} updates/s"
        f"  staleness {status.mean_staleness:.1f}  loss {loss}"
        f"  {status.metric or 'validation'} {spell(status, status.validation)}  {status.here} here"
        f"{'  paused' if status.paused else ''}{_data(status)}{_spread(status)}"
        f"{_waiting(status)}{_trouble(status)}"
    )


def _data(status: Status) -> str:
    return f"  {status.train_records:,} records" if status.growing else ""


def _spread(status: Status) -> str:
    spreading = status.spreading
    if spreading is None or spreading.complete == spreading.members:
        return ""
    return f"  data {per_cent(spreading.progress)}, {host_sent(spreading)}"


def _trouble(status: Status) -> str:
    checkpoint = status.checkpoint
    return f"  {checkpoint.trouble}" if checkpoint is not None and checkpoint.trouble else ""


def _waiting(status: Status) -> str:
    """Before anything is learned: what for."""
    states = [m.state for m in status.members if m.state.startswith("waiting: ")]
    return f"  {states[0]}" if states and status.updates == 0 else ""


def sparkline(values: list[float]) -> str:
    if len(values) < 2:
        return ""
    low, span = min(values), (max(values) - min(values)) or 1.0
    return "".join(SPARKS[min(7, int(8 * (v - low) / span))] for v in values)
