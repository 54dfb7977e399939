"""Hours: while they last we work; when they end we leave our job and wait at the matchmaker."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable

from crowdgrad.domain.matching import MINUTES_A_DAY, Hours

LOOK_S = 15.0
"""How often the clock is looked at: somebody may set it, or wake the machine hours later."""
OVER = "your hours are over"
FAREWELL = "Your hours are over: left politely."

_BEGIN = re.compile(r"(waiting: your hours begin at )([0-2][0-9]):([0-5][0-9]) UTC")


def in_own_time(reason: str, offset_s: float) -> str:
    """Why we wait, as a matchmaker says it: where it names our hours, by our owner's clock.

    `offset_s`: how far that is ahead of UTC.
    """
    found = _BEGIN.fullmatch(reason)
    if found is None:
        return reason
    utc = 60 * int(found[2]) + int(found[3])
    minute = (utc + round(offset_s / 60)) % MINUTES_A_DAY
    return f"{found[1]}{minute // 60:02}:{minute % 60:02}"


class Resting:
    """Whether the job at hand was left because the hours are over."""

    def __init__(self, hours: Callable[[], Hours | None], wall: Callable[[], float]) -> None:
        """`hours`: those that count by now; None: any. `wall`: seconds since 1970."""
        self._hours = hours
        self._wall = wall
        self.over = False

    @contextlib.asynccontextmanager
    async def guard(self, rest: Callable[[], None]) -> AsyncIterator[None]:
        """Call `rest` when the hours end meanwhile."""
        self.over = False
        watching = asyncio.create_task(self._watch(rest))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, rest: Callable[[], None]) -> None:
        # The matchmaker's clock, which sent us, may be a little ahead of ours: begin when we say.
        begun = False
        while self._lasts() or not begun:
            begun = begun or self._lasts()
            await asyncio.sleep(LOOK_S)
        self.over = True
        rest()

    def _lasts(self) -> bool:
        hours = self._hours()
        return hours is None or hours.include(self._wall())
