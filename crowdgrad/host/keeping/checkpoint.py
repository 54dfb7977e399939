"""What training goes back to: everything at one version, and which of them was still good.

A checkpoint is taken with every evaluation; it is good when the evaluation found finite numbers.
Where nothing is validated, one is taken every few seconds and looked at itself. Others are taken
for the disk (`keeper.py`), so that a host that dies goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from crowdgrad.host.course import CourseState
from crowdgrad.host.members.ledger import LedgerState
from crowdgrad.host.parameters import Saved
from crowdgrad.planner.leases import BookState

EVERY_S = 5.0
"""Where nothing is validated; otherwise with every evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that training goes on from, taken at one version."""

    saved: Saved
    book: BookState
    ledger: LedgerState
    course: CourseState
    setbacks: int = 0
    rate_factor: float = 1.0
    """What its owner had multiplied the learning rate by."""
    starts: int = 1
    """How often a host was started for this run, until then."""
    staleness: tuple[tuple[int, int], ...] = ()
    """How many updates had which staleness."""
    train_loss: float | None = None
    metrics_bytes: int = 0
    """How long metrics.jsonl was: what was written later is written again."""
    growths: int = 0
    """How often the data had grown."""
    shards: int = 0
    """How many there were in its manifest; 0 where that was not kept."""


class LastGood:
    def __init__(self, first: Checkpoint) -> None:
        self.good = first
        self.candidate: Checkpoint | None = None
        self._taken_at = 0.0

    def due(self, now: float) -> bool:
        return now - self._taken_at >= EVERY_S

    def offer(self, now: float, candidate: Checkpoint) -> None:
        """It may be good; `confirm` or `forget` says so."""
        self.candidate = candidate
        self._taken_at = now

    def confirm(self) -> None:
        if self.candidate is not None:
            self.good, self.candidate = self.candidate, None

    def forget(self) -> None:
        self.candidate = None
