"""Going back: checkpoints, and what happens when the numbers stop being finite.

Everything goes back to the last good checkpoint, under a new incarnation and with half the learning
rate; nobody is blamed. A resumed host is the same thing with nobody here yet.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Awaitable, Callable

from crowdgrad.domain.work import Version
from crowdgrad.host.keeping.checkpoint import Checkpoint, LastGood
from crowdgrad.host.state import State
from crowdgrad.numerics.vectors import Vector
from crowdgrad.planner.leases import BookState

Claim = Callable[[], Awaitable[int]]
MAX_TRIES = 4
"""How often a run goes back to the same checkpoint before it gives up."""
MAX_SETBACKS = 16
"""How often it goes back at all: the learning rate is next to nothing by then."""


class Setbacks:
    def __init__(
        self, state: State, fail: Callable[[str], None], claim: Claim | None = None
    ) -> None:
        """`fail(why)` ends the job. `claim`: an incarnation that nobody has had; by default, where
        nothing outlives this process, the next one."""
        self._state = state
        self._end_job = fail
        self._claim = claim or self._next
        self.last = LastGood(
            Checkpoint(
                saved=state.parameters.begin(state.course.best_vector),
                book=state.book.snapshot(),
                ledger=state.ledger.snapshot(),
                course=state.course.snapshot(0.0),
            )
        )
        self._refuge: Vector | None = None
        """Where even the checkpoint that we went on from was bad already: the best parameters."""
        self.going_back = False
        """What there is now is about to be forgotten: it is nothing to decide on."""
        self._gone_back_to: Checkpoint | None = None
        self._tries = 0

    async def checkpoint(self, now: float) -> Checkpoint:
        """Everything at one version: what is not in the parameters yet is not done in it."""
        state = self._state

        def beside() -> Callable[..., Checkpoint]:
            units = [done.unit for done in state.unapplied.values()]
            return functools.partial(
                Checkpoint,
                book=state.book.snapshot(units),
                ledger=state.ledger.snapshot(),
                course=state.course.snapshot(now),
                setbacks=state.setbacks,
                rate_factor=state.rate_factor,
                starts=state.starts,
                staleness=tuple(sorted(state.staleness.items())),
                train_loss=state.train_loss,
                metrics_bytes=state.metrics_bytes(),
                growths=state.growths,
                shards=len(state.manifest.shards),
            )

        saved, made = await state.parameters.save(beside)
        return made(saved=saved)

    async def resume(
        self,
        now: float,
        checkpoint: Checkpoint,
        incarnation: int,
        best: Vector | None,
        *,
        anew: bool,
    ) -> None:
        """Go on from where another host stopped; nobody is here yet.

        `incarnation`: one that no host of this job has had. `best`: the best parameters, where they
        were kept. `anew`: go on also if it had decided to end.
        """
        state = self._state
        state.setbacks, state.starts = checkpoint.setbacks, checkpoint.starts + 1
        state.rate_factor = checkpoint.rate_factor
        # What was added is kept before anybody trains on it, perhaps after the last checkpoint.
        state.growths = checkpoint.growths + (0 < checkpoint.shards < len(state.manifest.shards))
        state.staleness = Counter(dict(checkpoint.staleness))
        state.course.restore(now, checkpoint.course, best, anew=anew)
        self.last, self._refuge = LastGood(checkpoint), best
        await self._be(checkpoint, incarnation)
        state.ledger.restore(checkpoint.ledger)  # after that, which forgives
        state.train_loss = checkpoint.train_loss

    async def _be(self, checkpoint: Checkpoint, incarnation: int) -> None:
        version = Version(incarnation=incarnation, count=checkpoint.saved.version.count)
        await self._state.parameters.go_back(
            checkpoint.saved, version, lambda: self._begin_again(checkpoint.book)
        )

    def confirm(self) -> None:
        """The last candidate was good."""
        self.last.confirm()
        self._refuge = None

    async def go_back(self, why: str) -> None:
        """To the last good checkpoint with half the rate; after too many times it is over."""
        if self._state.course.ending is not None or self.going_back:
            return
        good = self.last.good
        self._tries = self._tries + 1 if good is self._gone_back_to else 1
        if self._tries > MAX_TRIES and self._refuge is not None:
            good, self._tries = self._take_refuge(good, self._refuge), 1
        self._gone_back_to = good
        if self._tries > MAX_TRIES or self._state.setbacks >= MAX_SETBACKS:
            self._state.notice = ""  # the reason says it all
            self._end_job(
                f"{why}, and going back {self._state.setbacks} times did not help: try a learning "
                f"rate well below {self._state.rate:.3g}; the best parameters so far are kept",
            )
            return
        before = self._state.parameters.version
        self.going_back = True
        try:
            incarnation = await self._claim()
            if self._state.course.phase == "over":  # somebody stopped it meanwhile
                return
            await self._be(good, incarnation)
        finally:
            self.going_back = False
        self._state.setbacks += 1
        self._state.notice = (
            f"{why[:1].upper()}{why[1:]}: went back from version {before} to "
            f"{good.saved.version} and goes on with half the learning rate, "
            f"{self._state.rate:.3g}. Nobody is to blame; a smaller learning rate avoids this."
        )

    async def recover(self, why: str) -> None:
        """To the last good checkpoint because numbers were lost, not because they were bad."""
        if self._state.course.phase == "over" or self.going_back:
            return  # nothing is needed any more, or all is about to be put back anyway
        before, good = self._state.parameters.version, self.last.good
        self.going_back = True
        try:
            await self._be(good, await self._claim())
        finally:
            self.going_back = False
        self._state.notice = (
            f"{why[:1].upper()}{why[1:]} Training went back from version {before} to "
            f"{good.saved.version}; nobody is to blame, and the learning rate stays as it was."
        )

    def _take_refuge(self, bad: Checkpoint, best: Vector) -> Checkpoint:
        """The best parameters in place of a checkpoint's: what was learned since is lost."""
        saved = self._state.parameters.anew(best, bad.saved.version)
        self.last, self._refuge = LastGood(dataclasses.replace(bad, saved=saved)), None
        return self.last.good

    async def _next(self) -> int:
        return self._state.parameters.version.incarnation + 1

    def _begin_again(self, book: BookState) -> None:
        self._state.book.restore(book)
        self._state.course.evaluation.round = None
        self.last.forget()
        self._state.unapplied.clear()
        self._state.turns.next_round()
        self._state.ledger.forgive()
        self._state.train_loss = None
        self._state.tell_members()
        self._state.free()

    async def sound(self, checkpoint: Checkpoint | None) -> bool:
        """Whether all it holds is finite; infinite weights may hide behind a flat activation."""
        if checkpoint is None:
            return False
        vectors = (checkpoint.saved.vector, *checkpoint.saved.memory.vectors.values())
        return all([await self._state.parameters.finite(vector) for vector in vectors])
