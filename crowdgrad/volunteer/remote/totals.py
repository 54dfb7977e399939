"""What this key has given in all its life here: by its own count, and the journal's of the time."""

from __future__ import annotations

from pathlib import Path

from crowdgrad.volunteer.journal import Journal, Reader, for_others
from crowdgrad.volunteer.remote.status import Totals
from crowdgrad.volunteer.tally import Tally


class Past:
    def __init__(self, home: Path, tally: Tally, journal: Journal, own: str) -> None:
        """`own`: this machine's key."""
        self._tally = tally
        self._journal = journal
        units = [one for one in for_others(Reader(home).all(), own) if one.what == "units"]
        self._seconds = sum(entry.number("seconds") for entry in units)
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
