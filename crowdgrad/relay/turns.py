"""Those who share a limit take turns: whoever has waited longest reads next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from crowdgrad.planner.metering import Meter

LEAST_PAUSE_S = 0.002
MOST_AT_ONCE = 64
"""Of those waiting, so many are let on in one turn of the loop."""

Again = Callable[[], None]


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop, self._clock = loop, clock
        self._lines: dict[Meter, deque[Again]] = {}
        self._timers: dict[Meter, asyncio.TimerHandle] = {}
        self._called: Meter | None = None
        """Whoever asks now has been called from this meter's line."""

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def room(self, meters: Sequence[Meter], again: Again) -> int:
        """How many bytes may pass. 0: none yet, `again` is called when it is worth asking again.
        Below 0: none today."""
        now = self._clock()
        room = 1 << 62
        for meter in meters:
            here = meter.room(now)
            if here <= 0 or (self._lines.get(meter) and meter is not self._called):
                if meter.left_today(now) <= 0:
                    return -1
                self._queue(meter, again)
                return 0
            room = min(room, here)
        return room

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._lines.clear()

    def _queue(self, meter: Meter, again: Again) -> None:
        self._lines.setdefault(meter, deque()).append(again)
        if meter not in self._timers:
            self._wait(meter)

    def _wait(self, meter: Meter) -> None:
        pause_s = max(LEAST_PAUSE_S, meter.wait_s(self._clock()))
        self._timers[meter] = self._loop.call_later(pause_s, self._call, meter)

    def _call(self, meter: Meter) -> None:
        del self._timers[meter]
        line = self._lines[meter]
        for _ in range(min(len(line), MOST_AT_ONCE)):
            if meter.room(self._clock()) <= 0:
                break
            again = line.popleft()
            self._called = meter
            try:
                again()
            finally:
                self._called = None
        if not line:
            del self._lines[meter]
        elif meter not in self._timers:
            self._wait(meter)
