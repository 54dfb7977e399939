"""How often somebody may come: buckets that fill steadily and that every visit takes from.

A bucket is one number, the moment at which it will be full again (Turner's virtual scheduling, also
called GCRA). One that is full is the same as none, so a table forgets it; a table never has more
than `most` entries. Pure: `now` is an argument, on a clock that does not jump.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST = 100_000
"""Keys or addresses remembered at a time, of those who came lately."""
ALL = ""
"""The name of a bucket that everybody takes from."""


class Buckets:
    """One bucket for each name, each of the same size."""

    def __init__(self, per_s: float, burst_s: float, *, most: int = MOST) -> None:
        """A name may come `per_s` times a second, and as often at once as in `burst_s` seconds."""
        if not (per_s > 0 and burst_s >= 0 and most >= 1):
            raise ValueError(f"{per_s} a second, in bursts of {burst_s} s, of {most}")
        self._interval_s = 1.0 / per_s
        self._burst_s = max(burst_s, self._interval_s)
        self._most = most
        self._full_at: dict[str, float] = {}
        """The one that came last is last."""

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, who: str, now: float) -> float:
        """0: granted. Else how many seconds to wait."""
        full_at = self._full_at.pop(who, now)
        full_at = min(max(full_at, now), now + self._burst_s)  # also if the clock has jumped
        wait_s = full_at + self._interval_s - (now + self._burst_s)
        granted = wait_s <= 1e-9
        self._full_at[who] = full_at + self._interval_s if granted else full_at
        self._tidy(now)
        return 0.0 if granted else wait_s

    def _tidy(self, now: float) -> None:
        """Who came longest ago goes first: one that is full, always; others, for want of room."""
        while self._full_at:
            oldest = next(iter(self._full_at))
            if self._full_at[oldest] > now and len(self._full_at) <= self._most:
                return
            del self._full_at[oldest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often people may come, a second; for a moment more."""

    joins_per_s: float = 800.0
    """Everybody together."""
    address_joins_per_s: float = 20.0
    """From one address, or one IPv6 network: a school behind one address counts as one."""
    key_joins_per_s: float = 5.0
    """With one key: joins, and other signed requests."""
    key_reaches_per_s: float = 0.1
    """How often one key may ask to be dialled: as a node starts, and when something changes."""
    address_reaches_per_s: float = 0.5
    """… and one address: it is dialled on, whoever is behind it."""

    def __post_init__(self) -> None:
        rates = (self.joins_per_s, self.address_joins_per_s, self.key_joins_per_s,
                 self.key_reaches_per_s, self.address_reaches_per_s)  # fmt: skip
        if not all(0 < rate < 1e9 for rate in rates):
            raise ValueError("rates are above 0")

    def questions(self) -> Buckets:
        """By HTTP, from one address: as often as joins."""
        return Buckets(self.address_joins_per_s, 10.0)

    def in_all(self) -> Buckets:
        return Buckets(self.joins_per_s, 2.0, most=1)

    def by_address(self) -> Buckets:
        return Buckets(self.address_joins_per_s, 10.0)

    def by_key(self) -> Buckets:
        return Buckets(self.key_joins_per_s, 20.0)

    def reaches_by_key(self) -> Buckets:
        return Buckets(self.key_reaches_per_s, 60.0)

    def reaches_by_address(self) -> Buckets:
        return Buckets(self.address_reaches_per_s, 60.0)
