"""Adagrad: s ← s + g², w ← w − η·g/(√s + ε) (Duchi, Hazan & Singer 2011).

Downpour SGD (Dean et al. 2012) uses it on the server: parameters that rarely get a gradient keep a
large rate.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import BLOCK, Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Adagrad:
    name: ClassVar[str] = "adagrad"
    sentence: ClassVar[str] = "Gives each parameter a rate that falls with the gradients it had."
    vectors: ClassVar[tuple[str, ...]] = ("squares",)
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    eps: float = 1e-10
    """ε: keeps the division finite."""

    def __post_init__(self) -> None:
        if not 1e-30 <= self.eps <= 1:  # 0, also as a float32, would make 0/0 of a zero gradient
            raise ValueError(f"eps {self.eps} is not from 1e-30 to 1")

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        squares_D = memory.vectors["squares"]
        memory.steps += 1
        scratch = np.empty(min(BLOCK, len(parameters_D)), np.float32)
        with np.errstate(all="ignore"):
            rate, eps = np.float32(step.rate), np.float32(self.eps)
            for here in blocks(len(parameters_D)):
                w, g, s = parameters_D[here], update_D[here], squares_D[here]
                root = scratch[: len(w)]
                np.multiply(g, g, out=root)
                np.add(s, root, out=s)
                np.sqrt(s, out=root)
                np.add(root, eps, out=root)
                np.divide(g, root, out=g)
                np.multiply(g, rate, out=g)
                np.subtract(w, g, out=w)
