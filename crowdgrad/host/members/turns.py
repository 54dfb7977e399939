"""Whose turn it is: waiting for the roster, the warm start, the rounds of synchronous training.

Decisions only: every question is answered with the reason for people.
"""

from __future__ import annotations

from crowdgrad.domain.work import VolunteerId
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.members.ledger import Ledger
from crowdgrad.planner.rounds import Round
from crowdgrad.recipes.base import Serving


class Turns:
    def __init__(self, serving: Serving, *, wait_for: int = 0, patience_s: float = 20.0) -> None:
        """`wait_for`: volunteers that must be here before anybody begins.

        `patience_s`: how long a round waits for members who have no unit of it yet.
        """
        self._serving = serving
        self._patience_s = patience_s
        self._wait_for = wait_for
        self._begun = wait_for == 0
        self._alone: VolunteerId | None = None
        self._round = Round()
        self._idle: set[VolunteerId] = set()
        """Those for whom there is no unit in this round."""
        self._closing = False
        self._began_at = 0.0

    def reason_to_wait(self, account: Contribution, ledger: Ledger, done_batches: int) -> str:
        """Why a member gets no unit now; empty if it may have one."""
        if self._begun and not self._serving.barrier and not self._serving.warm_start_batches:
            return ""  # as mostly
        if not self._begun and (reason := self._roster(ledger)):
            return reason
        if done_batches < self._serving.warm_start_batches and (
            reason := self._warm_start(account, ledger)
        ):
            return reason
        return self._in_round(account)

    def _roster(self, ledger: Ledger) -> str:
        ready = [other for other in ledger.connected() if other.asked]
        missing = self._wait_for - sum(not other.own for other in ready)
        waiting_for_us = any(a.own and not a.asked for a in ledger.connected())
        self._begun = missing <= 0 and not waiting_for_us
        return "" if self._begun else f"it begins when {_more(max(missing, 1))} ready"

    def _warm_start(self, account: Contribution, ledger: Ledger) -> str:
        batches = self._serving.warm_start_batches
        ready = [other for other in ledger.connected() if other.asked]
        if self._alone not in {other.volunteer.id for other in ready}:
            own = next((other for other in ready if other.own), account)  # never a bad choice
            self._alone = own.volunteer.id
        if self._alone == account.volunteer.id:
            return ""
        return f"warm start: one volunteer trains alone for the first {batches} batches"

    @property
    def holds_back(self) -> bool:
        """Whether an answer may have to wait for others."""
        return self.in_rounds or not self._begun

    # -- rounds -------------------------------------------------------------------------------

    @property
    def in_rounds(self) -> bool:
        return self._serving.barrier is not None

    @property
    def open(self) -> bool:
        """Whether the round still takes updates."""
        return not self._closing

    def leased(self, who: VolunteerId, now: float) -> None:
        if not self._round.working and not self._round.delivered:
            self._began_at = now
        self._round.working.add(who)

    def nothing_for(self, who: VolunteerId) -> None:
        self._idle.add(who)

    def delivered(self, who: VolunteerId) -> None:
        self._round.working.discard(who)
        self._round.delivered.add(who)

    def gone(self, who: VolunteerId) -> None:
        """It left, or has no unit any more: nobody waits for what it will not deliver."""
        self._round.working.discard(who)
        if self._alone == who:  # whoever asks next warms up
            self._alone = None

    def should_close(self, now: float, ledger: Ledger) -> tuple[bool, str]:
        barrier = self._serving.barrier
        if barrier is None or self._closing:
            return False, "there are no rounds" if barrier is None else "it is being closed"
        expected: set[VolunteerId] = set()
        if now - self._began_at < self._patience_s:  # whoever has not asked by then is not coming
            expected = {
                account.volunteer.id
                for account in ledger.connected()
                if account.asked and account.state != "evaluating" and now >= account.paused_until
            }
        return self._round.should_close(now, barrier, expected - self._idle)

    def close(self) -> None:
        """No further updates into this round."""
        self._closing = True

    def next_round(self) -> None:
        self._round = Round()
        self._idle = set()
        self._closing = False

    def _in_round(self, account: Contribution) -> str:
        if not self.in_rounds:
            return ""
        if self._closing:
            return "waiting for the next round"
        may, reason = self._round.may_begin(account.volunteer.id)
        return "" if may else reason


def _more(number: int) -> str:
    return "one more is" if number == 1 else f"{number} more are"
