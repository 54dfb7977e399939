"""Pieces that are known beforehand, each handed out once: the assignment of a look."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from crowdgrad.domain.work import Unit, VolunteerId
from crowdgrad.planner.assignment import AssignmentState, End, Piece
from crowdgrad.planner.batches import EpochPlans


class Pieces:
    """Nobody goes back to it: a look that was interrupted begins anew."""

    def __init__(self, plans: EpochPlans, pieces: Iterable[Piece]) -> None:
        self.plans = plans
        self._fresh = deque(pieces)
        self._open = 0

    @property
    def finished(self) -> bool:
        return not self._open and not self._fresh

    def epochs_done(self, done_samples: int) -> float:
        return done_samples / self.plans.records

    def members(self, ranked: Sequence[VolunteerId]) -> None:
        """Nothing is anyone's own."""

    def next(
        self,
        volunteer: VolunteerId,
        *,
        batches: int,
        holds: Collection[int],
        at_work: Mapping[int, int],
    ) -> tuple[Piece | None, str]:
        if not self._fresh:
            return None, "every piece is handed out"
        self._open += 1
        return self._fresh.popleft(), "the next piece"

    def closed(self, unit: Unit, owner: VolunteerId | None, end: End) -> None:
        self._open -= 1

    def snapshot(self) -> AssignmentState:
        raise AssertionError("a look is not kept")

    def restore(
        self, state: AssignmentState, waiting: Iterable[tuple[Unit, VolunteerId | None]]
    ) -> None:
        raise AssertionError("a look is not kept")
