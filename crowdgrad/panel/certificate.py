"""What this machine has given, as a picture to keep: from its journal, under its key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from crowdgrad.volunteer.journal import Entry, Reader, for_others


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """All that the journal remembers."""

    samples: int
    seconds: float
    units: int
    jobs: int
    """Of which any work was used."""
    hosts: int
    since: float | None
    """When the first unit was done, seconds since 1970."""


def given(entries: Sequence[Entry], own: str) -> Given:
    """`own`: this machine's key."""
    entries = for_others(entries, own)
    units = [entry for entry in entries if entry.what == "units"]
    return Given(
        samples=sum(int(entry.number("samples")) for entry in units),
        seconds=sum(entry.number("seconds") for entry in units),
        units=sum(int(entry.number("units")) for entry in units),
        # Before it said which job, a host counted once.
        jobs=len({(entry.host, entry.data.get("job", "")) for entry in units}),
        hosts=len({entry.host for entry in units if entry.host}),
        since=units[0].time if units else None,
    )


class Gifts:
    """By the journal, which may be long: it is read again only when it has changed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stamp: tuple[object, ...] = ()
        self._found = (given((), ""), 0)

    def look(self, own: str) -> tuple[Given, int]:
        """With how many lines there are. `own`: this machine's key."""
        reader = Reader(self._home)
        stamp = (own, *reader.stamp())
        if stamp != self._stamp:
            entries = reader.all()
            self._found = given(entries, own), len(entries)
            self._stamp = stamp
        return self._found


def svg(name: str, key: str, all_of_it: Given, now: float) -> str:
    """A document of its own: no scripts, no fonts, nothing loaded."""
    date = time.strftime("%Y-%m-%d", time.localtime(now))
    since = time.strftime("%Y-%m-%d", time.localtime(all_of_it.since or now))
    rows = (
        (f"{all_of_it.samples:,}", "samples"),
        (_spell(all_of_it.seconds), "of computing"),
        (f"{all_of_it.jobs:,}", "job" if all_of_it.jobs == 1 else "jobs"),
    )
    columns = "".join(
        f'<text x="{150 + 250 * n}" y="270" font-size="44" font-weight="700" '
        f'text-anchor="middle">{escape(value)}</text>'
        f'<text x="{150 + 250 * n}" y="305" font-size="20" fill="#555" '
        f'text-anchor="middle">{what}</text>'
        for n, (value, what) in enumerate(rows)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="800" height="420" '
        'viewBox="0 0 800 420" font-family="Georgia, serif" fill="#1a1a1a">'
        '<rect width="800" height="420" rx="16" fill="#fffdf7"/>'
        '<rect x="14" y="14" width="772" height="392" rx="10" fill="none" stroke="#b08d3c" '
        'stroke-width="3"/>'
        '<text x="400" y="90" font-size="22" fill="#7a6430" text-anchor="middle">'
        "Lent to models of others, with crowdgrad</text>"
        f'<text x="400" y="155" font-size="48" text-anchor="middle">{escape(name[:40])}</text>'
        f'<text x="400" y="190" font-size="16" fill="#555" text-anchor="middle">'
        f"from {since} to {date}</text>{columns}"
        f'<text x="400" y="375" font-size="14" fill="#777" font-family="monospace" '
        f'text-anchor="middle">key {escape(key)} · counted by this machine itself</text></svg>'
    )


def _spell(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:,.0f} min" if seconds >= 60 else f"{seconds:,.0f} s"
