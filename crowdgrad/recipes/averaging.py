"""Weight averaging (the crowdsource platform, Trinity College Dublin 2018).

    w ← w + share·(w_received − w)

A volunteer pulls the weights, trains a while on its own and sends its weights back; the host
averages them with its own.

local steps (any optimiser) × any codec × averaging × no merging × no barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crowdgrad.domain.work import CodecName, LocalSteps
from crowdgrad.numerics.rules import SGD, Averaging, Rule
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.recipes.base import (
    Assignment,
    Growth,
    Penalty,
    Serving,
    check,
    local_rule,
    local_steps,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightAveraging:
    name: ClassVar[str] = "averaging"
    sentence: ClassVar[str] = (
        "Volunteers train on their own for a while; the host averages their weights with its own."
    )
    when: ClassVar[str] = "Slow links and many volunteers: it cannot overshoot, but learns slowly."

    lr: float = 0.1
    """η of the local steps."""
    batch_size: int = 100
    """Samples a gradient is the mean of."""
    batches_per_unit: int = 10
    """Batches a fast volunteer trains on before it sends its weights."""
    share: float = 0.5
    """How much of the received weights goes into the average; the paper's mean is 0.5."""
    local_rule: Rule = SGD()
    """How the replica steps."""
    overlap: int = 1
    """Units a volunteer has on the way while it computes another; 0: strictly one after another."""
    max_staleness: int = 0
    """Updates older than so many versions are not used; 0: all are."""
    publish_every: int = 1
    """Changes of the parameters from one published version to the next."""
    assignment: Assignment = "leases"
    """leases: every sample once an epoch; segments: N+1 overlapping ones by place in the roster."""
    schedule: Schedule = Schedule()
    """How the rate changes."""
    penalty: Penalty = Penalty()
    """L1, L2, clipping (a decoupled decay is for rules that step)."""
    growth: Growth = Growth()
    """How the batch grows."""
    codec: CodecName = "fp32"
    """How parameters and updates travel: fp16 and bf16 take half the bytes and round."""

    def __post_init__(self) -> None:
        check(self)

    def local(self) -> LocalSteps:
        if self.penalty.decay:
            raise ValueError("weight averaging has no step to decay beside: use l2")
        if self.schedule.scale_with_volunteers:
            raise ValueError("weight averaging has no step that grows with the volunteers")
        return local_steps(
            self.penalty,
            self.growth,
            codec=self.codec,
            batch_size=self.batch_size,
            batches_per_unit=self.batches_per_unit,
            overlap=self.overlap,
            rule=local_rule(self.local_rule),
            returns="weights",
        )

    def server_rule(self) -> Rule:
        return Averaging(share=self.share)

    def serving(self) -> Serving:
        return Serving(
            rate=self.lr,
            local_rate=self.lr,
            schedule=self.schedule,
            max_staleness=self.max_staleness,
            publish_every=self.publish_every,
            assignment=self.assignment,
        )
