"""RMSProp (Hinton, Coursera lecture 6e, 2012), with PyTorch's momentum:

    s ← α·s + (1 − α)·g²,   v ← μ·v + g/(√s + ε),   w ← w − η·v

Remembered is s/(1 − α), which saves a pass; with c = √(1 − α) the quotient is that of
g and √(s/(1 − α)) + ε/c, divided by c.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import BLOCK, Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class RMSProp:
    name: ClassVar[str] = "rmsprop"
    sentence: ClassVar[str] = (
        "Divides each gradient by the usual size of its parameter's gradients."
    )
    vectors: ClassVar[tuple[str, ...]] = ("squares", "velocity")
    """Without momentum the velocity is never touched."""
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    alpha: float = 0.99
    """α: the part of the mean square that is kept."""
    eps: float = 1e-8
    """ε: keeps the division finite."""
    momentum: float = 0.0
    """μ: the part of the speed that is kept."""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise ValueError(f"alpha {self.alpha} is not from 0 to below 1")
        if not 1e-30 <= self.eps <= 1:  # 0, also as a float32, would make 0/0 of a zero gradient
            raise ValueError(f"eps {self.eps} is not from 1e-30 to 1")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum {self.momentum} is not from 0 to below 1")

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        squares_D, velocity_D = memory.vectors["squares"], memory.vectors["velocity"]
        memory.steps += 1
        scratch = np.empty(min(BLOCK, len(parameters_D)), np.float32)
        c = math.sqrt(1 - self.alpha)
        with np.errstate(all="ignore"):
            rate, eps = np.float32(step.rate / c), np.float32(self.eps / c)
            kept, kept_speed = np.float32(self.alpha), np.float32(self.momentum)
            for here in blocks(len(parameters_D)):
                w, g, s = parameters_D[here], update_D[here], squares_D[here]
                root = scratch[: len(w)]
                np.multiply(s, kept, out=s)
                np.multiply(g, g, out=root)
                np.add(s, root, out=s)
                np.sqrt(s, out=root)
                np.add(root, eps, out=root)
                np.divide(g, root, out=g)
                if self.momentum > 0:
                    v = velocity_D[here]
                    np.multiply(v, kept_speed, out=v)
                    np.add(v, g, out=v)
                    g = np.multiply(v, rate, out=g)
                else:
                    np.multiply(g, rate, out=g)
                np.subtract(w, g, out=w)
