"""Who gave what, and how fast things go. Credit = samples in accepted updates × their work."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field

from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.work import Unit, UnitId, Version, VolunteerId

WINDOW_S = 5.0
STAYED = "stayed to the end"
MAX_FAILURES_IN_A_ROW = 5
PAUSE_S = 30.0
"""How long somebody whose units all fail is left in peace."""
LEASE_FACTOR = 5.0
"""A lease is at least so many times as long as its holder usually takes."""
MAX_REMEMBERED = 64
"""Units of one member whose beginning is remembered."""
MAX_STRANGERS = 200
"""Accounts kept of those who came, gave nothing and went."""


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
        self._sum += amount
        self._forget(now)

    def rate(self, now: float) -> float:
        self._forget(now)
        if self._first is None or not self._events:
            return 0.0
        return self._sum / max(min(self._window_s, now - self._first), 0.5)

    def _forget(self, now: float) -> None:
        while self._events and self._events[0][0] < now - self._window_s:
            self._sum -= self._events.popleft()[1]


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
    staleness_sum: int = 0
    speed: Meter = field(default_factory=Meter)
    leased_at: dict[UnitId, float] = field(default_factory=dict)
    unit_s: float = 0.0
    """How long a unit usually takes it, from lease to update."""
    batch_s: float | None = None
    """How long it computes a batch, by its own account but never more than we waited; None: not
    measured yet."""
    ignored: int = 0
    """Updates that came too late to be used, by nobody's fault."""
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

    def carried(self, *, received: int, sent: int) -> None:
        """So many bytes more have come from it and gone to it."""
        self.bytes_received += received
        self.bytes_sent += sent

    def lease(self, now: float, unit: UnitId, fetches: int) -> None:
        """It was given a unit, in the middle of which it may fetch so often."""
        self.leased_at[unit] = now
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

    def failed(self, now: float) -> None:
        self.failures += 1
        self.failures_in_a_row += 1
        if self.failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            self.failures_in_a_row = 0
            self.paused_until = now + PAUSE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Credited:
    """What a checkpoint keeps of an account."""

    volunteer: Volunteer
    position: int
    own: bool
    units: int
    samples: int
    credit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """What a checkpoint keeps of a ledger."""

    accounts: tuple[Credited, ...] = ()
    next_position: int = 1


class Ledger:
    def __init__(self, work_per_sample: float) -> None:
        self._work = work_per_sample
        self._accounts: dict[VolunteerId, Contribution] = {}
        self._strangers: deque[VolunteerId] = deque()
        self._next_position = 1
        self._here: list[Contribution] | None = None
        self.samples = Meter()
        self.updates = Meter()
        self.total_samples = 0
        self.total_updates = 0
        self.total_refused = 0
        self.total_ignored = 0

    def __getitem__(self, volunteer: VolunteerId) -> Contribution:
        return self._accounts[volunteer]

    def everyone(self) -> list[Contribution]:
        return sorted(self._accounts.values(), key=lambda account: account.position)

    def join(
        self, now: float, volunteer: Volunteer, *, own: bool, hint: int | None = None
    ) -> Contribution:
        """Position 0 is the host's own worker; a place, once given, stays its owner's.

        `hint`: the place the matchmaker gave, taken where it is free.
        """
        account = self._accounts.get(volunteer.id)
        if account is None:
            taken = {other.position for other in self._accounts.values()}
            position = hint if hint and hint not in taken else self._next_position
            if own:
                position = 0
            self._next_position = max(self._next_position, position + 1)
            account = Contribution(volunteer, position, own)
            self._accounts[volunteer.id] = account
        account.connected = True
        account.state = "joined"
        self._here = None
        return account

    def leave(self, volunteer: VolunteerId, why: str) -> None:
        account = self._accounts[volunteer]
        account.connected = account.asked = False
        self._here = None
        account.leased_at.clear()
        account.fetches.clear()
        account.chains.clear()
        if account.state != STAYED:
            account.state = why
        if account.gave_nothing:
            self._strangers.append(volunteer)
        while len(self._strangers) > MAX_STRANGERS:
            forgotten = self._accounts.get(self._strangers.popleft())
            if forgotten is not None and not forgotten.connected and forgotten.gave_nothing:
                del self._accounts[forgotten.volunteer.id]

    def accept(self, now: float, volunteer: VolunteerId, *, samples: int, staleness: int) -> None:
        account = self._accounts[volunteer]
        account.unapplied = max(0, account.unapplied - 1)
        account.failures_in_a_row = 0
        account.units += 1
        account.samples += samples
        account.credit += samples * self._work
        account.staleness_sum += staleness
        account.speed.add(now, samples)
        self.samples.add(now, samples)
        self.updates.add(now, 1)
        self.total_samples += samples
        self.total_updates += 1

    def ignore(self, volunteer: VolunteerId) -> None:
        """An update came too late; nobody is to blame."""
        self._accounts[volunteer].ignored += 1
        self.total_ignored += 1

    def forgive(self) -> None:
        """What failed failed because of the parameters it started from, not of who computed."""
        for account in self._accounts.values():
            self.total_refused -= account.refused.pop("not_finite", 0)
            account.failures_in_a_row = account.unapplied = 0
            account.paused_until = 0.0
            account.failed_units.clear()
            account.chains.clear()
            account.leased_at.clear()

    def usual_batch_s(self) -> float | None:
        """What a batch takes the faster half: of three or more, no one alone sets the measure."""
        measured = [a.batch_s for a in self.connected() if a.batch_s is not None]
        return statistics.median_low(measured) if measured else None

    def snapshot(self) -> LedgerState:
        accounts = tuple(
            Credited(
                volunteer=a.volunteer,
                position=a.position,
                own=a.own,
                units=a.units,
                samples=a.samples,
                credit=a.credit,
            )
            for a in self._accounts.values()
        )
        return LedgerState(accounts=accounts, next_position=self._next_position)

    def restore(self, state: LedgerState) -> None:
        """Everybody's account as it was; nobody is here yet."""
        self._next_position = state.next_position
        for kept in state.accounts:
            account = Contribution(kept.volunteer, kept.position, kept.own, connected=False)
            account.units, account.samples, account.credit = kept.units, kept.samples, kept.credit
            self._accounts[kept.volunteer.id] = account
            self._next_position = max(self._next_position, kept.position + 1)
        self.total_samples = sum(a.samples for a in self._accounts.values())
        self.total_updates = sum(a.units for a in self._accounts.values())

    def connected(self) -> list[Contribution]:
        """Who is here, in roster order; asked with every update, so remembered."""
        if self._here is None:
            self._here = [account for account in self.everyone() if account.connected]
        return self._here

    def refuse(self, volunteer: VolunteerId, why: str) -> None:
        account = self._accounts[volunteer]
        kind = why.partition(" ")[0]  # without the numbers of the case
        account.refused[kind] = account.refused.get(kind, 0) + 1
        self.total_refused += 1


def _smooth(before: float | None, now: float) -> float:
    return now if before is None else 0.8 * before + 0.2 * now
