"""What is measured while a job runs: rates of the last seconds, and where a member's time goes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from crowdgrad.domain.work import UnitId

WINDOW_S = 5.0
LEAST_S = 0.5
"""A rate is never taken over less."""
MAX_HELD = 64
"""Units of one member whose beginning is remembered."""


class Meter:
    """A rate over the last few seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._events: deque[tuple[float, float]] = deque()
        self._sum = 0.0
        self._first: float | None = None

    def add(self, now: float, amount: float) -> None:
        if self._first is None:
            self._first = now
        if self._events and now - self._events[-1][0] < 0.05:  # a few hundred entries at most
            at, held = self._events[-1]
            self._events[-1] = (at, held + amount)
        else:
            self._events.append((now, amount))
            self._forget(now)
        self._sum += amount

    def rate(self, now: float) -> float:
        if not self._events:
            return 0.0
        self._forget(now)
        if self._first is None or not self._events:
            return 0.0
        return self._sum / max(min(self._window_s, now - self._first), LEAST_S)

    def _forget(self, now: float) -> None:
        while self._events and self._events[0][0] < now - self._window_s:
            self._sum -= self._events.popleft()[1]


class Growth:
    """How fast a total has grown over the last few seconds, known only when somebody looks."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, float]] = deque()

    def rate(self, now: float, total: float) -> float:
        if not self._seen or now - self._seen[-1][0] >= 0.05:
            self._seen.append((now, total))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._window_s:
            self._seen.popleft()
        then, before = self._seen[0]
        return max(0.0, total - before) / max(now - then, LEAST_S)


@dataclass(slots=True)
class Sums:
    """What all members come to, kept up as it happens: nobody has to ask thousands of them."""

    bytes_received: int = 0
    bytes_sent: int = 0
    compute_s: float = 0.0
    work_s: float = 0.0
    wait_s: float = 0.0
    waiting: int = 0
    """How many wait now."""
    _waiting_since: float = 0.0
    """The moments since when, added up."""

    @property
    def exchange_s(self) -> float:
        return max(0.0, self.work_s - self.compute_s)

    def waited_s(self, now: float) -> float:
        """Also what those who wait are waiting now."""
        return self.wait_s + max(0.0, self.waiting * now - self._waiting_since)

    def begin_waiting(self, since: float) -> None:
        self.waiting += 1
        self._waiting_since += since

    def end_waiting(self, since: float) -> None:
        self.waiting -= 1
        # Rounding must not outlive those it came from.
        self._waiting_since = self._waiting_since - since if self.waiting else 0.0

    def add(self, times: Times) -> None:
        """Of somebody who is not here."""
        self.compute_s += times.compute_s
        self.work_s += times.work_s
        self.wait_s += times.wait_s

    def remove(self, times: Times) -> None:
        self.compute_s -= times.compute_s
        self.work_s -= times.work_s
        self.wait_s -= times.wait_s


@dataclass(slots=True)
class Times:
    """Where a member's time goes while it is here.

    It waits while it has no unit: from joining, or from being told to wait, to its next one. All
    else it is at work, and by its own account it computes for part of that; the rest is exchange:
    on the way, in queues, or lost. Units that overlap are counted once, so a member whose transfers
    hide behind its arithmetic is shown as computing all the time.
    """

    compute_s: float = 0.0
    work_s: float = 0.0
    wait_s: float = 0.0
    sums: Sums = field(default_factory=Sums, repr=False, compare=False)
    """Of all members: what is counted here is counted there."""
    _held: dict[UnitId, float] = field(default_factory=dict)
    _since: float | None = None
    """Until when all is counted; None while it is not here."""

    @property
    def exchange_s(self) -> float:
        return self.work_s - self.compute_s

    def come(self, now: float) -> None:
        self._stop_waiting()
        self._held.clear()
        self._since = now
        self.sums.begin_waiting(now)

    def go(self, now: float) -> None:
        self._count(now)
        self._held.clear()
        self._since = None

    def begin(self, now: float, unit: UnitId) -> None:
        """It was given a unit."""
        self._count(now)
        self._held[unit] = now
        if len(self._held) > MAX_HELD:
            del self._held[next(iter(self._held))]

    def end(self, now: float, unit: UnitId, compute_s: float = 0.0) -> None:
        """It has answered for a unit, and says how long it computed."""
        self._count(now)
        begun = self._held.pop(unit, None)
        if begun is not None:  # never more than we waited, however many units are under way
            claimed = min(compute_s, now - begun)
            before = self.compute_s
            self.compute_s = min(before + claimed, self.work_s)
            self.sums.compute_s += self.compute_s - before
        self._wait_from_here()

    def idle(self, now: float) -> None:
        """It was told to wait and has nothing in hand, whatever became of the units it had."""
        self._count(now)
        self._held.clear()
        self._wait_from_here()

    def waited_s(self, now: float) -> float:
        """Also what it is waiting now."""
        if self._since is None or self._held:
            return self.wait_s
        return self.wait_s + max(0.0, now - self._since)

    def _count(self, now: float) -> None:
        """All until now; afterwards nobody counts it as waiting."""
        if self._since is None:
            return
        passed = max(0.0, now - self._since)
        if self._held:
            self.work_s += passed
            self.sums.work_s += passed
        else:
            self.sums.end_waiting(self._since)
            self.wait_s += passed
            self.sums.wait_s += passed
        self._since = now

    def _stop_waiting(self) -> None:
        if self._since is not None and not self._held:
            self.sums.end_waiting(self._since)

    def _wait_from_here(self) -> None:
        if self._since is not None and not self._held:
            self.sums.begin_waiting(self._since)
