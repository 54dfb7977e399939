"""What becomes of an update: refused with a reason, ignored, or in the parameters and credited."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import NamedTuple

from crowdgrad.domain.work import Unit, Update, Version, VolunteerId
from crowdgrad.host.evaluation import is_evaluation
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.setbacks import Setbacks
from crowdgrad.host.state import Done, State
from crowdgrad.numerics.vectors import Vector
from crowdgrad.planner.entries import Entry

IGNORED = ("already_done", "too_old", "too_late", "other_incarnation")
"""Verdicts on updates that came too late to be used, which is nobody's fault."""
LOSS_MEMORY = 0.98
"""How much of the shown training loss is carried over from update to update."""


class Taken(NamedTuple):
    """An update that is in the parameters, and still to be credited."""

    unit: Unit
    update: Update
    staleness: int


class Updates:
    def __init__(self, state: State, setbacks: Setbacks, fail: Callable[[str], None]) -> None:
        """`fail(why)` ends the job."""
        self._state = state
        self._setbacks = setbacks
        self._end_job = fail
        self._turned = asyncio.Event()
        self._simple = not state.turns.in_rounds and state.job.local.units_per_fetch == 1
        """Nobody waits for a round, and no replica goes on."""

    async def take(
        self, now: float, account: Contribution, update: Update, vector: Vector | None
    ) -> str:
        """What becomes of an update: `accepted`, or why it was refused."""
        try:
            account.times.end(now, update.unit, update.compute_s)
            verdict = await self._judge(now, account, update, vector)
            self._settle(account, update, verdict)
            await self.close_turn(now)
        except Exception as error:
            self._not_applied(error)
            raise
        return verdict

    def take_at_once(
        self, now: float, account: Contribution, update: Update, payload: memoryview
    ) -> Taken | None:
        """An update that is as it should be, taken without waiting for anything.

        None: it is not that simple; nothing has changed, and `take` knows what to do. Otherwise
        `settle` must follow before anybody else can look.
        """
        state, parameters, who = self._state, self._state.parameters, account.volunteer.id
        if not self._simple or state.course.phase != "training" or is_evaluation(update.unit):
            return None
        if not parameters.at_once or not math.isfinite(update.loss):
            return None
        entry, _ = self._look_up(update, who)
        if entry is None or update.samples != entry.samples or self._late(update.base):
            return None
        vector = parameters.received_at_once(payload)
        if not parameters.acceptable_at_once(vector):
            return None
        account.times.end(now, update.unit, update.compute_s)
        account.measure(now, entry.unit, update.compute_s)
        state.book.done(entry)
        try:
            staleness = parameters.apply_at_once(
                vector,
                update.base,
                rate=state.rate,
                batches=entry.unit.batches,
                under_way=state.book.leased,
            )
        except Exception as error:
            self._not_applied(error)
            raise
        return Taken(entry.unit, update, staleness)

    def settle(self, now: float, account: Contribution, taken: Taken) -> None:
        """Credit what was taken at once."""
        update = taken.update
        account.fetches.pop(update.unit, None)
        self._note_loss(update.loss)
        self._state.credit(account.volunteer.id, taken.staleness, samples=update.samples, at=now)
        self._state.free()

    def _not_applied(self, error: Exception) -> None:
        """Half applied: better no job than one that never ends."""
        self._end_job(f"an update could not be applied: {type(error).__name__}: {error}")

    def _settle(self, account: Contribution, update: Update, verdict: str) -> None:
        account.fetches.pop(update.unit, None)
        self._state.free()
        if verdict in IGNORED:
            self._state.ledger.ignore(account.volunteer.id, verdict)
        elif verdict not in ("accepted", "over"):
            self._state.ledger.refuse(account.volunteer.id, verdict)
        if verdict != "accepted":
            self._state.turns.gone(account.volunteer.id)

    async def _judge(
        self, now: float, account: Contribution, update: Update, vector: Vector | None
    ) -> str:
        who = account.volunteer.id
        if is_evaluation(update.unit):
            return self._state.course.evaluation.finish(update, who) if account.own else "not_yours"
        if self._state.course.phase != "training":
            return "over"
        entry, refusal = self._look_up(update, who)
        if entry is None:
            return str(refusal)
        if vector is None:
            return "no_vector"
        if update.samples != entry.samples:
            why = f"wrong_samples ({update.samples} for {entry.samples})"
            return self._fail(now, account, update, why)
        account.measure(now, entry.unit, update.compute_s)
        finite = math.isfinite(update.loss) and await self._state.parameters.acceptable(vector)
        # Between the question above and here others may have finished the unit, or we may have gone
        # back: ask again, and from now on it is ours alone.
        entry, refusal = self._look_up(update, who)
        if entry is None:
            return str(refusal)
        if not finite:
            return await self._not_finite(now, account, update)
        if late := self._late(update.base):
            self._state.book.give_back(update.unit, who, late, failed=False)
            return late
        return await self._accept(now, account, update, vector)

    def _look_up(self, update: Update, who: VolunteerId) -> tuple[Entry | None, str | None]:
        incarnation = self._state.parameters.version.incarnation
        entry, refusal = self._state.book.judge(update.unit, who, update.base, incarnation)
        if entry is not None and entry.leases[who].link != update.link:
            return None, "wrong_base"  # the unit was given again, into another chain
        return entry, refusal

    def _late(self, base: Version) -> str:
        """Why an update from this version is not used; empty if it is."""
        if self._state.turns.in_rounds and (
            base != self._state.parameters.version or not self._state.turns.open
        ):
            return "too_late"
        most = self._state.serving.max_staleness
        if most and self._state.parameters.version.staleness(base) > most:
            return "too_old"
        return ""

    async def _accept(
        self, now: float, account: Contribution, update: Update, vector: Vector
    ) -> str:
        who = account.volunteer.id
        lease = self._state.book.lease_of(update.unit, who)
        unit, refusal = self._state.book.finish(
            update.unit, who, update.base, self._state.parameters.version.incarnation
        )
        if unit is None or lease is None:
            return str(refusal)
        self._state.unapplied[unit.id] = Done(
            unit=unit, base=update.base, who=who, samples=update.samples, at=now
        )
        account.unapplied += 1
        if lease.link + 1 < self._state.job.local.units_per_fetch:
            account.chains[unit.id] = (update.base, lease.link + 1)
        self._note_loss(update.loss)
        if self._state.turns.in_rounds:
            self._state.turns.delivered(who)
            merged = await self._state.parameters.merge(
                vector, update.base, samples=update.samples, batches=unit.batches
            )
            return "accepted" if merged else "other_incarnation"
        staleness = await self._state.parameters.apply(
            vector,
            update.base,
            rate=self._state.rate,
            batches=unit.batches,
            under_way=self._state.book.leased,
            applied=lambda staleness: self._state.applied(staleness, [unit.id]),
        )
        return "accepted" if staleness is not None else "other_incarnation"

    def _note_loss(self, loss: float) -> None:
        kept = LOSS_MEMORY if self._state.train_loss is not None else 0.0
        self._state.train_loss = kept * (self._state.train_loss or 0.0) + (1 - kept) * loss

    def _fail(self, now: float, account: Contribution, update: Update, why: str) -> str:
        account.failed(now)
        self._state.book.give_back(update.unit, account.volunteer.id, why, failed=True)
        return why

    async def _not_finite(self, now: float, account: Contribution, update: Update) -> str:
        # Our own arithmetic on our own data lies to nobody: it diverged. A stranger's word counts
        # only where our own parameters confirm it.
        if account.own or not await self._state.parameters.sound():
            if update.base.incarnation == self._state.parameters.version.incarnation:
                lost = "the gradient" if math.isfinite(update.loss) else "the loss"
                await self._setbacks.go_back(f"{lost} is no longer finite")
            return "other_incarnation"
        entry, refusal = self._look_up(update, account.volunteer.id)
        if entry is None:
            return str(refusal)
        return self._fail(now, account, update, "not_finite")

    # -- rounds -------------------------------------------------------------------------------

    async def turned(self, patience_s: float) -> None:
        """Wait until a round closes, but no longer than that."""
        event = self._turned
        try:
            async with asyncio.timeout(patience_s):
                await event.wait()
        except TimeoutError:
            return

    async def close_turn(self, now: float) -> None:
        close, _ = self._state.turns.should_close(now, self._state.ledger)
        if not close or self._state.course.phase != "training":
            return
        self._state.turns.close()
        incarnation = self._state.parameters.version.incarnation
        units = list(self._state.unapplied)
        await self._state.parameters.apply_merged(
            rate=self._state.rate, applied=lambda: self._state.applied(0, units)
        )
        if self._state.parameters.version.incarnation == incarnation:  # otherwise it has begun anew
            self._state.turns.next_round()
        self._turned.set()
        self._turned = asyncio.Event()

    async def flush(self) -> None:
        """What was accepted into a round that nobody will close counts too."""
        units = list(self._state.unapplied)
        if self._state.turns.in_rounds and units and self._state.turns.open:
            self._state.turns.close()
            await self._state.parameters.apply_merged(
                rate=self._state.rate, applied=lambda: self._state.applied(0, units)
            )
