"""Who gave what, and how fast things go. Credit = samples in accepted updates × their work."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.work import UnitId, VolunteerId

WINDOW_S = 5.0
STAYED = "stayed to the end"
MAX_FAILURES_IN_A_ROW = 5
PAUSE_S = 30.0
"""How long somebody whose units all fail is left in peace."""
LEASE_FACTOR = 5.0
"""A lease is at least so many times as long as its holder usually takes."""
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
    failures: int = 0
    failures_in_a_row: int = 0
    failed_units: set[UnitId] = field(default_factory=set)
    paused_until: float = 0.0

    def lease_s(self, least_s: float) -> float:
        return max(least_s, LEASE_FACTOR * self.unit_s)

    def failed(self, now: float) -> None:
        self.failures += 1
        self.failures_in_a_row += 1
        if self.failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            self.failures_in_a_row = 0
            self.paused_until = now + PAUSE_S


class Ledger:
    def __init__(self, work_per_sample: float) -> None:
        self._work = work_per_sample
        self._accounts: dict[VolunteerId, Contribution] = {}
        self._strangers: deque[VolunteerId] = deque()
        self._next_position = 1
        self.samples = Meter()
        self.updates = Meter()
        self.total_samples = 0
        self.total_updates = 0
        self.total_refused = 0

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
        return account

    def leave(self, volunteer: VolunteerId, why: str) -> None:
        account = self._accounts[volunteer]
        account.connected = False
        account.leased_at.clear()
        if account.state != STAYED:
            account.state = why
        if account.units == 0:
            self._strangers.append(volunteer)
        while len(self._strangers) > MAX_STRANGERS:
            forgotten = self._accounts.get(self._strangers.popleft())
            if forgotten is not None and not forgotten.connected and forgotten.units == 0:
                del self._accounts[forgotten.volunteer.id]

    def accept(
        self, now: float, volunteer: VolunteerId, unit: UnitId, *, samples: int, staleness: int
    ) -> None:
        account = self._accounts[volunteer]
        took_s = now - account.leased_at.pop(unit, now)
        account.unit_s = took_s if account.units == 0 else 0.8 * account.unit_s + 0.2 * took_s
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

    def refuse(self, volunteer: VolunteerId, why: str) -> None:
        account = self._accounts[volunteer]
        account.refused[why] = account.refused.get(why, 0) + 1
        self.total_refused += 1
