"""Adadelta (Zeiler 2012, arXiv 1212.5701), each step as large as the steps before were:

    s ← ρ·s + (1 − ρ)·g²,   Δ = g·√(a + ε)/√(s + ε),   a ← ρ·a + (1 − ρ)·Δ²,   w ← w − η·Δ

Remembered are s/(1 − ρ) and a/(1 − ρ), which saves two passes; with ε/(1 − ρ) the quotient is the
same.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import BLOCK, Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Adadelta:
    name: ClassVar[str] = "adadelta"
    sentence: ClassVar[str] = "Finds each parameter's rate from its last steps and gradients."
    vectors: ClassVar[tuple[str, ...]] = ("squares", "changes")
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    rho: float = 0.9
    """ρ: the part of the mean squares that is kept."""
    eps: float = 1e-6
    """ε: sets the size of the first steps, and keeps the division finite."""

    def __post_init__(self) -> None:
        if not 0 <= self.rho < 1:
            raise ValueError(f"rho {self.rho} is not from 0 to below 1")
        if not 1e-30 <= self.eps <= 1:  # 0, also as a float32, would make 0/0 of a zero gradient
            raise ValueError(f"eps {self.eps} is not from 1e-30 to 1")

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        squares_D, changes_D = memory.vectors["squares"], memory.vectors["changes"]
        memory.steps += 1
        scratch = np.empty((2, min(BLOCK, len(parameters_D))), np.float32)
        with np.errstate(all="ignore"):
            rate, kept = np.float32(step.rate), np.float32(self.rho)
            eps = np.float32(self.eps / (1 - self.rho))
            for here in blocks(len(parameters_D)):
                w, g, s, a = parameters_D[here], update_D[here], squares_D[here], changes_D[here]
                x, y = scratch[:, : len(w)]
                np.multiply(s, kept, out=s)
                np.multiply(g, g, out=x)
                np.add(s, x, out=s)
                np.add(s, eps, out=x)
                np.add(a, eps, out=y)
                np.divide(y, x, out=x)
                np.sqrt(x, out=x)
                np.multiply(g, x, out=g)  # Δ
                np.multiply(a, kept, out=a)
                np.multiply(g, g, out=x)
                np.add(a, x, out=a)
                np.multiply(g, rate, out=g)
                np.subtract(w, g, out=w)
