"""Nesterov's momentum: v ← μ·v + g, w ← w − η·(g + μ·v) (Nesterov 1983; Sutskever et al. 2013).

As PyTorch defines it. What is remembered is u = μ·v, which saves a pass: u ← μ·(u + g),
w ← w − η·(g + u).

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Nesterov:
    name: ClassVar[str] = "nesterov"
    sentence: ClassVar[str] = "Momentum that already steps where its speed will take it."
    vectors: ClassVar[tuple[str, ...]] = ("ahead",)
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    momentum: float = 0.9
    """μ: the part of the speed that is kept."""

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum {self.momentum} is not from 0 to below 1")

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        ahead_D = memory.vectors["ahead"]
        memory.steps += 1
        with np.errstate(all="ignore"):
            rate, kept = np.float32(step.rate), np.float32(self.momentum)
            for here in blocks(len(parameters_D)):
                w, g, u = parameters_D[here], update_D[here], ahead_D[here]
                np.add(u, g, out=u)
                np.multiply(u, kept, out=u)
                np.add(g, u, out=g)
                np.multiply(g, rate, out=g)
                np.subtract(w, g, out=w)
