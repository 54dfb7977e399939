"""Members in doubt: what they are at is offered to others at once, and given up for good by none.

Whoever is in doubt stays a member; its leases lapse, so the first valid update still finishes each
unit, whoever sends it. It is in doubt until it is heard of again: by any sign of life where it was
silent, by a word about its work where it beat but got nothing done.

What is our own doing is held against nobody: leases end later by the time that we slept, or let
somebody wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from crowdgrad.domain.work import VolunteerId
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.state import State
from crowdgrad.planner.membership import AWAKE_S, judge, later, overslept_s

MOST_LEASES = 2.0
"""A unit is its holder's for so many leases at most, however long we let it wait."""


@dataclass(frozen=True, slots=True)
class Doubt:
    since: float
    silent: bool
    """Nothing was heard; otherwise it beats but gets nothing done."""


class Attendance:
    def __init__(self, state: State) -> None:
        self._state = state
        self._doubts: dict[VolunteerId, Doubt] = {}
        self._awake_at: float | None = None

    @property
    def in_doubt(self) -> frozenset[VolunteerId]:
        return frozenset(self._doubts)

    def look(
        self,
        now: float,
        account: Contribution,
        *,
        heard_at: float,
        worked_at: float,
        silence_s: float,
        asleep_s: float = 0.0,
    ) -> None:
        """Judge a member. `worked_at`: when it last said anything about its work."""
        self.awake(now)
        if self._state.course.phase == "over":
            return  # who is here has stayed to the end
        who = account.volunteer.id
        doubt = self._doubts.get(who)
        if doubt is not None:
            if (heard_at if doubt.silent else worked_at) > doubt.since:
                self.heard(account)
            return
        presence, why = judge(
            now,
            heard_at=heard_at,
            silence_s=silence_s,
            asleep_s=asleep_s,
            at_unit_s=self._at_unit_s(now, account, worked_at) - asleep_s,
            usual_s=account.unit_s,
        )
        if presence == "suspect":
            silent = judge(now, heard_at=heard_at, silence_s=silence_s, asleep_s=asleep_s)[0]
            self.suspect(now, account, why, silent=silent != "here")

    def awake(self, now: float) -> None:
        """To be told often: where we were not for long, we slept, and all have as much more time.

        Whoever notices first says so: leases lapse, and members are judged, only afterwards.
        """
        before, self._awake_at = self._awake_at, now
        slept_s = overslept_s(AWAKE_S, now - before) if before is not None else 0.0
        if not slept_s:
            return
        looking = self._state.course.evaluation.round
        for book in (self._state.book, *((looking.book,) if looking is not None else ())):
            for unit, who, _ in book.running():
                lease = book.lease_of(unit, who)
                assert lease is not None
                lease.ends_at += slept_s
        for account in self._state.ledger.connected():
            account.leased_at = {unit: at + slept_s for unit, at in account.leased_at.items()}

    def held_up(self, now: float, account: Contribution, for_s: float, least_s: float) -> None:
        """We have let a member wait for so long, or its update is on its way: give it more time.

        `least_s`: how long its units are its own from now on, in any case.
        """
        most_s = MOST_LEASES * account.lease_s(self._state.lease_s)
        for unit, at in account.leased_at.items():
            lease = self._state.book.lease_of(unit, account.volunteer.id)
            if lease is not None and lease.running:
                lease.ends_at = later(
                    lease.ends_at, now, held_up_s=for_s, least_s=least_s, most=at + most_s
                )

    def suspect(self, now: float, account: Contribution, why: str, *, silent: bool = True) -> None:
        """Offer what it is at to others, and say so."""
        who = account.volunteer.id
        self._doubts[who] = Doubt(now, silent)
        account.state = f"in doubt: {why}"
        if self._state.book.offer_again(now, who, why):
            account.asked = False  # until it is heard of again, nobody waits for it
            self._state.turns.gone(who)
            self._state.tell_members()

    def heard(self, account: Contribution) -> None:
        """It is here after all."""
        if self._doubts.pop(account.volunteer.id, None) is not None:
            account.state = "back after a silence"

    def forget(self, who: VolunteerId) -> None:
        self._doubts.pop(who, None)

    def _at_unit_s(self, now: float, account: Contribution, worked_at: float) -> float:
        """How long it has been at its oldest unit without a word about any."""
        book, who = self._state.book, account.volunteer.id
        evaluates = account.own and self._state.course.evaluation.round is not None
        if evaluates or not book.holding(who):
            return 0.0
        begun = [
            at
            for unit, at in account.leased_at.items()
            if (lease := book.lease_of(unit, who)) is not None and lease.running
        ]
        return now - max(min(begun), worked_at) if begun else 0.0
