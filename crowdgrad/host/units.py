"""Who gets which unit, how large, from where; and units that come back."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from crowdgrad.domain.work import Unit, UnitId, Version
from crowdgrad.host.evaluation import is_evaluation
from crowdgrad.host.members.accounts import MAX_FAILURES_IN_A_ROW, Contribution
from crowdgrad.host.state import State
from crowdgrad.planner.sizing import unit_batches

PAUSED = "paused by its host"


class Granted(NamedTuple):
    """A unit, where it starts and how its replica steps."""

    unit: Unit
    base: Version
    link: int = 0
    rate: float = 0.0


class Units:
    def __init__(self, state: State, fail: Callable[[str], None]) -> None:
        """`fail(why)` ends the job."""
        self._state = state
        self._fail = fail
        self.usual_s: float | None = None
        """What a batch usually takes."""

    def lease(
        self,
        now: float,
        account: Contribution,
        holds: Collection[int],
        base: Version,
        after: UnitId | None = None,
    ) -> tuple[Granted | None, str]:
        """The next unit for a member; evaluation goes first, and only to the host's own worker.

        `after`: the unit whose update it has just sent; where that belongs to a chain that goes on,
        so does the replica.
        """
        if not account.asked:
            account.asked = True
            self._state.tell_members()
        chain = account.chains.pop(after, None) if after is not None else None
        if self._state.course.phase == "over":  # not even what was to be evaluated
            self._idle(now, account)
            return None, "training is over"
        if account.own and (unit := self._state.course.evaluation.lease(now, account.volunteer.id)):
            account.state = "evaluating"
            account.times.begin(now, unit.id)
            assert self._state.course.evaluation.round is not None
            return Granted(
                unit=unit, base=self._state.course.evaluation.round.version
            ), "evaluation"
        if self._state.course.phase != "training":
            phase = self._state.course.phase
            self._idle(now, account)
            return None, f"training is over, {phase}"
        reason = self._not_now(now, account)
        granted = None
        if not reason:
            start, link = chain or (base, 0)
            granted, reason = self._lease(now, account, holds, start, link)
        if granted is None:
            self._idle(now, account)
        account.state = "training" if granted else f"waiting: {reason}"
        return granted, reason

    def _lease(
        self, now: float, account: Contribution, holds: Collection[int], base: Version, link: int
    ) -> tuple[Granted | None, str]:
        who = account.volunteer.id
        most = self._state.job.local.batches_per_unit
        if account.near and self._state.serving.near_batches:
            most = self._state.serving.near_batches
        if self._state.serving.matched:
            most, _ = unit_batches(most, account.batch_s, self.usual_s)
        unit, reason = self._state.book.lease(
            now,
            who,
            base,
            holds=holds,
            lease_s=account.lease_s(self._state.lease_s),
            batches=most,
            link=link,
        )
        if unit is None:
            self._state.turns.nothing_for(who)
            return None, reason
        self._state.course.begin(now)
        account.lease(now, unit.id, self._fetches(unit))
        self._state.turns.leased(who, now)
        return Granted(unit=unit, base=base, link=link, rate=self._state.local_rate), reason

    def _idle(self, now: float, account: Contribution) -> None:
        """It is told to wait; whether it has anything in hand, the books know."""
        who, looking = account.volunteer.id, self._state.course.evaluation.round
        if not self._state.book.holding(who) and not (looking and looking.book.holding(who)):
            account.times.idle(now)

    def _fetches(self, unit: Unit) -> int:
        """How often parameters are fetched in the middle of a unit."""
        every = self._state.job.local.fetch_every
        return -(-unit.batches // every) - 1 if every else 0

    def may_fetch(self, account: Contribution) -> bool:
        """Whether a member is in the middle of a unit with a fetch to come; counts it."""
        unit = next((unit for unit, left in account.fetches.items() if left), None)
        if unit is None:
            return False
        account.fetches[unit] -= 1
        return True

    def _not_now(self, now: float, account: Contribution) -> str:
        """Why a member gets no unit although there may be some; empty if it may have one."""
        if self._state.course.paused:
            return PAUSED
        held = self._state.book.holding(account.volunteer.id)
        if held > self._state.job.local.overlap:
            return f"you have {held} units already"
        if now < account.paused_until and not account.own:
            return f"your last {MAX_FAILURES_IN_A_ROW} units failed"
        return self._state.turns.reason_to_wait(
            account, self._state.ledger, self._state.book.done_batches
        )

    def give_back(
        self, now: float, account: Contribution, unit: UnitId, why: str, *, rests: bool = False
    ) -> None:
        """`rests`: the volunteer pauses. Nobody is to blame, and no round waits for it."""
        who = account.volunteer.id
        if rests:
            account.asked = False  # until it is heard of again, nobody waits for it
            account.state = "pausing"
            self._state.tell_members()
        else:
            account.failed(now)
        account.times.end(now, unit)
        account.fetches.pop(unit, None)
        if account.own and account.units == 0 and account.failures >= MAX_FAILURES_IN_A_ROW:
            self._fail(f"this machine's own worker cannot compute a single unit: {why}")
        if not is_evaluation(unit):
            # What fails twice on our own worker fails: it is the same arithmetic everywhere.
            again = account.own and unit in account.failed_units
            if not rests and self._state.book.lease_of(unit, who) is not None:
                account.failed_units.add(unit)
            self._state.book.give_back(
                unit, who, why, failed=not rests, decisive=again and not rests
            )
            self._state.turns.gone(who)
            self._state.free()
        elif (looking := self._state.course.evaluation.round) is not None:
            if looking.kind == "look":  # nobody needs it enough to try again
                self._state.course.give_up_look(why)
                return
            # Only worker 0 can try again: no blame.
            looking.book.give_back(unit, who, why, failed=False)
