"""Who works on what: every unit of a job leased, finished exactly once, and never lost.

What may become of a unit is in `entries.py`; which batches become the next unit is for the
assignment to say (`assignment.py`). A lease that ran out puts its unit back in the queue but is
honoured until somebody finishes the unit: the first valid update wins, later ones are refused as
`already_done`, without blame. Whoever is merely slow is not given the same unit again, unless
nobody else may have it and there is nothing else to do.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from crowdgrad.domain.work import MAX_BATCHES, Unit, UnitId, UnitKind, Version, VolunteerId
from crowdgrad.planner.assignment import Assignment, AssignmentState, End
from crowdgrad.planner.entries import Entry, KeptUnit, Lease

Refusal = Literal["unknown_unit", "already_done", "not_yours", "wrong_base", "other_incarnation"]

MAX_FAILURES = 3
MAX_DOUBLINGS = 10
"""Of the time an owner has for a unit that ran out before: a thousand leases are long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookState:
    """What a checkpoint keeps of a book: no leases, they are not worth keeping."""

    next_id: int
    waiting: tuple[KeptUnit, ...]
    set_aside: tuple[KeptUnit, ...]
    done_units: int
    done_batches: int
    done_samples: int
    assignment: AssignmentState


class _Bases:
    """Which versions are the base of a lease, and which are no longer since the last question."""

    def __init__(self) -> None:
        self._held: Counter[Version] = Counter()
        self._freed: dict[Version, None] = {}

    def hold(self, base: Version) -> None:
        self._held[base] += 1
        self._freed.pop(base, None)

    def release(self, base: Version) -> None:
        self._held[base] -= 1
        if not self._held[base]:
            del self._held[base]
            self._freed[base] = None

    def __contains__(self, base: Version) -> bool:
        return base in self._held

    def take_freed(self) -> list[Version]:
        freed, self._freed = list(self._freed), {}
        return freed


class LeaseBook:
    def __init__(
        self,
        assignment: Assignment,
        *,
        kind: UnitKind,
        lease_s: float,
        first_id: int = 0,
        track_bases: bool = True,
    ) -> None:
        """`track_bases`: whether `freed` and `works_from` will be asked."""
        self._assignment = assignment
        self._kind = kind
        self._lease_s = lease_s
        self._first_id = first_id
        self._next_id = first_id
        self._open: dict[UnitId, Entry] = {}
        self._returned: defaultdict[VolunteerId | None, deque[UnitId]] = defaultdict(deque)
        """By owner, those that wait."""
        self._workers: dict[int, int] = {}  # shard → running leases on it
        self._holding: dict[VolunteerId, int] = {}  # volunteer → running leases
        self._running = 0
        self._tracks = track_bases
        self._bases = _Bases()
        self._owners: dict[UnitId, VolunteerId] = {}
        """Of owned units done since the last snapshot: they may not be in the parameters yet."""
        self.done_units = 0
        self.done_batches = 0
        self.done_samples = 0
        self.set_aside: list[Entry] = []

    # -- questions ----------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        return self._assignment.finished

    @property
    def epochs_done(self) -> float:
        return self._assignment.epochs_done(self.done_samples)

    @property
    def leased(self) -> int:
        """How many units are under way; a unit has at most one running lease."""
        return self._running

    def works_from(self, base: Version) -> bool:
        """Whether a lease of an open unit refers to this version."""
        return base in self._bases

    def samples(self, unit: Unit) -> int:
        """How many records a unit is about."""
        plan = self._assignment.plans.at(unit.epoch)
        return plan.samples(unit.first_batch, unit.batches)

    def holding(self, volunteer: VolunteerId) -> int:
        """How many units a volunteer has under way."""
        return self._holding.get(volunteer, 0)

    def held_by(self, volunteer: VolunteerId) -> list[UnitId]:
        return [
            number
            for number, entry in self._open.items()
            if volunteer in entry.leases and entry.leases[volunteer].running
        ]

    def running(self) -> list[tuple[UnitId, VolunteerId, float]]:
        """Every lease under way: the unit, who has it, and when it ends."""
        return [
            (number, who, lease.ends_at)
            for number, entry in self._open.items()
            for who, lease in entry.leases.items()
            if lease.running
        ]

    def lease_of(self, unit: UnitId, volunteer: VolunteerId) -> Lease | None:
        """The lease by which this volunteer may finish the unit, running or not."""
        entry = self._open.get(unit)
        return entry.leases.get(volunteer) if entry is not None else None

    def freed(self) -> list[Version]:
        """Versions that no update can come from any more, since the last question.

        As long as its unit is open, a lease's base may still be needed, whether it runs or not.
        """
        return self._bases.take_freed()

    # -- decisions ----------------------------------------------------------------------------

    def members(self, ranked: Sequence[VolunteerId]) -> None:
        """Who is here now, in roster order: to be told whenever somebody came or went."""
        self._assignment.members(ranked)

    def lease(
        self,
        now: float,
        volunteer: VolunteerId,
        base: Version,
        *,
        holds: Collection[int] = (),
        lease_s: float | None = None,
        batches: int = 1,
        link: int = 0,
    ) -> tuple[Unit | None, str]:
        """A unit for this volunteer, preferably of a shard it holds; or none, and why.

        A fresh one has at most so many `batches`; one that comes back keeps its size.
        """
        entry, reason = self._choose(now, volunteer, holds, batches)
        if entry is None:
            return None, reason
        length_s = lease_s or self._lease_s
        if entry.owner is not None or volunteer in entry.leases:  # give the slow more time
            length_s *= 2.0 ** min(entry.lapses, MAX_DOUBLINGS)
        entry.become("leased", f"leased to {volunteer}")
        entry.samples = self.samples(entry.unit)
        if self._tracks and (before := entry.leases.get(volunteer)):
            self._bases.release(before.base)
        if self._tracks:
            self._bases.hold(base)
        entry.leases[volunteer] = Lease(base, now + length_s, link)
        self._count(entry, volunteer, +1)
        return entry.unit, reason

    def finish(
        self, unit: UnitId, volunteer: VolunteerId, base: Version, incarnation: int
    ) -> tuple[Unit | None, Refusal | None]:
        """The unit, now done; or why this update cannot finish it."""
        entry, refusal = self.judge(unit, volunteer, base, incarnation)
        if entry is not None:
            self.done(entry)
        return (entry.unit if entry is not None else None), refusal

    def done(self, entry: Entry) -> None:
        """That unit is: `judge` has just said that it may be finished."""
        self.done_units += 1
        self.done_batches += entry.unit.batches
        self.done_samples += entry.samples
        if entry.owner is not None:
            self._owners[entry.unit.id] = entry.owner
        self._close(entry, "done", "finished")

    def judge(
        self, unit: UnitId, volunteer: VolunteerId, base: Version, incarnation: int
    ) -> tuple[Entry | None, Refusal | None]:
        """Whether an update may finish a unit; changes nothing."""
        if base.incarnation != incarnation:
            return None, "other_incarnation"
        entry = self._open.get(unit)
        if entry is None:
            known = self._first_id <= unit < self._next_id
            return None, "already_done" if known else "unknown_unit"
        if volunteer not in entry.leases:
            return None, "not_yours"
        if entry.leases[volunteer].base != base:
            return None, "wrong_base"
        return entry, None

    def give_back(
        self,
        unit: UnitId,
        volunteer: VolunteerId,
        why: str,
        *,
        failed: bool,
        decisive: bool = False,
    ) -> None:
        """The volunteer will not finish it; `failed` when the unit itself may be to blame.

        `decisive`: it certainly is, and nobody else need try.
        """
        entry = self._open.get(unit)
        if entry is None or volunteer not in entry.leases:
            return
        lease = entry.leases[volunteer]
        if failed and not lease.failed:
            lease.failed = True
            entry.failed_on[volunteer] = entry.failed_on.get(volunteer, 0) + 1
        self._stop(entry, volunteer, why)
        failures, told = entry.failures
        if decisive or failures >= MAX_FAILURES:
            self._close(entry, "set_aside", told)
            self.set_aside.append(entry)

    def leave(self, volunteer: VolunteerId, why: str) -> list[UnitId]:
        """All the volunteer holds goes back to the queue, without blame; its own units are void."""
        units = self.held_by(volunteer)
        for entry in list(self._open.values()):
            if entry.owner == volunteer:
                self._close(entry, "void", why)
            elif volunteer in entry.leases:  # lapsed too: nobody is at work on them any more
                self._stop(entry, volunteer, why)
        self._returned.pop(volunteer, None)
        return units

    def lapse(self, now: float) -> list[tuple[UnitId, VolunteerId]]:
        """Leases that have run out by now; their units are offered again."""
        lapsed = [
            (unit, volunteer)
            for unit, entry in self._open.items()
            for volunteer, lease in entry.leases.items()
            if lease.running and now >= lease.ends_at
        ]
        for unit, volunteer in lapsed:
            entry = self._open[unit]
            entry.lapses += 1
            self._stop(entry, volunteer, f"lease of {volunteer} ran out", lapsed=True)
        return lapsed

    def offer_again(self, now: float, volunteer: VolunteerId, why: str) -> list[UnitId]:
        """What the volunteer is at lapses now, as if its time had run out: it is in doubt."""
        units = self.held_by(volunteer)
        for unit in units:
            entry = self._open[unit]
            entry.lapses += 1
            entry.leases[volunteer].ends_at = now
            self._stop(entry, volunteer, f"{volunteer} is in doubt: {why}", lapsed=True)
        return units

    # -- checkpoints --------------------------------------------------------------------------

    def snapshot(self, unapplied: Collection[Unit] = ()) -> BookState:
        """What is done stays done, except for `unapplied`: done, but not in the parameters yet.

        These, like all that is under way, are waiting after `restore`. Whatever is done and not
        among them is taken to be in the parameters from now on.
        """
        undone = [
            Entry(unit, self._owners.get(unit.id), story=["was not applied before a checkpoint"])
            for unit in unapplied
        ]
        self._owners = {entry.unit.id: entry.owner for entry in undone if entry.owner is not None}
        return BookState(
            next_id=self._next_id,
            waiting=tuple(KeptUnit.of(entry) for entry in (*undone, *self._open.values())),
            set_aside=tuple(KeptUnit.of(entry) for entry in self.set_aside),
            done_units=self.done_units - len(undone),
            done_batches=self.done_batches - sum(entry.unit.batches for entry in undone),
            done_samples=self.done_samples - sum(self.samples(entry.unit) for entry in undone),
            assignment=self._assignment.snapshot(),
        )

    def restore(self, state: BookState) -> None:
        """Go back to a snapshot, of this book or of one for the same work, without any leases.

        Whoever restores begins a new incarnation: ids may name other units than before.
        """
        for entry in self._open.values():
            self._end_leases(entry)
        waiting = [kept.entry() for kept in state.waiting]
        self._open = {entry.unit.id: entry for entry in waiting}
        self._returned.clear()
        for entry in waiting:
            self._returned[entry.owner].append(entry.unit.id)
        self._next_id = max(self._next_id, state.next_id)
        self._owners = {}
        self.done_units = state.done_units
        self.done_batches = state.done_batches
        self.done_samples = state.done_samples
        self.set_aside = [kept.entry("set_aside") for kept in state.set_aside]
        self._assignment.restore(state.assignment, [(entry.unit, entry.owner) for entry in waiting])

    # -- the queue ----------------------------------------------------------------------------

    def _choose(
        self, now: float, volunteer: VolunteerId, holds: Collection[int], batches: int
    ) -> tuple[Entry | None, str]:
        if entry := self._waiting_unit(volunteer):
            return entry, "given back before"
        piece, reason = self._assignment.next(
            volunteer, batches=min(batches, MAX_BATCHES), holds=holds, at_work=self._workers
        )
        if piece is not None:
            unit = Unit(
                id=UnitId(self._next_id),
                kind=self._kind,
                epoch=piece.epoch,
                shard=piece.shard,
                first_batch=piece.first_batch,
                batches=piece.batches,
            )
            self._next_id += 1
            entry = self._open[unit.id] = Entry(unit, piece.owner)
            return entry, reason
        if entry := self._waiting_unit(volunteer, failed=True):
            return entry, "failed here before, but nobody else is left to try"
        # Perhaps it is still at work on its own last unit, perhaps that was lost on the way.
        if not self.holding(volunteer):
            if entry := self._waiting_unit(volunteer, slow=True):
                return entry, "you have not finished it in time, and nobody else may"
            if entry := self._long_lost_unit(now, volunteer):
                return entry, "you have not finished it in time, and nobody else has taken it"
        return None, reason

    def _long_lost_unit(self, now: float, volunteer: VolunteerId) -> Entry | None:
        """One that lapsed here long ago and that nobody else was there to take."""
        queue = self._returned.get(None, deque())
        for _ in range(len(queue)):
            entry = self._open.get(queue.popleft())
            if entry is None or entry.state != "waiting":
                continue
            if now >= entry.leases[volunteer].ends_at + self._lease_s:
                return entry
            queue.append(entry.unit.id)
        return None

    def _waiting_unit(
        self, volunteer: VolunteerId, *, failed: bool = False, slow: bool = False
    ) -> Entry | None:
        """One that waits; `failed`: even if it failed here; `slow`: even if it lapsed here.

        What lapsed here is given only to its owner again.
        """
        for owner in (volunteer,) if slow else (volunteer, None):
            queue = self._returned.get(owner)
            for _ in range(len(queue) if queue else 0):
                assert queue is not None
                entry = self._open.get(queue.popleft())
                if entry is None or entry.state != "waiting":
                    continue
                theirs = entry.leases.get(volunteer)
                at_it = theirs is not None and theirs.lapsed
                if slow or (not at_it and (failed or volunteer not in entry.failed_on)):
                    return entry
                queue.append(entry.unit.id)
        return None

    def _stop(
        self, entry: Entry, volunteer: VolunteerId, why: str, *, lapsed: bool = False
    ) -> None:
        lease = entry.leases[volunteer]
        lease.lapsed = lapsed
        if not lease.running:
            entry.tell(why)
            return
        lease.running = False
        self._count(entry, volunteer, -1)
        entry.become("waiting", why)
        self._returned[entry.owner].append(entry.unit.id)

    def _close(self, entry: Entry, end: End, why: str) -> None:
        entry.become(end, why)
        self._end_leases(entry)
        del self._open[entry.unit.id]
        self._assignment.closed(entry.unit, entry.owner, end)

    def _end_leases(self, entry: Entry) -> None:
        for volunteer, lease in entry.leases.items():
            if self._tracks:
                self._bases.release(lease.base)
            if lease.running:
                lease.running = False
                self._count(entry, volunteer, -1)

    def _count(self, entry: Entry, volunteer: VolunteerId, change: int) -> None:
        shard, held = entry.unit.shard, self._holding.get(volunteer, 0) + change
        self._workers[shard] = self._workers.get(shard, 0) + change
        self._running += change
        if held:
            self._holding[volunteer] = held
        else:
            del self._holding[volunteer]
