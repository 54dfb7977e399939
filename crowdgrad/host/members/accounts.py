"""One member's account with a job: what it gave, what it has in hand, and how it fares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.work import Unit, UnitId, Version
from crowdgrad.host.members.departures import HOST_STOPPED
from crowdgrad.host.members.meters import Meter, Sums, Times

MAX_FAILURES_IN_A_ROW = 5
PAUSE_S = 30.0
"""How long somebody whose units all fail is left in peace."""
LEASE_FACTOR = 5.0
"""A lease is at least so many times as long as its holder usually takes."""
MAX_REMEMBERED = 64
"""Units of one member whose beginning is remembered."""
Counts = tuple[tuple[str, int], ...]
"""How often for which reason, as checkpoints keep it."""


@dataclass(slots=True)
class Contribution:
    """One member's account."""

    volunteer: Volunteer
    position: int
    own: bool
    connected: bool = True
    state: str = "joined"
    """What it is doing or why it went, in plain words."""
    units: int = 0
    samples: int = 0
    credit: float = 0.0
    refused: dict[str, int] = field(default_factory=dict)
    """Updates that could not be used, by reason."""
    staleness_sum: int = 0
    staleness_max: int = 0
    speed: Meter = field(default_factory=Meter)
    leased_at: dict[UnitId, float] = field(default_factory=dict)
    unit_s: float = 0.0
    """How long a unit usually takes it, from lease to update."""
    batch_s: float | None = None
    """How long it computes a batch, by its own account but never more than we waited; None: not
    measured yet."""
    ignored_for: dict[str, int] = field(default_factory=dict)
    """Updates that came too late to be used, by nobody's fault, by reason."""
    unapplied: int = 0
    """Units accepted that are not in the parameters yet."""
    fetches: dict[UnitId, int] = field(default_factory=dict)
    """How often it may still fetch in the middle of each unit it has not answered for."""
    asked: bool = False
    """It has what it needs and has asked for a unit since it came."""
    near: bool = False
    """It runs on the host's own machine."""
    chains: dict[UnitId, tuple[Version, int]] = field(default_factory=dict)
    """Units just accepted whose chain goes on: from which base, and at which link."""
    failures: int = 0
    failures_in_a_row: int = 0
    failed_units: set[UnitId] = field(default_factory=set)
    paused_until: float = 0.0
    bytes_received: int = 0
    """From it, over all its connections."""
    bytes_sent: int = 0
    joined_at: float = 0.0
    times: Times = field(default_factory=Times)
    kept: Credited | None = None
    """What a checkpoint kept of it when it was not here any more; whoever changes anything of
    somebody who has gone forgets it."""

    @property
    def ignored(self) -> int:
        return sum(self.ignored_for.values())

    def carried(self, *, received: int, sent: int) -> None:
        """So many bytes more have come from it and gone to it."""
        self.bytes_received += received
        self.bytes_sent += sent
        self.times.sums.bytes_received += received
        self.times.sums.bytes_sent += sent
        self.kept = None

    def lease(self, now: float, unit: UnitId, fetches: int) -> None:
        """It was given a unit, in the middle of which it may fetch so often."""
        self.leased_at[unit] = now
        self.times.begin(now, unit)
        while len(self.leased_at) > MAX_REMEMBERED:
            del self.leased_at[next(iter(self.leased_at))]
        self.fetches[unit] = fetches
        while len(self.fetches) > MAX_REMEMBERED:
            del self.fetches[next(iter(self.fetches))]

    def measure(self, now: float, unit: Unit, compute_s: float) -> None:
        """How long it took, also where the update cannot be used: a slow member is slow."""
        leased_at = self.leased_at.pop(unit.id, None)
        if leased_at is None:
            return  # it was away since
        took_s = now - leased_at
        self.unit_s = _smooth(self.unit_s or None, took_s)
        self.batch_s = _smooth(self.batch_s, min(compute_s, took_s) / unit.batches)

    def lease_s(self, least_s: float) -> float:
        return max(least_s, LEASE_FACTOR * self.unit_s)

    @property
    def gave_nothing(self) -> bool:
        return self.units == 0 and self.unapplied == 0

    def credited(self) -> Credited:
        """For a checkpoint. Of those who have gone it is mostly what it was in the last one: a
        crowd that came and went over weeks costs next to nothing."""
        if self.connected:
            return Credited.of(self)
        if self.kept is None or self.kept.state != self.state:
            self.kept = Credited.of(self)
        return self.kept

    def failed(self, now: float) -> None:
        self.failures += 1
        self.failures_in_a_row += 1
        if self.failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            self.failures_in_a_row = 0
            self.paused_until = now + PAUSE_S


class Credited(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint keeps of an account; made of everybody who is here at once, so quickly."""

    volunteer: Volunteer
    position: int
    own: bool
    units: int
    samples: int
    credit: float
    connected: bool = False
    state: str = ""
    refused: Counts = ()
    ignored: Counts = ()
    staleness_sum: int = 0
    staleness_max: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    compute_s: float = 0.0
    work_s: float = 0.0
    wait_s: float = 0.0

    @classmethod
    def of(cls, account: Contribution) -> Credited:
        return cls(
            volunteer=account.volunteer,
            position=account.position,
            own=account.own,
            units=account.units,
            samples=account.samples,
            credit=account.credit,
            connected=account.connected,
            state=account.state,
            refused=counted(account.refused),
            ignored=counted(account.ignored_for),
            staleness_sum=account.staleness_sum,
            staleness_max=account.staleness_max,
            bytes_received=account.bytes_received,
            bytes_sent=account.bytes_sent,
            compute_s=account.times.compute_s,
            work_s=account.times.work_s,
            wait_s=account.times.wait_s,
        )

    def account(self, sums: Sums) -> Contribution:
        """As it was, but not here. Its times are added to `sums`."""
        times = Times(compute_s=self.compute_s, work_s=self.work_s, wait_s=self.wait_s, sums=sums)
        sums.add(times)
        return Contribution(
            self.volunteer,
            self.position,
            self.own,
            connected=False,
            state=HOST_STOPPED if self.connected else self.state,
            units=self.units,
            samples=self.samples,
            credit=self.credit,
            refused=dict(self.refused),
            ignored_for=dict(self.ignored),
            staleness_sum=self.staleness_sum,
            staleness_max=self.staleness_max,
            bytes_received=self.bytes_received,
            bytes_sent=self.bytes_sent,
            times=times,
            kept=None if self.connected else self,
        )


def counted(counts: Mapping[str, int]) -> Counts:
    if not counts:  # as mostly
        return ()
    return tuple(sorted((why, count) for why, count in counts.items() if count))


def _smooth(before: float | None, now: float) -> float:
    return now if before is None else 0.8 * before + 0.2 * now
