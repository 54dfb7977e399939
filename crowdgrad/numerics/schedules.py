"""How the learning rate changes as training goes on.

    rate(e) = lr · volunteers' share · warm-up(e) · shape(e)          e: epochs done, a fraction

Warm-up rises linearly to 1 over the first epochs; with `scale_with_volunteers` it rises from one
volunteer's rate to that of all of them, since k gradients a step make a batch k times as large
(Goyal et al. 2017, arXiv 1706.02677, "linear scaling rule"). Shapes: constant; step: ·factor every
so many epochs; cosine: 1 → floor by half a cosine (Loshchilov & Hutter 2016, arXiv 1608.03983).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Shape = Literal["constant", "step", "cosine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    shape: Shape = "constant"
    """constant, step or cosine."""
    warmup_epochs: float = 0.0
    """Epochs over which the rate rises to its full size."""
    step_every: float = 10.0
    """Epochs between two steps of the shape `step`."""
    step_factor: float = 0.1
    """What the rate is multiplied with at each of them."""
    floor: float = 0.0
    """The share of the rate at which the shape `cosine` ends."""
    scale_with_volunteers: bool = False
    """Multiply the rate with the number of members at work."""

    def __post_init__(self) -> None:
        if self.shape not in ("constant", "step", "cosine"):
            raise ValueError(f"a schedule is constant, step or cosine, not {self.shape!r}")
        if not 0 <= self.warmup_epochs < math.inf or not 0 < self.step_every < math.inf:
            raise ValueError(
                f"warm-up over {self.warmup_epochs} epochs, steps every {self.step_every}"
            )
        if not 0 < self.step_factor <= 1 or not 0 <= self.floor <= 1:
            raise ValueError(f"step_factor {self.step_factor} and floor {self.floor} are shares")

    @property
    def constant(self) -> bool:
        """Whether the factor is 1 whatever happens."""
        return (
            self.shape == "constant" and not self.warmup_epochs and not self.scale_with_volunteers
        )

    def factor(self, *, epoch: float, epochs: int, volunteers: int = 1) -> float:
        """What the recipe's rate is multiplied with after `epoch` of `epochs`."""
        full = float(max(1, volunteers)) if self.scale_with_volunteers else 1.0
        if epoch < self.warmup_epochs:
            done = epoch / self.warmup_epochs
            # From one volunteer's rate up to that of all, or from a first small step up to 1.
            full = 1.0 + (full - 1.0) * done if self.scale_with_volunteers else max(done, 0.01)
        return full * self._shape(epoch, epochs)

    def _shape(self, epoch: float, epochs: int) -> float:
        if self.shape == "step":
            return float(self.step_factor ** (epoch // self.step_every))
        if self.shape == "cosine":
            left = max(epochs - self.warmup_epochs, 1e-9)
            done = min(max(epoch - self.warmup_epochs, 0.0) / left, 1.0)
            return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done))
        return 1.0
