"""How often people may come to a matchmaker: the rates, and the buckets that keep them."""

from __future__ import annotations

from dataclasses import dataclass

from crowdgrad.planner.metering import Buckets

MOST = 100_000
"""Keys or addresses remembered at a time, of those who came lately."""
ALL = ""
"""The name of a bucket that everybody takes from."""


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
        return _buckets(self.address_joins_per_s, 10.0)

    def in_all(self) -> Buckets:
        return _buckets(self.joins_per_s, 2.0, most=1)

    def by_address(self) -> Buckets:
        return _buckets(self.address_joins_per_s, 10.0)

    def by_key(self) -> Buckets:
        return _buckets(self.key_joins_per_s, 20.0)

    def reaches_by_key(self) -> Buckets:
        return _buckets(self.key_reaches_per_s, 60.0)

    def reaches_by_address(self) -> Buckets:
        return _buckets(self.address_reaches_per_s, 60.0)


def _buckets(per_s: float, burst_s: float, *, most: int = MOST) -> Buckets:
    """At once as often as in `burst_s` seconds."""
    return Buckets(per_s, per_s * burst_s, most=most)
