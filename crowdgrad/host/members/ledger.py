"""Who gave what, and how fast things go. Credit = samples in accepted updates × their work."""

from __future__ import annotations

import statistics
from collections import Counter, deque
from dataclasses import dataclass, field

from crowdgrad.domain.job import Member, Volunteer
from crowdgrad.domain.work import VolunteerId
from crowdgrad.host.members.accounts import Contribution, Counts, Credited, counted
from crowdgrad.host.members.departures import (
    MAX_REASON,
    STAYED,
    Departure,
    Departures,
    DeparturesState,
)
from crowdgrad.host.members.meters import Growth, Meter, Sums, Times

MAX_STRANGERS = 200
"""Accounts kept of those who came, gave nothing and went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """What a checkpoint keeps of a ledger."""

    accounts: tuple[Credited, ...] = ()
    next_position: int = 1
    refused: Counts = ()
    ignored: Counts = ()
    forgotten_received: int = 0
    """Bytes of those whose accounts are not kept any more."""
    forgotten_sent: int = 0
    departures: DeparturesState = field(default_factory=DeparturesState)


class Ledger:
    def __init__(self, work_per_sample: float) -> None:
        self._work = work_per_sample
        self._accounts: dict[VolunteerId, Contribution] = {}
        self._strangers: deque[VolunteerId] = deque()
        self._next_position = 1
        self._everyone: list[Contribution] | None = None
        self._here: list[Contribution] | None = None
        self.sums = Sums()
        """Bytes of all who ever came; times of all whose accounts are kept."""
        self.samples = Meter()
        self.updates = Meter()
        self.received = Growth()
        self.sent = Growth()
        self.total_samples = 0
        self.total_updates = 0
        self.refused: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self.departures = Departures()
        self._forgotten = (0, 0)
        """Bytes received from and sent to those whose accounts are not kept any more."""

    @property
    def total_refused(self) -> int:
        return self.refused.total()

    @property
    def total_ignored(self) -> int:
        return self.ignored.total()

    @property
    def bytes_received(self) -> int:
        return self.sums.bytes_received

    @property
    def bytes_sent(self) -> int:
        return self.sums.bytes_sent

    def __getitem__(self, volunteer: VolunteerId) -> Contribution:
        return self._accounts[volunteer]

    def __contains__(self, volunteer: object) -> bool:
        """Whether it has been here, and is not forgotten."""
        return volunteer in self._accounts

    def credit_of(self, samples: int) -> float:
        return samples * self._work

    def everyone(self) -> list[Contribution]:
        """All whose accounts are kept, in roster order; remembered, as they may be thousands."""
        if self._everyone is None:
            once = {id(account): account for account in self._accounts.values()}
            self._everyone = sorted(once.values(), key=lambda account: account.position)
        return self._everyone

    def places(self) -> list[Member]:
        """Everyone who ever had a place, except for worker 0."""
        return [
            Member(position=a.position, id=a.volunteer.id, name=a.volunteer.name)
            for a in self.everyone()
            if a.position
        ]

    def join(
        self, now: float, volunteer: Volunteer, *, own: bool, hint: int | None = None
    ) -> Contribution:
        """Position 0 is the host's own worker; a place, once given, stays its owner's.

        `hint`: the place the matchmaker gave, taken where it is free.
        """
        account = self._accounts.get(volunteer.id)
        if account is None and own:  # another key, but worker 0 is worker 0
            account = next((a for a in self._accounts.values() if a.own), None)
            if account is not None:  # under its old name too: an update may still be on its way
                account.volunteer = volunteer
                self._accounts[volunteer.id] = account
        if account is None:
            position = 0 if own else self._place(hint)
            self._next_position = max(self._next_position, position + 1)
            account = Contribution(volunteer, position, own, times=Times(sums=self.sums))
            self._accounts[volunteer.id] = account
            self._everyone = None
        account.connected = True
        account.kept = None
        account.state = "joined"
        account.joined_at = now
        account.times.come(now)
        self.departures.arrivals += 1
        self._here = None
        return account

    def _place(self, hint: int | None) -> int:
        free = hint and all(hint != other.position for other in self._accounts.values())
        return hint if hint and free else self._next_position

    def leave(
        self, volunteer: VolunteerId, why: str, now: float | None = None, *, at_s: float = 0.0
    ) -> None:
        """`at_s`: seconds of training by now."""
        account = self._accounts[volunteer]
        now = account.joined_at if now is None else now
        account.times.go(now)
        account.connected = account.asked = False
        account.kept = None
        self._here = None
        account.leased_at.clear()
        account.fetches.clear()
        account.chains.clear()
        if account.state != STAYED:
            account.state = why
            account.speed = Meter()
        self.departures.add(
            Departure(
                at_s=at_s,
                who=volunteer,
                name=account.volunteer.name,
                reason=account.state[:MAX_REASON],
                stayed_s=max(0.0, now - account.joined_at),
                samples=account.samples,
            )
        )
        if account.gave_nothing:
            self._strangers.append(volunteer)
            self._forget_strangers()

    def _forget_strangers(self) -> None:
        while len(self._strangers) > MAX_STRANGERS:
            stranger = self._accounts.get(self._strangers.popleft())
            if stranger is None or stranger.own:  # worker 0 may have several names
                continue
            if not stranger.connected and stranger.gave_nothing:
                received, sent = self._forgotten
                self._forgotten = (received + stranger.bytes_received, sent + stranger.bytes_sent)
                self.sums.remove(stranger.times)
                del self._accounts[stranger.volunteer.id]
                self._everyone = None

    def accept(self, now: float, volunteer: VolunteerId, *, samples: int, staleness: int) -> None:
        account = self._accounts[volunteer]
        account.kept = None
        account.unapplied = max(0, account.unapplied - 1)
        account.failures_in_a_row = 0
        account.units += 1
        account.samples += samples
        account.credit += samples * self._work
        account.staleness_sum += staleness
        account.staleness_max = max(account.staleness_max, staleness)
        account.speed.add(now, samples)
        self.samples.add(now, samples)
        self.updates.add(now, 1)
        self.total_samples += samples
        self.total_updates += 1

    def ignore(self, volunteer: VolunteerId, why: str) -> None:
        """An update came too late; nobody is to blame."""
        account = self._accounts[volunteer]
        account.kept = None
        _count(account.ignored_for, why)
        self.ignored[why] += 1

    def forgive(self) -> None:
        """What failed failed because of the parameters it started from, not of who computed."""
        for account in self.everyone():
            if "not_finite" in account.refused:
                self.refused -= Counter(not_finite=account.refused.pop("not_finite"))
                account.kept = None
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
        return LedgerState(
            accounts=tuple(account.credited() for account in self.everyone()),
            next_position=self._next_position,
            refused=counted(self.refused),
            ignored=counted(self.ignored),
            forgotten_received=self._forgotten[0],
            forgotten_sent=self._forgotten[1],
            departures=self.departures.snapshot(),
        )

    def restore(self, state: LedgerState) -> None:
        """Everybody's account as it was; nobody is here yet."""
        self.sums = Sums(
            bytes_received=state.forgotten_received + sum(a.bytes_received for a in state.accounts),
            bytes_sent=state.forgotten_sent + sum(a.bytes_sent for a in state.accounts),
        )
        self._accounts = {kept.volunteer.id: kept.account(self.sums) for kept in state.accounts}
        self._everyone = self._here = None
        places = (account.position + 1 for account in self._accounts.values())
        self._next_position = max((state.next_position, *places))
        self._strangers = deque(a.volunteer.id for a in self._accounts.values() if a.gave_nothing)
        self._forgotten = (state.forgotten_received, state.forgotten_sent)
        self.refused, self.ignored = Counter(dict(state.refused)), Counter(dict(state.ignored))
        self.total_samples = sum(a.samples for a in self._accounts.values())
        self.total_updates = sum(a.units for a in self._accounts.values())
        self.departures.restore(
            state.departures, here=sum(kept.connected for kept in state.accounts)
        )

    def connected(self) -> list[Contribution]:
        """Who is here, in roster order; asked with every update, so remembered."""
        if self._here is None:
            self._here = [account for account in self.everyone() if account.connected]
        return self._here

    def refuse(self, volunteer: VolunteerId, why: str) -> None:
        account = self._accounts[volunteer]
        account.kept = None
        kind = why.partition(" ")[0]  # without the numbers of the case
        _count(account.refused, kind)
        self.refused[kind] += 1


def _count(counts: dict[str, int], why: str) -> None:
    counts[why] = counts.get(why, 0) + 1
