"""The engine interface: a whole unit in, an update out.

An engine owns the step from batches to gradients, so that it can keep everything (local replica,
noise, bindings to the runtime) where it is fastest. Nothing in here knows of networks or disks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.program import ProgramSpec
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
    """Plain means over the samples; empty after training."""


def as_inputs(spec: ProgramSpec, fields: tuple[Column, ...]) -> tuple[Column, ...]:
    """A batch's stored records as the program takes them.

    Where it takes weights and the records have none, every sample weighs one. Where it takes one
    batch size only, missing samples are filled up with the first one, which then weighs nothing.
    """
    if not spec.weighted:
        return fields
    if len(fields) < len(spec.inputs):
        fields = (*fields, np.ones(len(fields[0]), np.float32))
    missing = spec.fixed_batch - len(fields[0])
    if missing <= 0:
        return fields
    filled = [np.concatenate([column, np.repeat(column[:1], missing, 0)]) for column in fields]
    filled[-1][-missing:] = 0.0
    return tuple(filled)


def noise_bytes(spec: ProgramSpec, samples: int) -> int:
    """The random numbers that batches of so many samples take, in training and evaluation."""
    return sum(
        4 * math.prod(noise.shape) * (samples if noise.per_sample else 1)
        for noise in (*spec.noise, *spec.forward_noise)
    )


class Engine(Protocol):
    """Runs one program. Not safe for use by two threads at once.

    A state and an update are laid out as `numerics.layout.StateLayout` says.
    """

    def train(self, work: UnitWork, state: Vector, update: Vector) -> UnitResult:
        """Write what `work.local.returns` says into `update`, and the buffers behind it.

        `state` is only read. Each gradient is taken at a local replica that steps by the local rule
        between batches. Buffers go from batch to batch; of a floating one the last value is
        returned, of a counter by how much it grew. Numbers that are not finite are passed on:
        judging them is the host's part. Raises ComputeError where a lane is to go on that has no
        replica.
        """

    def evaluate(self, work: UnitWork, state: Vector) -> UnitResult:
        """Loss and metrics of the forward graph, in evaluation mode."""

    def predict(self, batch: Batch, state: Vector, seed: int = 0) -> tuple[NDArray[Any], ...]:
        """The model's own outputs for one batch, in evaluation mode."""
