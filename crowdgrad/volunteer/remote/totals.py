"""What this key has given in all its life here: by its own count, and the journal's of the time."""

from __future__ import annotations

from pathlib import Path

from crowdgrad.volunteer.journal import Journal, Reader
from crowdgrad.volunteer.remote.status import Totals
from crowdgrad.volunteer.tally import Tally


class Past:
    def __init__(self, home: Path, tally: Tally, journal: Journal, own: str) -> None:
        """`own`: this machine's key. What it computed for runs it hosts itself is no gift."""
        self._tally = tally
        self._journal = journal
        units = [one for one in Reader(home).all() if one.what == "units" and one.host != own]
        self._seconds = sum(_seconds(entry.data) for entry in units)
        """Of computing, before this process began."""

    def totals(self) -> Totals:
        """As of now."""
        rows = self._tally.all()
        return Totals(
            samples=sum(given.samples for given in rows),
            credit=sum(given.samples * given.work for given in rows),
            jobs=sum(given.samples > 0 for given in rows),
            seconds=self._seconds + self._journal.seconds,
        )


def _seconds(data: dict[str, str | int | float]) -> float:
    found = data.get("seconds", 0.0)
    return float(found) if isinstance(found, int | float) else 0.0
