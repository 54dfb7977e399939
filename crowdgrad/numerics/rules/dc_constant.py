"""Delay-compensated SGD, constant form (DC-ASGD-c, Zheng et al. 2016, arXiv 1609.08326):

    w ← w − η·(g + λ·g⊙g⊙(w − b))

b: the parameters that g was computed from. The second term is the first of a Taylor series that
moves the gradient from b to w, with g⊙g for the Hessian's diagonal.

Where the update is the sum of n batches' gradients, each of about g/n, the sum of their corrections
is n·(g/n)⊙(g/n), so the term has g⊙g/n. With b = w it is exactly SGD.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import BLOCK, Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayCompensated:
    name: ClassVar[str] = "dc_constant"
    sentence: ClassVar[str] = "Corrects a late gradient for how far the parameters have moved."
    vectors: ClassVar[tuple[str, ...]] = ()
    needs_base: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False

    strength: float = 0.04
    """λ: how much of the correction is made."""

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1e6:
            raise ValueError(f"strength {self.strength} is not from 0 to a million")

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        base_D = step.base_D
        assert base_D is not None, "dc_constant needs the parameters the update came from"
        memory.steps += 1
        scratch = np.empty(min(BLOCK, len(parameters_D)), np.float32)
        with np.errstate(all="ignore"):
            rate = np.float32(step.rate)
            factor = np.float32(step.rate * self.strength / step.batches)
            for here in blocks(len(parameters_D)):
                w, g = parameters_D[here], update_D[here]
                moved = scratch[: len(w)]
                np.subtract(w, base_D[here], out=moved)
                np.multiply(moved, g, out=moved)
                np.multiply(moved, factor, out=moved)
                np.add(moved, rate, out=moved)  # η·(1 + λ·g⊙(w − b)): exactly η where w = b
                np.multiply(g, moved, out=g)
                np.subtract(w, g, out=w)
