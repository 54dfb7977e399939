"""Plain asynchronous SGD: everyone pulls, computes a gradient, pushes; nobody waits for anybody.

local steps (SGD, `batches_per_unit`) × fp32 × SGD × no merging × no barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crowdgrad.domain.work import LocalSteps
from crowdgrad.numerics.rules.base import ServerRule
from crowdgrad.numerics.rules.sgd import SGD
from crowdgrad.recipes.base import check


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncSGD:
    name: ClassVar[str] = "async_sgd"
    sentence: ClassVar[str] = "Everyone works at their own pace and nobody waits for anybody."

    lr: float = 0.05
    """η of the server's rule and of the local steps."""
    batch_size: int = 100
    """Samples a gradient is the mean of."""
    batches_per_unit: int = 1
    """Batches a volunteer works through before it sends an update: more save traffic."""
    overlap: int = 1
    """Units a volunteer has on the way while it computes another; 0: strictly one after another."""

    def __post_init__(self) -> None:
        check(self)

    def local(self) -> LocalSteps:
        return LocalSteps(
            batch_size=self.batch_size,
            learning_rate=self.lr,
            batches_per_unit=self.batches_per_unit,
            overlap=self.overlap,
        )

    def rule(self) -> ServerRule:
        return SGD(self.lr)
