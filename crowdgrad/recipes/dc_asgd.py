"""Delay-compensated asynchronous SGD (Zheng et al. 2017, arXiv 1609.08326).

    w ← w − η·(g + λ·g⊙g⊙(w − w_base))

A late gradient is corrected by a cheap guess at how it would have changed since the volunteer
pulled: the first term of a Taylor series with g⊙g for the Hessian's diagonal. λ is constant
(DC-ASGD-c) or follows the gradients' moving mean square (DC-ASGD-a). The host keeps, for every unit
in flight, the parameters it started from; units of the same published version share them.

local steps (SGD) × any codec × delay compensation × no merging × no barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from crowdgrad.domain.work import CodecName, LocalSteps
from crowdgrad.numerics.rules import AdaptiveDelayCompensated, DelayCompensated, Rule
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.recipes.base import Assignment, Growth, Penalty, Serving, check, local_steps

PAPERS_STRENGTH = {"adaptive": 2.0, "constant": 0.04}


@dataclass(frozen=True, slots=True, kw_only=True)
class DCASGD:
    name: ClassVar[str] = "dc_asgd"
    sentence: ClassVar[str] = "Asynchronous, and the host corrects each gradient for its delay."
    when: ClassVar[str] = "Volunteers of very different speed, and memory to spare on the host."

    lr: float = 0.05
    """η of the host's rule and of the local steps."""
    batch_size: int = 100
    """Samples a gradient is the mean of."""
    batches_per_unit: int = 1
    """Batches a fast volunteer works through before it sends an update."""
    mode: Literal["adaptive", "constant"] = "adaptive"
    """adaptive: λ0 over the root of the gradients' moving mean square; constant: λ itself."""
    strength: float = 0.0
    """λ0 or λ; 0: the paper's, 2 (adaptive) or 0.04 (constant)."""
    decay: float = 0.95
    """How much of the moving mean square is kept from step to step (adaptive only)."""
    half_backups: bool = False
    """Keep what units started from as half-precision differences: half the memory."""
    overlap: int = 1
    """Units a volunteer has on the way while it computes another; 0: strictly one after another."""
    patience: float = 0.0
    """Batches applied meanwhile (or under way) up to which an update counts in full;
    beyond, its rate falls as patience over staleness. 0: every update counts in full."""
    max_staleness: int = 0
    """Updates older than so many versions are not used; 0: all are."""
    publish_every: int = 1
    """Changes of the parameters from one published version to the next: fewer copies to keep."""
    assignment: Assignment = "leases"
    """leases: every sample once an epoch; segments: N+1 overlapping ones by place in the roster."""
    schedule: Schedule = Schedule()
    """How the rate changes."""
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
            overlap=self.overlap,
        )

    def server_rule(self) -> Rule:
        strength = self.strength or PAPERS_STRENGTH[self.mode]
        if self.mode == "constant":
            return DelayCompensated(strength=strength)
        return AdaptiveDelayCompensated(strength=strength, decay=self.decay)

    def serving(self) -> Serving:
        return Serving(
            rate=self.lr,
            local_rate=self.lr,
            schedule=self.schedule,
            decay=self.penalty.decay,
            patience=self.patience,
            max_staleness=self.max_staleness,
            publish_every=self.publish_every,
            half_backups=self.half_backups,
            assignment=self.assignment,
        )
