"""The training itself: who gets which unit, what becomes of an update, when it is over.

Every method takes `now`; sockets, clocks and disks are the callers'. The phases:

    training → validating (the last parameters) → testing (the best, once) → over

The test set is looked at once, at the end, with the parameters that did best on the validation
split.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crowdgrad.domain.data import Manifest
from crowdgrad.domain.job import Job, JobState, Member, Roster, Volunteer
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import Unit, UnitId, Update, Version, VolunteerId
from crowdgrad.host.evaluation import Evaluation, EvaluationKind, Scores, is_evaluation
from crowdgrad.host.ledger import MAX_FAILURES_IN_A_ROW, STAYED, Contribution, Ledger
from crowdgrad.host.parameters import Parameters
from crowdgrad.numerics.noise import shard_order
from crowdgrad.numerics.rules.base import ServerRule
from crowdgrad.numerics.vectors import Vector
from crowdgrad.planner.batches import plan
from crowdgrad.planner.leases import LeaseBook
from crowdgrad.planner.stopping import should_stop

Phase = Literal["training", "validating", "testing", "over"]
EVALUATE_EVERY_S = (0.5, 5.0)
"""The least and the most between two evaluations; in between, a twentieth of the time so far."""
LOSS_MEMORY = 0.98
"""How much of the shown training loss is carried over from update to update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    state: JobState
    reason: str


class Training:
    def __init__(
        self,
        *,
        job: Job,
        spec: ProgramSpec,
        manifest: Manifest,
        initial: Vector,
        rule: ServerRule,
        lease_s: float,
    ) -> None:
        self.job = job
        self.spec = spec
        self.parameters = Parameters(initial, rule, Version(incarnation=0, count=0))
        self.ledger = Ledger(spec.work_per_sample)
        batches = plan(manifest, "train", job.local.batch_size)
        self.book = LeaseBook(
            batches,
            kind="train",
            batches_per_unit=job.local.batches_per_unit,
            epochs=job.stop.epochs,
            shard_order=lambda epoch: [
                batches.shards[i] for i in shard_order(job.seed, epoch, len(batches.shards))
            ],
            lease_s=lease_s,
        )
        self.evaluation = Evaluation(
            manifest, batch_size=job.local.batch_size, metrics=spec.metrics
        )
        self.phase: Phase = "training"
        self.ending: Ending | None = None
        self.started_at: float | None = None
        self.history: list[Scores] = []
        self.tested: Scores | None = None
        self.best: Scores | None = None
        self.best_vector: Vector = initial.copy()
        self.train_loss: float | None = None
        self.staleness: Counter[int] = Counter()
        self._lease_s = lease_s
        self._evaluated_at = -math.inf
        self._tests_done = False

    # -- members ------------------------------------------------------------------------------

    def join(
        self, now: float, volunteer: Volunteer, *, own: bool, hint: int | None = None
    ) -> Contribution:
        return self.ledger.join(now, volunteer, own=own, hint=hint)

    def leave(self, volunteer: VolunteerId, why: str) -> None:
        self.book.leave(volunteer, why)
        if self.evaluation.round is not None:
            self.evaluation.round.book.leave(volunteer, why)
        self.ledger.leave(volunteer, why)

    def roster(self) -> Roster:
        return Roster(
            job=self.job.id,
            members=tuple(
                Member(position=a.position, id=a.volunteer.id, name=a.volunteer.name)
                for a in self.ledger.everyone()
                if a.connected
            ),
        )

    # -- units --------------------------------------------------------------------------------

    def lease(
        self, now: float, account: Contribution, holds: Collection[int], base: Version
    ) -> tuple[Unit | None, str]:
        """The next unit for a member; evaluation goes first, and only to the host's own worker."""
        if self.started_at is None:
            self.started_at = now
        if account.own and (unit := self.evaluation.lease(now, account.volunteer.id)):
            account.state = "evaluating"
            return unit, "evaluation"
        if self.phase != "training":
            return None, f"training is over, {self.phase}"
        unit, reason = None, self._not_now(now, account)
        if not reason:
            unit, reason = self.book.lease(
                now, account.volunteer.id, base, holds, account.lease_s(self._lease_s)
            )
        if unit is not None:
            account.leased_at[unit.id] = now
        account.state = "training" if unit else f"waiting: {reason}"
        return unit, reason

    def _not_now(self, now: float, account: Contribution) -> str:
        """Why a member gets no unit although there may be some; empty if it may have one."""
        held = self.book.holding(account.volunteer.id)
        if held > self.job.local.overlap:
            return f"you have {held} units already"
        if now < account.paused_until and not account.own:
            return f"your last {MAX_FAILURES_IN_A_ROW} units failed"
        return ""

    def give_back(self, now: float, account: Contribution, unit: UnitId, why: str) -> None:
        who = account.volunteer.id
        account.failed(now)
        if account.own and account.units == 0 and account.failures >= MAX_FAILURES_IN_A_ROW:
            self.fail(f"this machine's own worker cannot compute a single unit: {why}")
        if not is_evaluation(unit):
            # What fails twice on our own worker fails: it is the same arithmetic everywhere.
            again = account.own and unit in account.failed_units
            account.failed_units.add(unit)
            self.book.give_back(unit, who, why, failed=True, decisive=again)
        elif self.evaluation.round is not None:  # only worker 0 can try again: no blame
            self.evaluation.round.book.give_back(unit, who, why, failed=False)

    # -- updates ------------------------------------------------------------------------------

    async def take(
        self, now: float, account: Contribution, update: Update, vector: Vector | None
    ) -> str:
        """What becomes of an update: `accepted`, or why it was refused."""
        verdict = await self._judge(now, account, update, vector)
        if verdict not in ("accepted", "over"):  # coming too late is nobody's fault
            self.ledger.refuse(account.volunteer.id, verdict)
        return verdict

    async def _judge(
        self, now: float, account: Contribution, update: Update, vector: Vector | None
    ) -> str:
        who = account.volunteer.id
        if is_evaluation(update.unit):
            return self.evaluation.finish(update, who) if account.own else "not_yours"
        if self.phase != "training":
            return "over"
        if vector is None:
            return "no_vector"
        incarnation = self.parameters.version.incarnation
        entry, refusal = self.book.judge(update.unit, who, update.base, incarnation)
        if entry is None:
            return str(refusal)
        expected = self.book.plan.samples(entry.unit.first_batch, entry.unit.batches)
        if update.samples != expected:
            why = f"wrong_samples ({update.samples} for {expected})"
            return self._fail(now, account, update, why)
        if not math.isfinite(update.loss) or not await self.parameters.finite(vector):
            if account.own:  # our own arithmetic, on our own data: nobody lied, it diverged
                self._diverge(update.loss)
            return self._fail(now, account, update, "not_finite")
        # Between the question above and here others may have finished the unit: ask again, and from
        # now on it is ours alone.
        unit, refusal = self.book.finish(update.unit, who, update.base, incarnation)
        if unit is None:
            return str(refusal)
        staleness = await self.parameters.apply(vector, update.base)
        self.staleness[staleness] += 1
        self.ledger.accept(now, who, unit.id, samples=update.samples, staleness=staleness)
        kept = LOSS_MEMORY if self.train_loss is not None else 0.0
        self.train_loss = kept * (self.train_loss or 0.0) + (1 - kept) * update.loss
        return "accepted"

    def _fail(self, now: float, account: Contribution, update: Update, why: str) -> str:
        account.failed(now)
        self.book.give_back(update.unit, account.volunteer.id, why, failed=True)
        return why

    def _diverge(self, loss: float) -> None:
        if self.ending is None:
            self._end(
                "failed",
                f"the loss is no longer a finite number ({loss}): try a smaller learning rate; "
                "the best parameters so far are kept",
            )

    # -- time passes --------------------------------------------------------------------------

    async def tick(self, now: float) -> list[Scores]:
        """Lapse leases, begin and close evaluations, decide whether it is over."""
        self.book.lapse(now)
        if self.evaluation.round is not None:
            self.evaluation.round.book.lapse(now)
        new = self._close_round(now)
        self._decide(now)
        await self._begin_round(now)
        return new

    def stop(self, reason: str) -> None:
        """End now, at somebody's wish: no further evaluation, the best so far is kept."""
        if self.phase != "over":
            self._end("stopped", reason)

    def fail(self, reason: str) -> None:
        """End now because of trouble on the host's side."""
        if self.phase != "over":
            self._end("failed", reason)

    def elapsed_s(self, now: float) -> float:
        return 0.0 if self.started_at is None else now - self.started_at

    def _end(self, state: JobState, reason: str) -> None:
        self.ending = Ending(state=state, reason=reason)
        if state == "finished":
            self.phase = "validating"
        else:
            self._close()

    def _close(self) -> None:
        self.phase = "over"
        for account in self.ledger.everyone():
            if account.connected:
                account.state = STAYED

    def _close_round(self, now: float) -> list[Scores]:
        closed = self.evaluation.take_scores(self.elapsed_s(now), self.train_loss)
        if closed is None:
            return []
        scores, vector = closed
        if scores.kind == "test":
            self.tested = scores
            self._tests_done = True
            return [scores]
        self.history.append(scores)
        if scores.better_than(self.best):
            self.best, self.best_vector = scores, vector
        if not math.isfinite(scores.loss):
            self._diverge(scores.loss)
        return [scores]

    def _decide(self, now: float) -> None:
        if self.phase == "training":
            metric = self.spec.metrics[0] if self.spec.metrics else None
            value = self.history[-1].metrics[metric] if metric and self.history else None
            over, reason = should_stop(
                self.job.stop,
                all_done=self.book.finished,
                metric=value,
                elapsed_s=self.elapsed_s(now),
            )
            aside = self.book.set_aside
            if over and aside and not self.ledger.total_updates:
                self._end("failed", f"every unit failed: {aside[-1].story[-2]}")
            elif over:
                but = f"; set aside because it failed: {len(aside)} of the units" if aside else ""
                self._end("finished", reason + but)
        if self.phase == "validating" and self.evaluation.round is None and self._up_to_date():
            self.phase = "testing"
        if self.phase == "testing" and (self._tests_done or not self.evaluation.has("test")):
            self._close()

    def _up_to_date(self) -> bool:
        if not self.evaluation.has("validate"):
            return True
        return bool(self.history) and self.history[-1].version == self.parameters.version

    async def _begin_round(self, now: float) -> None:
        kind = self._wanted_round(now)
        if kind is None:
            return
        vector, version = await self.parameters.copy()
        if kind == "test" and self.best is not None:
            vector, version = self.best_vector, self.best.version
        self._evaluated_at = now
        self.evaluation.begin(kind, vector, version, self.book.epochs_done, self._lease_s)

    def _wanted_round(self, now: float) -> EvaluationKind | None:
        if self.evaluation.round is not None or self.started_at is None:
            return None
        if self.phase == "testing":
            return "test"  # `_decide` has gone on where there is nothing to test
        if not self.evaluation.has("validate") or self._up_to_date():
            return None
        least, most = EVALUATE_EVERY_S
        due = now - self._evaluated_at >= min(most, max(least, 0.05 * self.elapsed_s(now)))
        return (
            "validate" if self.phase == "validating" or (self.phase == "training" and due) else None
        )

    # -- the result ---------------------------------------------------------------------------

    async def result(self) -> Vector:
        """The best parameters, or the last where nothing was evaluated."""
        if self.best is not None:
            return self.best_vector
        last, _ = await self.parameters.copy()
        return last if np.isfinite(last).all() else self.best_vector
