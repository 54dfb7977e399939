"""Plain asynchronous SGD: everyone pulls, computes a gradient, pushes; nobody waits for anybody.

local steps (SGD) × any codec × any optimiser × no merging × no barrier. (Hogwild!, Recht et al.
2011; the asynchronous half of Downpour, Dean et al. 2012.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crowdgrad.domain.work import CodecName, LocalSteps
from crowdgrad.numerics.rules import SGD, Rule
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.recipes.base import Assignment, Growth, Penalty, Serving, check, local_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncSGD:
    name: ClassVar[str] = "async_sgd"
    sentence: ClassVar[str] = "Everyone works at their own pace and nobody waits for anybody."
    when: ClassVar[str] = "A few volunteers of similar speed, or to compare others with."

    lr: float = 0.05
    """η of the host's rule and of the local steps."""
    batch_size: int = 100
    """Samples a gradient is the mean of."""
    batches_per_unit: int = 1
    """Batches a fast volunteer works through before it sends an update: more save traffic."""
    overlap: int = 1
    """Units a volunteer has on the way while it computes another; 0: strictly one after another."""
    rule: Rule = SGD()
    """What the host does with an update: sgd, momentum, nesterov, adagrad, adam, …"""
    patience: float = 0.0
    """Batches applied meanwhile (or under way) up to which an update counts in full;
    beyond, its rate falls as patience over staleness. 0: every update counts in full."""
    max_staleness: int = 0
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
            assignment=self.assignment,
        )
