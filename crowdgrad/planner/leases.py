"""Who works on what: every unit of a job leased, finished exactly once, and never lost.

    waiting ──lease──→ leased ──finish──→ done
       ↑                  │
       └─ lapse, leave, give back; the third failure: ──→ set_aside

A lease that ran out puts its unit back in the queue but is honoured until somebody finishes the
unit: the first valid update wins, later ones are refused as `already_done`, without blame. Whoever
is merely slow is not given the same unit again. The end
of an epoch is not a barrier: the next opens when the last unit of this one has been handed out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from crowdgrad.domain.work import Unit, UnitId, UnitKind, Version, VolunteerId
from crowdgrad.planner.batches import BatchPlan

State = Literal["waiting", "leased", "done", "set_aside"]
Refusal = Literal["unknown_unit", "already_done", "not_yours", "wrong_base", "other_incarnation"]

TRANSITIONS: dict[State, frozenset[State]] = {
    "waiting": frozenset({"leased", "done", "set_aside"}),
    "leased": frozenset({"waiting", "done", "set_aside"}),
    "done": frozenset(),
    "set_aside": frozenset(),
}
MAX_FAILURES = 3


@dataclass(slots=True)
class Lease:
    base: Version
    ends_at: float
    running: bool = True
    lapsed: bool = False
    """It ran out, but its holder may still be at work."""


@dataclass(slots=True)
class Entry:
    """A unit that is not done yet, and everything that happened to it."""

    unit: Unit
    state: State = "waiting"
    leases: dict[VolunteerId, Lease] = field(default_factory=dict)
    failed_on: set[VolunteerId] = field(default_factory=set)
    story: list[str] = field(default_factory=list)

    def become(self, state: State, why: str) -> None:
        if state not in TRANSITIONS[self.state]:
            told = "; ".join(self.story)
            raise AssertionError(
                f"unit {self.unit.id}: {self.state} → {state} ({why}) after {told}"
            )
        self.state = state
        self.story.append(why)

    @property
    def running(self) -> int:
        return sum(lease.running for lease in self.leases.values())


class LeaseBook:
    def __init__(
        self,
        plan: BatchPlan,
        *,
        kind: UnitKind,
        batches_per_unit: int,
        epochs: int,
        shard_order: Callable[[int], Sequence[int]],
        lease_s: float,
        first_id: int = 0,
    ) -> None:
        """`shard_order(epoch)` is the order in which an epoch's shards are first handed out."""
        self.plan = plan
        self.epochs = epochs
        self._kind = kind
        self._batches_per_unit = batches_per_unit
        self._shard_order = shard_order
        self._lease_s = lease_s
        self._first_id = first_id
        self._next_id = first_id
        self._open: dict[UnitId, Entry] = {}
        self._returned: deque[UnitId] = deque()
        self._epoch = -1
        self._fresh: dict[int, int] = {}  # this epoch's shards → next batch to hand out
        self._workers: Counter[int] = Counter()  # shard → running leases on it
        self._holding: Counter[VolunteerId] = Counter()  # volunteer → running leases
        self.done_units = 0
        self.done_batches = 0
        self.set_aside: list[Entry] = []

    # -- questions ----------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        return not self._open and not self._fresh and self._epoch >= self.epochs - 1

    @property
    def epochs_done(self) -> float:
        return self.done_batches / self.plan.total

    @property
    def leased(self) -> int:
        return sum(entry.state == "leased" for entry in self._open.values())

    def holding(self, volunteer: VolunteerId) -> int:
        """How many units a volunteer has under way."""
        return self._holding[volunteer]

    def held_by(self, volunteer: VolunteerId) -> list[UnitId]:
        return [
            number
            for number, entry in self._open.items()
            if volunteer in entry.leases and entry.leases[volunteer].running
        ]

    # -- decisions ----------------------------------------------------------------------------

    def lease(
        self,
        now: float,
        volunteer: VolunteerId,
        base: Version,
        holds: Collection[int] = (),
        lease_s: float | None = None,
    ) -> tuple[Unit | None, str]:
        """A unit for this volunteer, preferably of a shard it holds; or none, and why."""
        entry, reason = self._returned_unit(volunteer), "given back by another"
        if entry is None:
            entry, reason = self._fresh_unit(holds)
        if entry is None and (entry := self._returned_unit(volunteer, even_if_failed=True)):
            reason = "failed here before, but nobody else is left to try"
        if entry is None:
            return None, reason
        entry.become("leased", f"leased to {volunteer}")
        entry.leases[volunteer] = Lease(base, now + (lease_s or self._lease_s))
        self._count(entry, volunteer, +1)
        return entry.unit, reason

    def finish(
        self, unit: UnitId, volunteer: VolunteerId, base: Version, incarnation: int
    ) -> tuple[Unit | None, Refusal | None]:
        """The unit, now done; or why this update cannot finish it."""
        entry, refusal = self.judge(unit, volunteer, base, incarnation)
        if entry is None:
            return None, refusal
        self._end_all(entry)
        entry.become("done", f"finished by {volunteer}")
        del self._open[unit]
        self.done_units += 1
        self.done_batches += entry.unit.batches
        return entry.unit, None

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
        if failed:
            entry.failed_on.add(volunteer)
        self._stop(entry, volunteer, why)
        if decisive or len(entry.failed_on) >= MAX_FAILURES:
            self._set_aside(entry, f"failed on {len(entry.failed_on)} volunteers")

    def leave(self, volunteer: VolunteerId, why: str) -> list[UnitId]:
        """Everything the volunteer holds goes back to the queue, without blame."""
        units = self.held_by(volunteer)
        for entry in list(self._open.values()):
            if volunteer in entry.leases:  # lapsed ones too: nobody is at work on them any more
                self._stop(entry, volunteer, why)
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
            self._stop(self._open[unit], volunteer, f"lease of {volunteer} ran out", lapsed=True)
        return lapsed

    # -- the queue ----------------------------------------------------------------------------

    def _returned_unit(
        self, volunteer: VolunteerId, *, even_if_failed: bool = False
    ) -> Entry | None:
        for _ in range(len(self._returned)):
            entry = self._open.get(self._returned.popleft())
            if entry is None or entry.state != "waiting":
                continue
            theirs = entry.leases.get(volunteer)
            at_it = theirs is not None and theirs.lapsed
            if not at_it and (even_if_failed or volunteer not in entry.failed_on):
                return entry
            self._returned.append(entry.unit.id)
        return None

    def _fresh_unit(self, holds: Collection[int]) -> tuple[Entry | None, str]:
        if not self._fresh and self._epoch < self.epochs - 1:
            self._epoch += 1
            self._fresh = {
                shard: self.plan.of_shard(shard).start for shard in self._shard_order(self._epoch)
            }
        if not self._fresh:
            waiting = f"the last {len(self._open)} units are with others"
            return None, waiting if self._open else "every unit is done"
        shard = next((s for s in self._fresh if s in holds), None)
        reason = "of a shard you hold"
        if shard is None:
            shard = min(self._fresh, key=lambda s: self._workers[s])
            reason = "of the shard with the fewest volunteers"
        return self._cut(shard), reason

    def _cut(self, shard: int) -> Entry:
        first, end = self._fresh[shard], self.plan.of_shard(shard).stop
        batches = min(self._batches_per_unit, end - first)
        if first + batches == end:
            del self._fresh[shard]
        else:
            self._fresh[shard] = first + batches
        unit = Unit(
            id=UnitId(self._next_id),
            kind=self._kind,
            epoch=self._epoch,
            shard=shard,
            first_batch=first,
            batches=batches,
        )
        self._next_id += 1
        entry = self._open[unit.id] = Entry(unit)
        return entry

    def _stop(
        self, entry: Entry, volunteer: VolunteerId, why: str, *, lapsed: bool = False
    ) -> None:
        lease = entry.leases[volunteer]
        lease.lapsed = lapsed
        if not lease.running:
            return
        lease.running = False
        self._count(entry, volunteer, -1)
        if entry.state == "leased" and entry.running == 0:
            entry.become("waiting", why)
            self._returned.append(entry.unit.id)

    def _set_aside(self, entry: Entry, why: str) -> None:
        entry.become("set_aside", why)
        self._end_all(entry)
        del self._open[entry.unit.id]
        self.set_aside.append(entry)

    def _end_all(self, entry: Entry) -> None:
        for volunteer, lease in entry.leases.items():
            if lease.running:
                self._count(entry, volunteer, -1)

    def _count(self, entry: Entry, volunteer: VolunteerId, change: int) -> None:
        self._workers[entry.unit.shard] += change
        self._holding[volunteer] += change
        if not self._holding[volunteer]:
            del self._holding[volunteer]
