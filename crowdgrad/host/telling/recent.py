"""The last of what the host's log said, for whoever looks while it runs.

Lines are numbered, so that a reader asks for what came after the last it has. What is told is what
`logs/host.jsonl` keeps: cleaned, without secrets, from INFO on.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from dataclasses import dataclass

from crowdgrad.host.telling.logbook import clean

KEPT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    n: int
    """Its number, from 1 on."""
    at: float
    """Seconds since 1970."""
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    next: int
    """What to ask for next: `after` this number."""
    lines: list[LogLine]


class Recent(logging.Handler):
    """Written by any thread, read by the loop."""

    def __init__(self, kept: int = KEPT) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[LogLine] = deque(maxlen=kept)
        self._numbers = itertools.count(1)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = clean(record.getMessage())
        except Exception:  # a line that cannot be said costs that line
            return
        self._lines.append(
            LogLine(
                n=next(self._numbers), at=record.created, level=record.levelname.lower(), text=text
            )
        )

    def after(self, number: int) -> LogPart:
        """What was said after that line, as far as it is kept.

        All of it for who has heard more than there is: that was another life of the host.
        """
        with self.lock or contextlib.nullcontext():
            if not self._lines or self._lines[-1].n < number:
                number = 0
            lines = [line for line in self._lines if line.n > number]
        return LogPart(next=lines[-1].n if lines else number, lines=lines)
