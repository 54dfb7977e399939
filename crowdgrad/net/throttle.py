"""A token bucket: how much may pass over all of a volunteer's connections together.

Time is an argument. The balance grows by the rate, up to a burst, and falls by what passes. It may
fall below nothing, since what was sent was sent; then everybody waits until it is not. So over any
stretch of t seconds no more than rate * t, a burst and one part get through, and whoever was idle
has saved up a burst and no more.
"""

from __future__ import annotations

import math

BURST_S = 0.15
"""How many seconds' worth may be saved up: enough to make good a late timer, and with a part still
less than 5 % of five seconds."""
PART_S = 0.05
LEAST_PART_BYTES = 8 << 10
"""Half a record of TLS."""
MEGABIT_BYTES = 1e6 / 8
_NEARLY_NOTHING = 0.5
"""Of a byte. What is owed after a wait that was exact but for rounding."""


class Throttle:
    def __init__(self, bytes_per_s: float | None, *, burst_s: float = BURST_S) -> None:
        """`bytes_per_s`: None: no limit; 0: nothing moves."""
        self._rate = _checked(bytes_per_s)
        self._burst_s = burst_s
        self._balance = self._burst
        self._at: float | None = None

    @property
    def bytes_per_s(self) -> float | None:
        return self._rate

    def take(self, now: float, count: int) -> float:
        """So much has passed; how many seconds from now nothing more is owed."""
        if self._rate is None:
            return 0.0
        self._settle(now)
        self._balance -= count
        return self._wait_s()

    def wait_s(self, now: float) -> float:
        """How many seconds to wait before the next part; infinite where nothing moves."""
        if self._rate is None:
            return 0.0
        self._settle(now)
        return self._wait_s()

    def part(self, most: int) -> int:
        """How much is passed at once, where it would be `most` without a throttle."""
        if self._rate is None:
            return most
        return min(most, max(LEAST_PART_BYTES, int(self._rate * PART_S)))

    def set_rate(self, now: float, bytes_per_s: float | None) -> None:
        """From now on. What is owed stays owed; of what is saved up no more than the new burst."""
        unlimited = self._rate is None
        if not unlimited:
            self._settle(now)
        self._rate, self._at = _checked(bytes_per_s), now
        self._balance = min(0.0 if unlimited else self._balance, self._burst)

    @property
    def _burst(self) -> float:
        return (self._rate or 0.0) * self._burst_s

    def _settle(self, now: float) -> None:
        if self._at is not None and now > self._at:
            earned = (self._rate or 0.0) * (now - self._at)
            self._balance = min(self._burst, self._balance + earned)
        if self._at is None or now > self._at:
            self._at = now

    def _wait_s(self) -> float:
        if not self._rate:
            return math.inf
        return -self._balance / self._rate if self._balance < -_NEARLY_NOTHING else 0.0


def of_mbps(mbps: float) -> Throttle | None:
    """The throttle of a setting in Mbit/s, where 0 is no cap."""
    return Throttle(mbps * MEGABIT_BYTES) if mbps else None


def changed(throttle: Throttle | None, mbps: float, now: float) -> Throttle | None:
    """The one for another setting: the same, where there is one, so that what it holds back by now
    is held back otherwise. Where there was no cap, the first counts from the next connection on."""
    if throttle is None:
        return of_mbps(mbps)
    throttle.set_rate(now, mbps * MEGABIT_BYTES if mbps else None)
    return throttle


def _checked(bytes_per_s: float | None) -> float | None:
    if bytes_per_s is not None and not 0 <= bytes_per_s < math.inf:
        raise ValueError(f"a rate of {bytes_per_s} bytes a second")
    return bytes_per_s
