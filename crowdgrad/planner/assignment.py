"""Which fresh batches go to whom next: what the lease book asks, and what a checkpoint keeps.

The book (`leases.py`) knows who holds which unit and what became of it; an assignment only hands
out fresh batches and hears of every unit's end. There are two: `Ranges` (every batch once an epoch,
by whoever asks) and `Segments` (every member its own part, neighbours overlapping).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from crowdgrad.domain.work import Unit, VolunteerId
from crowdgrad.planner.batches import EpochPlans

End = Literal["done", "set_aside", "void"]


class Piece(NamedTuple):
    """Batches of one shard that go out together."""

    epoch: int
    shard: int
    first_batch: int
    batches: int
    owner: VolunteerId | None = None
    """Who alone may work on them; None: anyone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one member, or all of them together, are in an epoch."""

    who: VolunteerId | None
    epoch: int
    taken: tuple[tuple[int, int], ...]
    """Batches handed out in it, as ranges: the first and the one after the last."""
    done: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentState:
    """What a checkpoint keeps of an assignment."""

    progress: tuple[Progress, ...]
    ranked: tuple[VolunteerId, ...] = ()
    """Who was here, in roster order."""
    passes: tuple[tuple[int, int], ...] = ()
    """From which epoch on there were how many shards, where that is known."""


class Assignment(Protocol):
    @property
    def plans(self) -> EpochPlans: ...

    @property
    def finished(self) -> bool:
        """Everything has been handed out and has come to an end."""

    def epochs_done(self, done_samples: int) -> float:
        """`done_samples`: in all units that are done."""

    def members(self, ranked: Sequence[VolunteerId]) -> None:
        """Who is here now, in roster order."""

    def next(
        self,
        volunteer: VolunteerId,
        *,
        batches: int,
        holds: Collection[int],
        at_work: Mapping[int, int],
    ) -> tuple[Piece | None, str]:
        """At most `batches` fresh ones, from now on under way; or none, and why.

        `holds`: the shards the volunteer has. `at_work`: shard → units of it under way.
        """

    def closed(self, unit: Unit, owner: VolunteerId | None, end: End) -> None:
        """A unit made of a piece has come to its end; a void one may be handed out again."""

    def snapshot(self) -> AssignmentState: ...

    def restore(
        self, state: AssignmentState, waiting: Iterable[tuple[Unit, VolunteerId | None]]
    ) -> None:
        """Go back to `state`, except that these units, with their owners, are under way."""
