"""Adam (Kingma & Ba 2014, arXiv 1412.6980):

    m ← β₁·m + (1 − β₁)·g,   s ← β₂·s + (1 − β₂)·g²,
    w ← w − η·m̂/(√ŝ + ε),    m̂ = m/(1 − β₁ᵗ),  ŝ = s/(1 − β₂ᵗ)          t: steps, from 1

Remembered are the decaying sums m/(1 − β₁) and s/(1 − β₂), which saves two passes; what they lack
goes, with the corrections of the bias, into one factor and one ε.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    name: ClassVar[str] = "adam"
    sentence: ClassVar[str] = "Momentum, divided by the usual size of each parameter's gradients."
    vectors: ClassVar[tuple[str, ...]] = ("gradients", "squares")
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    beta1: float = 0.9
    """β₁: the part of the mean gradient that is kept."""
    beta2: float = 0.999
    """β₂: the part of the mean square that is kept."""
    eps: float = 1e-8
    """ε: keeps the division finite."""

    def __post_init__(self) -> None:
        check(self.beta1, self.beta2, self.eps)

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        gradients_D, squares_D = memory.vectors["gradients"], memory.vectors["squares"]
        memory.steps += 1
        with np.errstate(all="ignore"):
            turn = Turn.at(memory.steps, step.rate, self.beta1, self.beta2, self.eps)
            for here in blocks(len(parameters_D)):
                w, change = parameters_D[here], update_D[here]
                turn.into_change(change, gradients_D[here], squares_D[here])
                np.subtract(w, change, out=w)


def check(beta1: float, beta2: float, eps: float) -> None:
    """What all of Adam's family ask of their hyperparameters."""
    if not 0 <= beta1 < 1:
        raise ValueError(f"beta1 {beta1} is not from 0 to below 1")
    if not 0 <= beta2 < 1:
        raise ValueError(f"beta2 {beta2} is not from 0 to below 1")
    if not 1e-30 <= eps <= 1:  # 0, also as a float32, would make 0/0 of a zero gradient
        raise ValueError(f"eps {eps} is not from 1e-30 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The numbers of one of Adam's steps."""

    kept_gradients: np.float32
    kept_squares: np.float32
    eps: np.float32
    factor: np.float32

    @classmethod
    def at(cls, steps: int, rate: float, beta1: float, beta2: float, eps: float) -> Turn:
        root = math.sqrt((1 - beta2) / (1 - beta2**steps))
        return cls(
            kept_gradients=np.float32(beta1),
            kept_squares=np.float32(beta2),
            eps=np.float32(eps / root),
            factor=np.float32(rate * (1 - beta1) / (1 - beta1**steps) / root),
        )

    def into_change(self, g: Vector, gradients: Vector, squares: Vector) -> None:
        """Take a block's gradient into its memory, and make of it what to subtract, in place."""
        np.multiply(gradients, self.kept_gradients, out=gradients)
        np.add(gradients, g, out=gradients)
        np.multiply(squares, self.kept_squares, out=squares)
        np.multiply(g, g, out=g)
        np.add(squares, g, out=squares)
        np.sqrt(squares, out=g)
        np.add(g, self.eps, out=g)
        np.divide(gradients, g, out=g)
        np.multiply(g, self.factor, out=g)
