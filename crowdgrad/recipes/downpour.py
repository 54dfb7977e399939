"""Downpour SGD (Dean et al. 2012, "Large Scale Distributed Deep Networks", section 4.1).

Each replica repeats: every `fetch_every` batches take the host's parameters; compute a gradient,
add it up, step the local replica; every `push_every` batches send the sum. The host applies it with
Adagrad, whose rate per parameter forgives much of the disorder. One volunteer may begin alone
("warm start").

local steps (any optimiser) × any codec × Adagrad × no merging × no barrier. With fetch_every larger
than push_every the units between two fetches form a chain that one volunteer works through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crowdgrad.domain.work import CodecName, LocalSteps
from crowdgrad.numerics.rules import SGD, Adagrad, Rule
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
class Downpour:
    name: ClassVar[str] = "downpour"
    sentence: ClassVar[str] = (
        "Replicas step on their own, send sums of gradients and fetch now and then; "
        "the host applies Adagrad."
    )
    when: ClassVar[str] = (
        "Slow links: the more batches between pushes and fetches, the less travels."
    )

    lr: float = 0.01
    """η of the host's rule; Adagrad's first steps are as large as this, whatever the gradient."""
    batch_size: int = 100
    """Samples a gradient is the mean of."""
    push_every: int = 4
    """Batches whose gradients are added up before they are sent."""
    fetch_every: int = 4
    """Batches between two looks at the host's parameters; one of the two divides the other."""
    warm_start_batches: int = 0
    """Batches that one volunteer trains alone before the others begin."""
    rule: Rule = Adagrad()
    """What the host does with an update: sgd, momentum, nesterov, adagrad, adam, …"""
    local_rule: Rule = SGD()
    """How the replica steps between two fetches: one of the same names."""
    local_lr: float = 0.1
    """η of the local steps; 0: the same as lr."""
    overlap: int = 1
    """Units a volunteer has on the way while it computes another; 0: strictly one after another."""
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
        if self.fetch_every < 1:
            raise ValueError(f"a fetch every {self.fetch_every} batches makes no sense")
        return local_steps(
            self.penalty,
            self.growth,
            codec=self.codec,
            batch_size=self.batch_size,
            batches_per_unit=self.push_every,
            fetch_every=self.fetch_every,
            overlap=self.overlap,
            rule=local_rule(self.local_rule),
        )

    def server_rule(self) -> Rule:
        return self.rule

    def serving(self) -> Serving:
        return Serving(
            rate=self.lr,
            local_rate=self.local_lr or self.lr,
            schedule=self.schedule,
            decay=self.penalty.decay,
            patience=self.patience,
            max_staleness=self.max_staleness,
            publish_every=self.publish_every,
            warm_start_batches=self.warm_start_batches,
            matched=False,  # a push is so many batches, whoever makes it
            assignment=self.assignment,
        )
