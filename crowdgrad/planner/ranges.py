"""Every batch once an epoch, in ranges, by whoever asks: the assignment most jobs use.

A volunteer goes on in the shard it is at, then in one it holds, else in any; of several, in that
with the fewest at work, so that people spread: reading a shard in its order has a price, however
few of its batches one computes. The end of an epoch is not a barrier: the next opens when the last
batch of this one has been handed out. Data that comes meanwhile waits for the next (`passes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from crowdgrad.domain.work import Unit, VolunteerId
from crowdgrad.planner.assignment import AssignmentState, End, Piece, Progress
from crowdgrad.planner.batches import EpochPlans
from crowdgrad.planner.passes import Passes


class Ranges:
    def __init__(
        self, plans: EpochPlans, *, epochs: int, shard_order: Callable[[int], Sequence[int]]
    ) -> None:
        """`shard_order(epoch)` is the order in which an epoch's shards are first handed out; others
        that it names, which came later, are passed over."""
        self.plans = plans
        self._epochs = epochs
        self._shard_order = shard_order
        self._epoch = -1
        self._passes = Passes()
        self._fresh: dict[int, int] = {}  # this epoch's shards → next batch to hand out
        self._open = 0
        self._at: dict[VolunteerId, int] = {}
        """The shard each member's last batches were of."""

    @property
    def finished(self) -> bool:
        return not self._open and not self._fresh and self._epoch >= self._epochs - 1

    def epochs_done(self, done_samples: int) -> float:
        return self._passes.done(
            done_samples, self._epoch, len(self.plans.shards), self.plans.records_in
        )

    def members(self, ranked: Sequence[VolunteerId]) -> None:
        """Nothing is anyone's own; where those who went were at does not matter any more."""
        self._at = {who: self._at[who] for who in ranked if who in self._at}

    def next(
        self,
        volunteer: VolunteerId,
        *,
        batches: int,
        holds: Collection[int],
        at_work: Mapping[int, int],
    ) -> tuple[Piece | None, str]:
        if not self._fresh and self._epoch < self._epochs - 1:
            self._passes.begin(self._epoch + 1, len(self.plans.shards))
            self._begin(self._epoch + 1, {})
        if not self._fresh:
            last = "last unit is" if self._open == 1 else f"last {self._open} units are"
            waiting = f"the {last} with others"
            return None, waiting if self._open else "every unit is done"
        shard = self._at.get(volunteer)
        if shard in self._fresh:  # held, or being fetched
            return self._cut(shard, batches), "of the shard you are at"
        held = [s for s in self._fresh if s in holds]
        shard = min(held or self._fresh, key=lambda s: at_work.get(s, 0))
        self._at[volunteer] = shard
        reason = "of a shard you hold" if held else "of the shard with the fewest volunteers"
        return self._cut(shard, batches), reason

    def closed(self, unit: Unit, owner: VolunteerId | None, end: End) -> None:
        assert end != "void", "what belongs to nobody is not void when somebody leaves"
        self._open -= 1

    # -- checkpoints --------------------------------------------------------------------------

    def snapshot(self) -> AssignmentState:
        taken = []
        if self._epoch >= 0:
            batches = self.plans.at(self._epoch)
            for shard in self._covered:
                numbers = batches.of_shard(shard)
                taken.append((numbers.start, self._fresh.get(shard, numbers.stop)))
        return AssignmentState(
            progress=(Progress(who=None, epoch=self._epoch, taken=tuple(taken)),),
            passes=self._passes.steps,
        )

    def restore(
        self, state: AssignmentState, waiting: Iterable[tuple[Unit, VolunteerId | None]]
    ) -> None:
        (progress,) = state.progress
        self._epoch, self._fresh = progress.epoch, {}
        # Those of earlier versions kept none: then all epochs had the same shards.
        self._passes = Passes(state.passes or ((0, len(progress.taken)),) * (progress.epoch >= 0))
        if progress.epoch >= 0:
            self._begin(progress.epoch, dict(progress.taken))
        self._open = len(list(waiting))

    # -- the epoch ----------------------------------------------------------------------------

    @property
    def _covered(self) -> tuple[int, ...]:
        """The shards of this epoch: those that were there when it began."""
        return self.plans.shards[: self._passes.shards_in(self._epoch)]

    def _begin(self, epoch: int, handed_out: Mapping[int, int]) -> None:
        """`handed_out`: a shard's first batch → the first one that is still fresh."""
        self._epoch = epoch
        batches, covered = self.plans.at(epoch), frozenset(self._covered)
        for shard in filter(covered.__contains__, self._shard_order(epoch)):
            numbers = batches.of_shard(shard)
            first = handed_out.get(numbers.start, numbers.start)
            if first < numbers.stop:
                self._fresh[shard] = first

    def _cut(self, shard: int, most: int) -> Piece:
        first, end = self._fresh[shard], self.plans.at(self._epoch).of_shard(shard).stop
        batches = min(most, end - first)
        if first + batches == end:
            del self._fresh[shard]
        else:
            self._fresh[shard] = first + batches
        self._open += 1
        return Piece(epoch=self._epoch, shard=shard, first_batch=first, batches=batches)
