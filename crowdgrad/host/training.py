"""The training itself: who gets which unit, and what becomes of an update.

Every method takes `now`; sockets, clocks and disks are the callers'. How it goes on and ends is the
`Course`, whose turn it is are the `Turns`, who did what the `Ledger`, which batches are done the
`LeaseBook`. When the numbers stop being finite, everything goes back to the last good checkpoint,
under a new incarnation and with half the learning rate; nobody is blamed.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from crowdgrad.domain.data import Manifest
from crowdgrad.domain.job import Job, JobState, Member, Roster, Volunteer
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import Unit, UnitId, Update, Version, VolunteerId
from crowdgrad.host.checkpoint import Checkpoint, LastGood
from crowdgrad.host.course import Course
from crowdgrad.host.evaluation import Scores, is_evaluation
from crowdgrad.host.ledger import MAX_FAILURES_IN_A_ROW, STAYED, Contribution, Credited, Ledger
from crowdgrad.host.parameters import Parameters
from crowdgrad.host.turns import Turns
from crowdgrad.numerics.layout import trained_parts
from crowdgrad.numerics.noise import shard_order
from crowdgrad.numerics.vectors import Vector
from crowdgrad.planner.batches import EpochPlans
from crowdgrad.planner.leases import BookState, Entry, LeaseBook
from crowdgrad.planner.ranges import Ranges
from crowdgrad.planner.segments import Segments
from crowdgrad.planner.sizing import unit_batches
from crowdgrad.recipes.base import Recipe

IGNORED = ("too_old", "too_late", "other_incarnation")
"""Verdicts on updates that came too late to be used, which is nobody's fault."""
LOSS_MEMORY = 0.98
"""How much of the shown training loss is carried over from update to update."""
MAX_SETBACKS = 4
"""How often a run goes back to its last good checkpoint before it gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A unit, where it starts and how its replica steps."""

    unit: Unit
    base: Version
    link: int = 0
    rate: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A unit that is done but not in the parameters yet, and whom it is credited to when it is."""

    unit: Unit
    base: Version
    who: VolunteerId
    samples: int
    at: float


class Training:
    def __init__(
        self,
        *,
        job: Job,
        spec: ProgramSpec,
        manifest: Manifest,
        initial: Vector,
        recipe: Recipe,
        lease_s: float,
        wait_for: int = 0,
    ) -> None:
        """`wait_for`: volunteers that must be here before anybody begins."""
        self.job = job
        self.spec = spec
        self._serving = recipe.serving()
        self.parameters = Parameters(
            initial,
            recipe.server_rule(),
            Version(incarnation=0, count=0),
            self._serving,
            trained_parts(spec),
        )
        self.ledger = Ledger(spec.work_per_sample)
        self.turns = Turns(self._serving, wait_for=wait_for)
        plans = EpochPlans.of(manifest, "train", job.local)
        self.book = LeaseBook(self._assignment(plans), kind="train", lease_s=lease_s)
        self.course = Course(job, spec, manifest, initial)
        self.train_loss: float | None = None
        self.staleness: Counter[int] = Counter()
        self.setbacks = 0
        """How often it went back to a checkpoint because the numbers were not finite any more."""
        self.notice = ""
        """What people should know about how it goes."""
        self._lease_s = lease_s
        self._fastest_s: float | None = None
        self._unapplied: dict[UnitId, Done] = {}
        self._freed: set[Version] = set()
        self._turned = asyncio.Event()
        self._last = LastGood(
            Checkpoint(saved=self.parameters.begin(), book=self.book.snapshot(), ledger=())
        )
        self._going_back = False

    def _assignment(self, plans: EpochPlans) -> Ranges | Segments:
        seed, epochs = self.job.seed, self.job.stop.epochs
        if self._serving.assignment == "segments":
            return Segments(plans, epochs=epochs)
        shards = plans.at(0).shards
        return Ranges(
            plans,
            epochs=epochs,
            shard_order=lambda epoch: [shards[i] for i in shard_order(seed, epoch, len(shards))],
        )

    # -- members ------------------------------------------------------------------------------

    def join(
        self,
        now: float,
        volunteer: Volunteer,
        *,
        own: bool,
        hint: int | None = None,
        near: bool = False,
    ) -> Contribution:
        account = self.ledger.join(now, volunteer, own=own, hint=hint)
        account.near = near
        self._tell_members()
        return account

    def leave(self, volunteer: VolunteerId, why: str) -> None:
        self.book.leave(volunteer, why)
        self.turns.gone(volunteer)
        if self.course.evaluation.round is not None:
            self.course.evaluation.round.book.leave(volunteer, why)
        self.ledger.leave(volunteer, why)
        self._tell_members()
        self._free()

    def _tell_members(self) -> None:
        self.book.members([account.volunteer.id for account in self.ledger.connected()])

    def roster(self) -> Roster:
        return Roster(
            job=self.job.id,
            members=tuple(
                Member(position=a.position, id=a.volunteer.id, name=a.volunteer.name)
                for a in self.ledger.connected()
            ),
        )

    # -- units --------------------------------------------------------------------------------

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
        account.asked = True
        chain = account.chains.pop(after, None) if after is not None else None
        if account.own and (unit := self.course.evaluation.lease(now, account.volunteer.id)):
            account.state = "evaluating"
            assert self.course.evaluation.round is not None
            return Granted(unit=unit, base=self.course.evaluation.round.version), "evaluation"
        if self.course.phase != "training":
            return None, f"training is over, {self.course.phase}"
        reason = self._not_now(now, account)
        granted = None
        if not reason:
            start, link = chain or (base, 0)
            granted, reason = self._lease(now, account, holds, start, link)
        account.state = "training" if granted else f"waiting: {reason}"
        return granted, reason

    def _lease(
        self, now: float, account: Contribution, holds: Collection[int], base: Version, link: int
    ) -> tuple[Granted | None, str]:
        who = account.volunteer.id
        most = self.job.local.batches_per_unit
        if account.near and self._serving.near_batches:
            most = self._serving.near_batches
        if self._serving.matched:
            most, _ = unit_batches(most, account.batch_s, self._fastest_s)
        unit, reason = self.book.lease(
            now,
            who,
            base,
            holds=holds,
            lease_s=account.lease_s(self._lease_s),
            batches=most,
            link=link,
        )
        if unit is None:
            self.turns.nothing_for(who)
            return None, reason
        if self.course.started_at is None:
            self.course.started_at = now
        account.leased_at[unit.id] = now
        self.turns.leased(who)
        rate = self._serving.local_rate * self._rate_factor()
        return Granted(unit=unit, base=base, link=link, rate=rate), reason

    def _not_now(self, now: float, account: Contribution) -> str:
        """Why a member gets no unit although there may be some; empty if it may have one."""
        held = self.book.holding(account.volunteer.id)
        if held > self.job.local.overlap:
            return f"you have {held} units already"
        if now < account.paused_until and not account.own:
            return f"your last {MAX_FAILURES_IN_A_ROW} units failed"
        return self.turns.reason_to_wait(account, self.ledger, self.book.done_batches)

    @property
    def rate(self) -> float:
        """The host's learning rate now, before staleness."""
        return self._serving.rate * self._rate_factor()

    def _rate_factor(self) -> float:
        schedule, factor = self._serving.schedule, 1.0
        if not schedule.constant:
            factor = schedule.factor(
                epoch=self.book.epochs_done,
                epochs=self.job.stop.epochs,
                volunteers=sum(account.asked for account in self.ledger.connected()),
            )
        return float(factor * 0.5**self.setbacks)

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
            self.turns.gone(who)
            self._free()
        elif self.course.evaluation.round is not None:  # only worker 0 can try again: no blame
            self.course.evaluation.round.book.give_back(unit, who, why, failed=False)

    # -- updates ------------------------------------------------------------------------------

    async def take(
        self, now: float, account: Contribution, update: Update, vector: Vector | None
    ) -> str:
        """What becomes of an update: `accepted`, or why it was refused."""
        verdict = await self._judge(now, account, update, vector)
        self._free()
        if verdict in IGNORED:
            self.ledger.ignore(account.volunteer.id)
        elif verdict not in ("accepted", "over"):
            self.ledger.refuse(account.volunteer.id, verdict)
        if verdict != "accepted":
            self.turns.gone(account.volunteer.id)
        await self._close_turn(now)
        return verdict

    async def _judge(
        self, now: float, account: Contribution, update: Update, vector: Vector | None
    ) -> str:
        who = account.volunteer.id
        if is_evaluation(update.unit):
            return self.course.evaluation.finish(update, who) if account.own else "not_yours"
        if self.course.phase != "training":
            return "over"
        if vector is None:
            return "no_vector"
        entry, refusal = self._look_up(update, who)
        if entry is None:
            return str(refusal)
        expected = self.book.samples(entry.unit)
        if update.samples != expected:
            why = f"wrong_samples ({update.samples} for {expected})"
            return self._fail(now, account, update, why)
        if not math.isfinite(update.loss) or not await self.parameters.finite(vector):
            return await self._not_finite(now, account, update)
        # Between the question above and here others may have finished the unit, or we may have gone
        # back: ask again, and from now on it is ours alone.
        entry, refusal = self._look_up(update, who)
        if entry is None:
            return str(refusal)
        if late := self._late(update.base):
            self.book.give_back(update.unit, who, late, failed=False)
            return late
        return await self._accept(now, account, update, vector)

    def _look_up(self, update: Update, who: VolunteerId) -> tuple[Entry | None, str | None]:
        incarnation = self.parameters.version.incarnation
        return self.book.judge(update.unit, who, update.base, incarnation)

    def _late(self, base: Version) -> str:
        """Why an update from this version is not used; empty if it is."""
        if self.turns.in_rounds and (base != self.parameters.version or not self.turns.open):
            return "too_late"
        most = self._serving.max_staleness
        if most and self.parameters.version.staleness(base) > most:
            return "too_old"
        return ""

    async def _accept(
        self, now: float, account: Contribution, update: Update, vector: Vector
    ) -> str:
        who = account.volunteer.id
        lease = self.book.lease_of(update.unit, who)
        unit, refusal = self.book.finish(
            update.unit, who, update.base, self.parameters.version.incarnation
        )
        if unit is None or lease is None:
            return str(refusal)
        self._unapplied[unit.id] = Done(
            unit=unit, base=update.base, who=who, samples=update.samples, at=now
        )
        if lease.link + 1 < self.job.local.units_per_fetch:
            account.chains[unit.id] = (update.base, lease.link + 1)
        kept = LOSS_MEMORY if self.train_loss is not None else 0.0
        self.train_loss = kept * (self.train_loss or 0.0) + (1 - kept) * update.loss
        if self.turns.in_rounds:
            self.turns.delivered(who)
            merged = await self.parameters.merge(
                vector, update.base, samples=update.samples, batches=unit.batches
            )
            return "accepted" if merged else "other_incarnation"
        staleness = await self.parameters.apply(
            vector,
            update.base,
            rate=self.rate,
            batches=unit.batches,
            under_way=self.book.leased,
            applied=lambda staleness: self._applied(staleness, [unit.id]),
        )
        return "accepted" if staleness is not None else "other_incarnation"

    def _applied(self, staleness: int, units: Iterable[UnitId]) -> None:
        """These are in the parameters now: only what is there is credited."""
        for number in units:
            done = self._unapplied.pop(number)
            self.staleness[staleness] += 1
            self.ledger.accept(
                done.at, done.who, done.unit, samples=done.samples, staleness=staleness
            )

    def _free(self) -> None:
        """Let go of what nobody works from any more and no update still waits for."""
        self._freed.update(self.book.freed())
        wanted = {done.base for done in self._unapplied.values()}
        self.parameters.drop(self._freed - wanted)
        self._freed &= wanted

    def _fail(self, now: float, account: Contribution, update: Update, why: str) -> str:
        account.failed(now)
        self.book.give_back(update.unit, account.volunteer.id, why, failed=True)
        return why

    async def _not_finite(self, now: float, account: Contribution, update: Update) -> str:
        # Our own arithmetic on our own data lies to nobody: it diverged. A stranger's word counts
        # only where our own parameters confirm it.
        if account.own or not await self.parameters.sound():
            await self._go_back(f"the loss is no longer a finite number ({update.loss})")
            return "other_incarnation"
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

    async def _close_turn(self, now: float) -> None:
        close, _ = self.turns.should_close(now, self.ledger)
        if not close or self.course.phase != "training":
            return
        self.turns.close()
        incarnation = self.parameters.version.incarnation
        units = list(self._unapplied)
        await self.parameters.apply_merged(rate=self.rate, applied=lambda: self._applied(0, units))
        if self.parameters.version.incarnation == incarnation:  # otherwise it has begun anew
            self.turns.next_round()
        self._turned.set()
        self._turned = asyncio.Event()

    # -- going back ---------------------------------------------------------------------------

    async def checkpoint(self) -> Checkpoint:
        """Everything at one version: what is not in the parameters yet is not done in it."""

        def beside() -> tuple[BookState, tuple[Credited, ...]]:
            units = [done.unit for done in self._unapplied.values()]
            return self.book.snapshot(units), self.ledger.snapshot()

        saved, (book, ledger) = await self.parameters.save(beside)
        return Checkpoint(saved=saved, book=book, ledger=ledger)

    async def resume(self, checkpoint: Checkpoint, incarnation: int) -> None:
        """Go on from where another host stopped; nobody is here yet.

        `incarnation`: one that no host of this job has had.
        """
        self.ledger.restore(checkpoint.ledger)
        await self._be(checkpoint, incarnation)

    async def _be(self, checkpoint: Checkpoint, incarnation: int) -> None:
        version = Version(incarnation=incarnation, count=checkpoint.saved.version.count)
        await self.parameters.go_back(
            checkpoint.saved, version, lambda: self._begin_again(checkpoint.book)
        )

    async def _go_back(self, why: str) -> None:
        """To the last good checkpoint with half the rate; after too many times it is over."""
        if self.course.ending is not None or self._going_back:
            return
        good = self._last.good
        if self.setbacks >= MAX_SETBACKS:
            self._end_now(
                "failed",
                f"{why}, and going back {self.setbacks} times did not help: try a learning rate "
                f"well below {self.rate:.3g}; the best parameters so far are kept",
            )
            return
        self._going_back = True
        before = self.parameters.version
        await self._be(good, before.incarnation + 1)
        self._going_back = False
        self.setbacks += 1
        self.notice = (
            f"{why[:1].upper()}{why[1:]}: went back from version {before} to "
            f"{good.saved.version} and goes on with half the learning rate, {self.rate:.3g}. "
            "Nobody is to blame; a smaller lr avoids this."
        )

    def _begin_again(self, book: BookState) -> None:
        self.book.restore(book)
        self.course.evaluation.round = None
        self._last.forget()
        self._unapplied.clear()
        self.turns.next_round()
        self.ledger.forgive()
        self.train_loss = None
        self._tell_members()
        self._free()

    # -- time passes --------------------------------------------------------------------------

    async def tick(self, now: float) -> list[Scores]:
        """Lapse leases, begin and close evaluations, decide whether it is over."""
        for _, who in self.book.lapse(now):
            self.turns.silent(who)
        if self.course.evaluation.round is not None:
            self.course.evaluation.round.book.lapse(now)
        self._fastest_s = min(
            (a.batch_s for a in self.ledger.connected() if a.batch_s is not None), default=None
        )
        scores = self.course.close_round(now, self.train_loss)
        if scores is not None and scores.kind == "validate":
            await self._judge_candidate(scores)
        await self._close_turn(now)
        self._decide(now)
        await self._look(now)
        return [scores] if scores is not None else []

    async def _judge_candidate(self, scores: Scores) -> None:
        if math.isfinite(scores.loss):
            if self.course.plausible(scores):
                self._last.confirm()
        elif self.course.phase == "training":
            await self._go_back(f"the validation loss is no longer a finite number ({scores.loss})")

    async def _look(self, now: float) -> None:
        """Begin an evaluation where one is due, on a copy that may become a checkpoint."""
        kind = self.course.wanted_round(now, self.parameters.version)
        blind = self.course.phase == "training" and not self.course.evaluation.has("validate")
        if kind is None and not (blind and self._last.due(now)):
            return
        found = await self.checkpoint()
        if kind != "test":
            self._last.offer(now, found)
        if kind is None:
            if await self.parameters.finite(found.saved.vector):
                self._last.confirm()
            return
        self.course.begin_round(
            now,
            kind,
            found.saved.vector,
            found.saved.version,
            epoch=self.book.epochs_done,
            lease_s=self._lease_s,
        )

    def _decide(self, now: float) -> None:
        aside = self.book.set_aside
        all_done = self.book.finished and not self._unapplied
        if self.course.phase == "training" and all_done and aside and not self.ledger.total_updates:
            self._end_now("failed", f"every unit failed: {aside[-1].story[-2]}")
        but = f"; set aside because it failed: {len(aside)} of the units" if aside else ""
        self.course.decide(now, self.parameters.version, all_done=all_done, but=but)
        if self.course.phase == "over":
            self._note_who_stayed()

    def stop(self, reason: str) -> None:
        """End now, at somebody's wish: no further evaluation, the best so far is kept."""
        if self.course.phase != "over":
            self._end_now("stopped", reason)

    def fail(self, reason: str) -> None:
        """End now because of trouble on the host's side."""
        if self.course.phase != "over":
            self._end_now("failed", reason)

    def _end_now(self, state: JobState, reason: str) -> None:
        self.course.end(state, reason)
        self._note_who_stayed()

    def _note_who_stayed(self) -> None:
        for account in self.ledger.connected():
            account.state = STAYED

    # -- the result ---------------------------------------------------------------------------

    async def result(self) -> Vector:
        """The best parameters, or the last where nothing was evaluated."""
        if self.course.best is not None:
            return self.course.best_vector
        last, _ = await self.parameters.copy()
        return last if np.isfinite(last).all() else self.course.best_vector
