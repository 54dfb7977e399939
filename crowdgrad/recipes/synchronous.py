"""Synchronous SGD: rounds in which everybody works from the same parameters.

    w ← rule(w, Σ nᵢ·gᵢ / Σ nᵢ)          nᵢ: samples behind update i

By default a round waits for all, and equals SGD on one batch as large as all of theirs together.
With a quorum or backup volunteers (Chen et al. 2016, arXiv 1604.00981) it closes a window of grace
after enough have delivered; what comes later is not used and its data is trained on again.

local steps (SGD) × any codec × any optimiser × sample-weighted mean × a barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crowdgrad.domain.work import CodecName, LocalSteps
from crowdgrad.numerics.rules import SGD, Rule
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.planner.rounds import Barrier
from crowdgrad.recipes.base import Assignment, Growth, Penalty, Serving, check, local_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronous:
    name: ClassVar[str] = "synchronous"
    sentence: ClassVar[str] = "Rounds: everybody works from the same parameters, then one step."
    when: ClassVar[str] = "Machines of equal speed on a good network, or exact large-batch SGD."

    lr: float = 0.1
    """η of the host's rule and of the local steps."""
    batch_size: int = 100
    """Samples of one volunteer's gradient."""
    batches_per_unit: int = 1
    """Batches a fast volunteer works through in a round."""
    quorum: float = 1.0
    """The share of those at work whose updates close a round."""
    backup: int = 0
    """How many of those at work are not waited for."""
    grace_s: float = 0.0
    """How long the others may still deliver once there are enough."""
    rule: Rule = SGD()
    """What the host does with the round's mean."""
    assignment: Assignment = "leases"
    """leases: every sample once an epoch; segments: N+1 overlapping ones by place in the roster."""
    schedule: Schedule = Schedule()
    """How the rate changes; scale_with_volunteers suits larger crowds."""
    penalty: Penalty = Penalty()
    """L1, L2, decay, clipping."""
    growth: Growth = Growth()
    """How the batch grows."""
    codec: CodecName = "fp32"
    """How parameters and updates travel: fp16 and bf16 take half the bytes and round."""

    def __post_init__(self) -> None:
        check(self)

    def local(self) -> LocalSteps:
        return local_steps(
            self.penalty,
            self.growth,
            codec=self.codec,
            batch_size=self.batch_size,
            batches_per_unit=self.batches_per_unit,
            overlap=0,
        )

    def server_rule(self) -> Rule:
        return self.rule

    def serving(self) -> Serving:
        return Serving(
            rate=self.lr,
            local_rate=self.lr,
            schedule=self.schedule,
            decay=self.penalty.decay,
            assignment=self.assignment,
            barrier=Barrier(quorum=self.quorum, backup=self.backup, grace_s=self.grace_s),
        )
