"""The default: asynchronous, and safe for any number of volunteers.

    η(τ) = η · min(1, patience / τ)      τ: staleness, or the units under way if those are more

In asynchronous training the effective step grows with the crowd: N volunteers push N gradients of
the same old parameters. With a rate that falls with staleness (Zhang et al. 2016, arXiv 1511.05950)
the fiftieth volunteer does not hurt. Counting units under way too tames the first moments, when all
begin from the same parameters and the first of a hundred updates is not stale at all. What is older
than a threshold is trained on again instead (Ringmaster, Maranjyan et al. 2025, arXiv 2501.16168).
Over a network a unit is several batches; volunteers on the host's own machine send every gradient.

local steps (SGD) × any codec × any optimiser × no merging × no barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crowdgrad.domain.work import CodecName, LocalSteps
from crowdgrad.numerics.rules import SGD, Rule
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.recipes.base import Assignment, Growth, Penalty, Serving, check, local_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    name: ClassVar[str] = "crowd"
    sentence: ClassVar[str] = "Asynchronous, with a learning rate that falls with staleness."
    when: ClassVar[str] = "Always a good start: any number of volunteers, of any speed."

    lr: float = 0.1
    """η of the host's rule and of the local steps."""
    batch_size: int = 100
    """Samples a gradient is the mean of."""
    batches_per_unit: int = 4
    """Batches a fast volunteer over a network works through before it sends an update."""
    near_batches: int = 1
    """Batches of a unit for volunteers on the host's own machine."""
    overlap: int = 1
    """Units a volunteer has on the way while it computes another; 0: strictly one after another."""
    rule: Rule = SGD()
    """What the host does with an update: sgd, momentum, nesterov, adagrad, adam, …"""
    patience: float = 2.0
    """Batches applied meanwhile (or under way) up to which an update counts in full;
    beyond, its rate falls as patience over staleness. 0: every update counts in full."""
    max_staleness: int = 1000
    """Updates older than so many versions are not used; 0: all are."""
    publish_every: int = 1
    """Changes of the parameters from one published version to the next."""
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
        if not 1 <= self.near_batches <= self.batches_per_unit:
            raise ValueError(
                f"near_batches {self.near_batches} is not between 1 and batches_per_unit "
                f"{self.batches_per_unit}"
            )
        return local_steps(
            self.penalty,
            self.growth,
            codec=self.codec,
            batch_size=self.batch_size,
            batches_per_unit=self.batches_per_unit,
            overlap=self.overlap,
        )

    def server_rule(self) -> Rule:
        return self.rule

    def serving(self) -> Serving:
        return Serving(
            rate=self.lr,
            local_rate=self.lr,
            schedule=self.schedule,
            decay=self.penalty.decay,
            patience=self.patience,
            max_staleness=self.max_staleness,
            publish_every=self.publish_every,
            near_batches=self.near_batches,
            assignment=self.assignment,
        )
