"""How many uploads a link takes at once.

Few are best: whoever gets a chunk whole can pass it on, and eight that come at an eighth of the
speed could not. But one alone does not fill a link, probably because a connection that has rested
begins slowly again (TCP's slow start), and most have rested, since neighbours take turns. On
uplinks of 20 Mbit/s three at a time were best of those tried (`benchmarks/LOG.md`).

A receiver may also be slower than our link. So where all uploads under way take much longer than
the link's speed of late lets expect, another one is begun. That speed is the median of a few, each
from the end of one upload to the end of the next: the first chunks only fill the system's buffers,
and seem to leave in no time.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass

MOST = 8
"""At once, however slow the receivers are: so many chunks lie in memory."""
USUAL = 3
"""At once, whoever receives them."""
SLOW = 2.0
"""So many times as long as expected is slow."""
LEAST_S = 0.02
REMEMBERED = 9
"""Speeds of which the median counts."""


@dataclass(frozen=True, slots=True)
class _Active:
    began: float
    bytes: int


class Lanes:
    def __init__(self) -> None:
        self._active: dict[int, _Active] = {}
        self._speeds: deque[float] = deque(maxlen=REMEMBERED)
        """Bytes a second."""
        self._ended = -math.inf
        self._number = 0

    @property
    def active(self) -> int:
        return len(self._active)

    def begin(self, now: float, size: int) -> int:
        """A number for the upload."""
        self._number += 1
        self._active[self._number] = _Active(now, size)
        return self._number

    def end(self, now: float, number: int, *, sent: bool) -> None:
        upload = self._active.pop(number)
        if sent:
            since = max(upload.began, self._ended)
            self._speeds.append(upload.bytes / max(now - since, LEAST_S))
            self._ended = now

    def another(self, now: float) -> tuple[bool, float | None]:
        """Whether to begin one more now; if not, when to ask again at the latest."""
        if len(self._active) >= MOST:
            return False, None
        if len(self._active) < USUAL:
            return True, None
        if not self._speeds:
            return False, None
        patience = SLOW * len(self._active) / max(1.0, statistics.median(self._speeds))
        late = [
            upload.began + max(LEAST_S, patience * upload.bytes) for upload in self._active.values()
        ]
        if all(at <= now for at in late):
            return True, None
        return False, max(late)
