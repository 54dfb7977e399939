"""Every member its own part of the data, neighbours overlapping: the first paper's assignment.

With N members here, ranked J = 0…N−1 by their place in the roster (the host's own worker is one of
them), an epoch's batches are cut into N+1 segments, segment i being [⌊i·T/(N+1)⌋, ⌊(i+1)·T/(N+1)⌋)
of T batches. Member J trains on segments J and J+1: the first and the last segment are trained on
once an epoch, all others by two members (crowdsource platform, Trinity College Dublin, 2018).

Members go through their epochs at their own pace. When somebody comes or goes, everybody's segments
are cut anew at once: what a member did itself in its current epoch is not done again, what the new
segments add is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crowdgrad.domain.work import Unit, VolunteerId
from crowdgrad.planner.assignment import AssignmentState, End, Piece, Progress
from crowdgrad.planner.batches import EpochPlans


class Spans:
    """A set of batch numbers, kept as ranges that neither overlap nor touch.

    A member works through its part from the front, so however large the part is, there are few.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)

    def add(self, start: int, stop: int) -> None:
        low, high = bisect_left(self._stops, start), bisect_right(self._starts, stop)
        if low < high:  # one with all it overlaps or touches
            start, stop = min(start, self._starts[low]), max(stop, self._stops[high - 1])
        self._starts[low:high] = [start]
        self._stops[low:high] = [stop]

    def remove(self, start: int, stop: int) -> None:
        low, high = bisect_right(self._stops, start), bisect_left(self._starts, stop)
        if low >= high:
            return
        ends = (self._starts[low], start), (stop, self._stops[high - 1])
        kept = [(first, last) for first, last in ends if first < last]
        self._starts[low:high] = [first for first, _ in kept]
        self._stops[low:high] = [last for _, last in kept]

    def count(self, within: range) -> int:
        low = bisect_right(self._stops, within.start)
        high = bisect_left(self._starts, within.stop)
        return sum(
            min(self._stops[i], within.stop) - max(self._starts[i], within.start)
            for i in range(low, high)
        )

    def gap(self, within: range) -> range:
        """The first stretch of `within` that is not in the set; empty if all of it is."""
        start, at = within.start, bisect_right(self._stops, within.start)
        if at < len(self._starts) and self._starts[at] <= start:
            start, at = self._stops[at], at + 1
        stop = self._starts[at] if at < len(self._starts) else within.stop
        return range(start, min(stop, within.stop))


@dataclass(slots=True)
class _Member:
    epoch: int
    taken: Spans = field(default_factory=Spans)
    """What was handed out in its epoch and not taken back: under way, done or set aside."""
    done: Spans = field(default_factory=Spans)
    open: int = 0
    """Units under way, also of an earlier epoch where a checkpoint had them so."""
    rank: int = 0
    part: range = range(0)
    """Its two segments, which lie side by side."""
    progress: float = 0.0
    begun: bool = False

    @property
    def idle(self) -> bool:
        return not self.open and not self.taken.gap(self.part)


class Segments:
    def __init__(self, plans: EpochPlans, *, epochs: int) -> None:
        self.plans = plans
        self._epochs = epochs
        self._members: dict[VolunteerId, _Member] = {}
        """Everyone who ever had a unit: whoever comes back goes on where it was."""
        self._here: dict[VolunteerId, _Member] = {}
        """By rank. When the last one leaves they stay: their work is what is still to be done."""
        self._deserted = True

    @property
    def finished(self) -> bool:
        return bool(self._here) and all(member.idle for member in self._here.values())

    def epochs_done(self, done_samples: int) -> float:
        """The mean over those who are here; a batch done by two counts for both."""
        if not self._here:
            return 0.0
        return sum(member.progress for member in self._here.values()) / len(self._here)

    def members(self, ranked: Sequence[VolunteerId]) -> None:
        self._deserted = not ranked
        if self._deserted:
            return
        old = [self._members[who] for who in ranked if who in self._members]
        start = min((member.epoch for member in old or self._here.values()), default=0)
        for who in self._here.keys() - set(ranked):
            if not self._members[who].begun:  # it only looked in: do not remember it for ever
                del self._members[who]
        self._here = {who: self._members.setdefault(who, _Member(start)) for who in ranked}
        for rank, member in enumerate(self._here.values()):
            member.rank = rank
            self._settle(member)

    def next(
        self,
        volunteer: VolunteerId,
        *,
        batches: int,
        holds: Collection[int],
        at_work: Mapping[int, int],
    ) -> tuple[Piece | None, str]:
        """Its own next ones in order, whichever shards it holds: it needs all of them anyway."""
        member = self._here.get(volunteer)
        if member is None or self._deserted:
            return None, "you have no segments: you are not in the roster"
        gap = member.taken.gap(member.part)
        if not gap:
            under_way = f"your last {member.open} units of this epoch are under way"
            return None, under_way if member.open else "all of your segments are done"
        plan = self.plans.at(member.epoch)
        shard = plan.shard_of(gap.start)
        stop = min(gap.start + batches, gap.stop, plan.of_shard(shard).stop)
        member.taken.add(gap.start, stop)
        member.open += 1
        member.begun = True
        piece = Piece(
            epoch=member.epoch,
            shard=shard,
            first_batch=gap.start,
            batches=stop - gap.start,
            owner=volunteer,
        )
        ours = f"{member.rank} and {member.rank + 1} of {len(self._here) + 1}"
        return piece, f"of your segments {ours}, epoch {member.epoch + 1}"

    def shards_of(self, volunteer: VolunteerId) -> range:
        """The shards its segments lie in; none where it has no segments."""
        member = self._here.get(volunteer)
        if member is None or not member.part:
            return range(0)
        plan = self.plans.at(member.epoch)
        return range(plan.shard_of(member.part.start), plan.shard_of(member.part.stop - 1) + 1)

    def closed(self, unit: Unit, owner: VolunteerId | None, end: End) -> None:
        assert owner is not None, f"unit {unit.id} has no owner"
        member = self._members[owner]
        member.open -= 1
        if unit.epoch == member.epoch:
            stop = unit.first_batch + unit.batches
            if end == "done":
                member.done.add(unit.first_batch, stop)
            elif end == "void":
                member.taken.remove(unit.first_batch, stop)
        if owner in self._here:
            self._settle(member)

    def _settle(self, member: _Member) -> None:
        """Find its part, and go on to the next epoch when nothing of this one is left or open."""
        self._place(member)
        while member.idle and member.epoch < self._epochs - 1:
            # Without any batches (fewer than half as many as members) there is nothing to wait for.
            member.epoch = member.epoch + 1 if member.part else self._epochs - 1
            member.taken, member.done = Spans(), Spans()
            self._place(member)
        share = member.done.count(member.part) / len(member.part) if member.part else 1.0
        member.progress = member.epoch + share

    def _place(self, member: _Member) -> None:
        total, cuts = self.plans.at(member.epoch).total, len(self._here) + 1
        member.part = range(member.rank * total // cuts, (member.rank + 2) * total // cuts)

    # -- checkpoints --------------------------------------------------------------------------

    def snapshot(self) -> AssignmentState:
        return AssignmentState(
            progress=tuple(
                Progress(
                    who=who, epoch=member.epoch, taken=tuple(member.taken), done=tuple(member.done)
                )
                for who, member in self._members.items()
            ),
            ranked=tuple(self._here),
        )

    def restore(
        self, state: AssignmentState, waiting: Iterable[tuple[Unit, VolunteerId | None]]
    ) -> None:
        """Whoever is here stays here: it goes on from what it had done at the checkpoint."""
        here = () if self._deserted else tuple(self._here)
        self._members = {
            told.who: _Member(told.epoch, Spans(told.taken), Spans(told.done), begun=True)
            for told in state.progress
            if told.who is not None
        }
        for unit, owner in waiting:
            assert owner is not None, f"unit {unit.id} has no owner"
            member = self._members[owner]
            member.open += 1
            if unit.epoch == member.epoch:
                member.done.remove(unit.first_batch, unit.first_batch + unit.batches)
        self._here = {}
        self.members(state.ranked)
        self.members(here)
