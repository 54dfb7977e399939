"""Momentum: v ← μ·v + (1 − d)·g, w ← w − η·v (Polyak 1964; Sutskever et al. 2013).

As PyTorch defines it: the rate is outside the velocity v, and the first gradient becomes the
velocity undampened.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Momentum:
    name: ClassVar[str] = "momentum"
    sentence: ClassVar[str] = "Keeps part of its speed, so that steady directions add up."
    vectors: ClassVar[tuple[str, ...]] = ("velocity",)
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    momentum: float = 0.9
    """μ: the part of the speed that is kept."""
    dampening: float = 0.0
    """d: the part of each gradient, after the first, that is left out."""

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum {self.momentum} is not from 0 to below 1")
        if not 0 <= self.dampening < 1:
            raise ValueError(f"dampening {self.dampening} is not from 0 to below 1")

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        velocity_D = memory.vectors["velocity"]
        dampened = self.dampening > 0 and memory.steps > 0
        memory.steps += 1
        with np.errstate(all="ignore"):
            rate, kept = np.float32(step.rate), np.float32(self.momentum)
            taken = np.float32(1 - self.dampening)
            for here in blocks(len(parameters_D)):
                w, g, v = parameters_D[here], update_D[here], velocity_D[here]
                if dampened:
                    np.multiply(g, taken, out=g)
                np.multiply(v, kept, out=v)
                np.add(v, g, out=v)
                np.multiply(v, rate, out=g)
                np.subtract(w, g, out=w)
