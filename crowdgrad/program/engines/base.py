"""The engine interface: a whole unit in, an update out.

An engine owns the step from batches to gradients, so that it can keep everything (local replica,
noise, bindings to the runtime) where it is fastest. Nothing in here knows of networks or disks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from crowdgrad.domain.work import LocalSteps, Unit
from crowdgrad.numerics.vectors import Vector

Column = NDArray[Any]
"""One field of a batch, in its storage type, the batch dimension first, contiguous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The records of one batch: an array for each of the program's inputs, in their order."""

    number: int
    """Within the split; with the unit's epoch it names the batch's noise."""
    fields: tuple[Column, ...]

    @property
    def samples(self) -> int:
        return len(self.fields[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitWork:
    """Everything a unit needs, in memory."""

    unit: Unit
    local: LocalSteps
    seed: int
    batches: Sequence[Batch]
    """The unit's, or a stretch of them where parameters are fetched in its middle."""
    rate: float = 0.0
    """The learning rate of the local steps."""
    lane: int = 0
    """Whose replica steps: each lane has its own."""
    fresh: bool = True
    """Start from the parameters given, forgetting what the rule remembered; False: go on from
    where the lane's replica is."""
    add: bool = False
    """Add to what `update` holds instead of beginning anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult:
    samples: int
    loss: float
    """Mean over the samples."""
    metrics: dict[str, float]
    """Means over the samples; empty after training."""


class Engine(Protocol):
    """Runs one program. Not safe for use by two threads at once."""

    def train(self, work: UnitWork, parameters: Vector, update: Vector) -> UnitResult:
        """Write what `work.local.returns` says into `update`; `parameters` is only read.

        Each gradient is taken at a local replica that steps by the local rule between batches.
        Numbers that are not finite are passed on: judging them is the host's part. Raises
        ComputeError where a lane is to go on that has no replica.
        """

    def evaluate(self, work: UnitWork, parameters: Vector) -> UnitResult:
        """Loss and metrics of the forward graph, in evaluation mode."""
