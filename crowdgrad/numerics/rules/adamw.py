"""AdamW: Adam, and w ← w − η·λ·w beside it (Loshchilov & Hutter 2017, arXiv 1711.05101).

The weights decay by themselves, undivided by the size of their gradients, unlike an L2 penalty.
Frozen parameters do not decay: only those within the step's `trained` slices do.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.decay import within
from crowdgrad.numerics.rules.adam import Turn, check
from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
    name: ClassVar[str] = "adamw"
    sentence: ClassVar[str] = "Adam, while all weights shrink a little at every step."
    vectors: ClassVar[tuple[str, ...]] = ("gradients", "squares")
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    beta1: float = 0.9
    """β₁: the part of the mean gradient that is kept."""
    beta2: float = 0.999
    """β₂: the part of the mean square that is kept."""
    eps: float = 1e-8
    """ε: keeps the division finite."""
    decay: float = 0.01
    """λ: times the learning rate, the part of each weight that is lost at a step."""

    def __post_init__(self) -> None:
        check(self.beta1, self.beta2, self.eps)
        if not 0 <= self.decay <= 1e6:
            raise ValueError(f"decay {self.decay} is not from 0 to a million")

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        gradients_D, squares_D = memory.vectors["gradients"], memory.vectors["squares"]
        memory.steps += 1
        with np.errstate(all="ignore"):
            turn = Turn.at(memory.steps, step.rate, self.beta1, self.beta2, self.eps)
            kept = np.float32(max(0.0, 1 - step.rate * self.decay))
            for here in blocks(len(parameters_D)):
                w, change = parameters_D[here], update_D[here]
                turn.into_change(change, gradients_D[here], squares_D[here])
                for part in within(w, here.start, step.trained):
                    np.multiply(part, kept, out=part)
                np.subtract(w, change, out=w)
