"""NAdam: Adam with Nesterov's momentum (Dozat 2016), as PyTorch defines it:

    m ← β₁·m + (1 − β₁)·g,   s ← β₂·s + (1 − β₂)·g²,   ŝ = s/(1 − β₂ᵗ),
    μₜ = β₁·(1 − ½·0.96^(t·ψ)),   Πₜ = μ₁·…·μₜ,
    w ← w − η·((1 − μₜ)/(1 − Πₜ)·g + μₜ₊₁/(1 − Πₜ₊₁)·m)/(√ŝ + ε)         t: steps, from 1

Remembered are m/(1 − β₁) and s/(1 − β₂), as in `adam`, and the product Πₜ.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.rules.adam import check
from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import BLOCK, Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class NAdam:
    name: ClassVar[str] = "nadam"
    sentence: ClassVar[str] = "Adam that already steps where its speed will take it."
    vectors: ClassVar[tuple[str, ...]] = ("gradients", "squares")
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    beta1: float = 0.9
    """β₁: the part of the mean gradient that is kept."""
    beta2: float = 0.999
    """β₂: the part of the mean square that is kept."""
    eps: float = 1e-8
    """ε: keeps the division finite."""
    momentum_decay: float = 4e-3
    """ψ: how fast the momentum rises to β₁ from half of it."""

    def __post_init__(self) -> None:
        check(self.beta1, self.beta2, self.eps)
        if not 0 <= self.momentum_decay <= 1e6:
            raise ValueError(f"momentum_decay {self.momentum_decay} is not from 0 to a million")

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        gradients_D, squares_D = memory.vectors["gradients"], memory.vectors["squares"]
        memory.steps += 1
        scratch = np.empty((2, min(BLOCK, len(parameters_D))), np.float32)
        root = math.sqrt((1 - self.beta2) / (1 - self.beta2**memory.steps))
        with np.errstate(all="ignore"):
            of_gradient, of_mean = (np.float32(f / root) for f in self._factors(memory, step.rate))
            kept, kept_squares = np.float32(self.beta1), np.float32(self.beta2)
            eps = np.float32(self.eps / root)
            for here in blocks(len(parameters_D)):
                w, g, m, s = parameters_D[here], update_D[here], gradients_D[here], squares_D[here]
                x, y = scratch[:, : len(w)]
                np.multiply(m, kept, out=m)
                np.add(m, g, out=m)
                np.multiply(s, kept_squares, out=s)
                np.multiply(g, g, out=x)
                np.add(s, x, out=s)
                np.sqrt(s, out=x)
                np.add(x, eps, out=x)
                np.multiply(m, of_mean, out=y)
                np.multiply(g, of_gradient, out=g)
                np.add(g, y, out=g)
                np.divide(g, x, out=g)
                np.subtract(w, g, out=w)

    def _factors(self, memory: Memory, rate: float) -> tuple[float, float]:
        """What the gradient and the remembered sum are multiplied with; notes the product."""
        now, later = (self._momentum(t) for t in (memory.steps, memory.steps + 1))
        product = memory.numbers.get("momentum_product", 1.0) * now
        memory.numbers["momentum_product"] = product
        ahead = later / (1 - product * later)
        return rate * (1 - now) / (1 - product), rate * ahead * (1 - self.beta1)

    def _momentum(self, steps: int) -> float:
        return self.beta1 * (1 - 0.5 * math.pow(0.96, steps * self.momentum_decay))
