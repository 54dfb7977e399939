"""The training itself, as its callers see it: members, units, updates, and time that passes.

Every method takes `now`; sockets, clocks and disks are the callers'. What there is is the `State`;
who gets which unit are the `Units`, what becomes of an update the `Updates`, what is gone back to
the `Setbacks`; how it goes on and ends is the `Course`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.domain.job import Job, JobState, Member, Roster, Volunteer
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import UnitId, Update, Version, VolunteerId
from crowdgrad.errors import PeerError
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.looking import Looking
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.members.attendance import Attendance
from crowdgrad.host.members.departures import STAYED
from crowdgrad.host.setbacks import Claim, Setbacks
from crowdgrad.host.state import Hold, State
from crowdgrad.host.units import Granted, Units
from crowdgrad.host.updates import Taken, Updates
from crowdgrad.numerics.vectors import Vector
from crowdgrad.recipes.base import Recipe

EXPLODES = "The validation loss ({loss:.3g}) is far above what it was: try a smaller learning rate."
STANDS_STILL = "Training stands still"


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
        metrics_bytes: Callable[[], int] = lambda: 0,
        claim: Claim | None = None,
        hold: Hold | None = None,
        looking: Looking | None = None,
    ) -> None:
        """`wait_for`: volunteers that must be here before anybody begins.

        `initial` is the training's own from now on: it becomes the state that is trained.
        `metrics_bytes`: how long the file of metrics is, for checkpoints. `claim`: an incarnation
        that no host of this job has had. `hold`: who holds the parameters; by default this process.
        `looking`: at single training records, whether their labels look wrong.
        """
        self.state = State(
            job=job,
            spec=spec,
            manifest=manifest,
            initial=initial,
            recipe=recipe,
            lease_s=lease_s,
            wait_for=wait_for,
            metrics_bytes=metrics_bytes,
            hold=hold,
            looking=looking,
        )
        self.spec = spec
        self.parameters = self.state.parameters
        self.ledger = self.state.ledger
        self.turns = self.state.turns
        self.book = self.state.book
        self.course = self.state.course
        self._setbacks = Setbacks(self.state, self.fail, claim)
        self.attendance = Attendance(self.state)
        self._units = Units(self.state, self.fail)
        self._updates = Updates(self.state, self._setbacks, self.fail)

    @property
    def job(self) -> Job:
        """With the manifest of what is trained on now."""
        return self.state.job

    def grow(self, manifest: Manifest, name: ChunkHash) -> None:
        """The data has become longer: a manifest that extends the last, and its hash."""
        self.state.grow(manifest, name)

    # -- members ------------------------------------------------------------------------------

    def segments_of(self, volunteer: VolunteerId) -> tuple[tuple[int, int], ...]:
        """Shards that are a member's own, as ranges; none where members have none."""
        return self.state.segments_of(volunteer)

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
        self.parameters.joined(volunteer.id)
        return account

    def leave(self, volunteer: VolunteerId, why: str, now: float | None = None) -> None:
        """`why` in plain words: it is recorded and shown."""
        self.attendance.forget(volunteer)
        self.parameters.left(volunteer)
        self.book.leave(volunteer, why)
        self.turns.gone(volunteer)
        if self.course.evaluation.round is not None:
            self.course.evaluation.round.book.leave(volunteer, why)
        elapsed_s = self.course.elapsed_s(now) if now is not None else 0.0
        self.ledger.leave(volunteer, why, now, at_s=elapsed_s)
        self.state.tell_members()
        self.state.free()

    def roster(self) -> Roster:
        return Roster(
            job=self.job.id,
            members=tuple(
                Member(position=a.position, id=a.volunteer.id, name=a.volunteer.name)
                for a in self.ledger.connected()
            ),
        )

    # -- units and updates --------------------------------------------------------------------

    def lease(
        self,
        now: float,
        account: Contribution,
        holds: Collection[int],
        base: Version,
        after: UnitId | None = None,
    ) -> tuple[Granted | None, str]:
        """The next unit for a member, or none, and why.

        `after`: the unit whose update it has just sent; where that belongs to a chain that goes on,
        so does the replica.
        """
        if self.parameters.away:
            account.state = f"waiting: {self.parameters.away}"
            return None, self.parameters.away
        return self._units.lease(now, account, holds, base, after)

    def may_fetch(self, account: Contribution) -> bool:
        """Whether a member is in the middle of a unit with a fetch to come; counts it."""
        return self._units.may_fetch(account)

    def give_back(
        self, now: float, account: Contribution, unit: UnitId, why: str, *, rests: bool = False
    ) -> None:
        self._units.give_back(now, account, unit, why, rests=rests)

    async def take(
        self, now: float, account: Contribution, update: Update, vector: Vector | None
    ) -> str:
        """What becomes of an update: `accepted`, or why it was not used."""
        return await self._updates.take(now, account, update, vector)

    def take_at_once(
        self, now: float, account: Contribution, update: Update, payload: memoryview
    ) -> Taken | None:
        """An update that is as it should be; None: `take` it. `settle` must follow."""
        return self._updates.take_at_once(now, account, update, payload)

    def settle(self, now: float, account: Contribution, taken: Taken) -> None:
        """Credit what was taken at once, before anybody else can look."""
        self._updates.settle(now, account, taken)

    async def turned(self, patience_s: float) -> None:
        """Wait until a round closes, but no longer than that."""
        await self._updates.turned(patience_s)

    # -- checkpoints --------------------------------------------------------------------------

    async def checkpoint(self, now: float) -> Checkpoint:
        """Everything at one version: what is not in the parameters yet is not done in it."""
        return await self._setbacks.checkpoint(now)

    async def sound(self, checkpoint: Checkpoint) -> bool:
        """Whether all it holds is finite."""
        return await self._setbacks.sound(checkpoint)

    async def resume(
        self,
        now: float,
        checkpoint: Checkpoint,
        incarnation: int,
        best: Vector | None = None,
        *,
        anew: bool = False,
    ) -> None:
        """Go on from where another host stopped; nobody is here yet.

        `incarnation`: one that no host of this job has had. `best`: the best parameters, where they
        were kept. `anew`: go on also if it had decided to end.
        """
        await self._setbacks.resume(now, checkpoint, incarnation, best, anew=anew)

    async def numbers_lost(self, why: str) -> None:
        """What held the parameters has lost some: go back to the last good checkpoint."""
        await self._setbacks.recover(why)

    # -- at somebody's wish -------------------------------------------------------------------

    def pause(self, now: float) -> bool:
        """No further units until `go_on`; what is under way is still taken. Whether it is new."""
        return self.course.phase == "training" and self.course.pause(now)

    def go_on(self, now: float) -> bool:
        """Whether it was paused until now."""
        return self.course.go_on(now)

    def finish(self, now: float, reason: str) -> bool:
        """Train no further, but validate and test as at the end. Whether that is new."""
        if self.course.phase != "training":
            return False
        self.course.go_on(now)
        self.course.begin(now)  # also where nobody has come yet: then the first are the last
        self.course.end("finished", reason)
        return True

    def stop(self, reason: str) -> bool:
        """End now: no further evaluation, the best so far is kept. Whether that is new."""
        if self.course.phase == "over":
            return False
        self._end_now("stopped", reason)
        return True

    def set_rate(self, wanted: float) -> bool:
        """Another learning rate from the next update and unit on. Whether that is new.

        Raises ValueError where it is too far from what the recipe says.
        """
        return self.course.phase == "training" and self.state.set_rate(wanted)

    def progress(self, now: float) -> float:
        """How far training has come, 0 to 1, by epochs or by time, whichever is nearer its end."""
        ending = self.course.ending
        if ending is not None and ending.state == "finished":
            return 1.0
        rule = self.job.stop
        by_time = self.course.elapsed_s(now) / (60 * rule.minutes) if rule.minutes else 0.0
        return min(1.0, max(self.book.epochs_done / rule.epochs, by_time))

    # -- time passes --------------------------------------------------------------------------

    async def tick(self, now: float) -> list[Scores]:
        """Lapse leases, begin and close evaluations, decide whether it is over."""
        self.attendance.awake(now)
        self._note_who_is_away()
        for _, who in self.book.lapse(now):
            self.ledger[who].asked = False  # until it is heard of again, nobody waits for it
            self.turns.gone(who)
            self.state.tell_members()
        if self.course.evaluation.round is not None:
            self.course.evaluation.round.book.lapse(now)
        self._units.usual_s = self.ledger.usual_batch_s()
        scores = self.course.close_round(now, self.state.train_loss)
        if scores is not None and scores.kind == "validate":
            await self._judge_candidate(scores)
        await self._updates.close_turn(now)
        self._decide(now)
        if self.course.phase != "training":
            await self._updates.flush()
        await self._look(now)
        return [scores] if scores is not None else []

    def _note_who_is_away(self) -> None:
        away = self.parameters.away
        if away or self.state.warning.startswith(STANDS_STILL):
            self.state.warning = f"{STANDS_STILL}: {away}." if away else ""

    async def _judge_candidate(self, scores: Scores) -> None:
        if math.isfinite(scores.loss):
            plausible = self.course.plausible(scores)
            self.state.warning = "" if plausible else EXPLODES.format(loss=scores.loss)
            if plausible and await self._setbacks.sound(self._setbacks.last.candidate):
                self._setbacks.confirm()
        elif self.course.phase == "training":
            await self._setbacks.go_back(
                f"the validation loss is no longer a finite number ({scores.loss})"
            )

    async def _look(self, now: float) -> None:
        """Begin an evaluation where one is due, on a copy that may become a checkpoint."""
        kind = self.course.wanted_round(now, self.parameters.version, self.progress(now))
        blind = self.course.phase == "training" and not self.course.evaluation.has("validate")
        if kind is None and not (blind and self._setbacks.last.due(now)):
            return
        try:
            found = await self._setbacks.checkpoint(now)
        except PeerError:
            return  # what holds the parameters is away: later
        if kind not in ("test", "look"):
            self._setbacks.last.offer(now, found)
        if kind is None:
            if await self._setbacks.sound(found):
                self._setbacks.confirm()
            return
        self.course.begin_round(
            now,
            kind,
            found.saved.vector,
            found.saved.version,
            epoch=self.book.epochs_done,
            lease_s=self.state.lease_s,
        )

    def _decide(self, now: float) -> None:
        if self._setbacks.going_back:
            return
        aside = self.book.set_aside
        all_done = self.book.finished and not self.state.unapplied
        if self.course.phase == "training" and all_done and aside and not self.ledger.total_updates:
            self._end_now("failed", f"every unit failed: {aside[-1].story[-2]}")
        but = f"; set aside because it failed: {len(aside)} of the units" if aside else ""
        self.course.decide(now, self.parameters.version, all_done=all_done, but=but)
        if self.course.phase == "over":
            self._note_who_stayed()

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
        """The best parameters; where nothing was evaluated the last, or the last good ones."""
        await self._updates.flush()
        if self.course.best is not None:
            return self.course.best_vector
        failed = self.course.ending is not None and self.course.ending.state == "failed"
        good = self._setbacks.last.good.saved.vector
        try:
            last, _ = await self.parameters.copy()
        except PeerError:
            return good
        return good if failed or not await self.parameters.finite(last) else last
