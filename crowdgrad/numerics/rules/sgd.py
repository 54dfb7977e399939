"""Stochastic gradient descent: w ← w − η·g (Robbins & Monro 1951).

Applied asynchronously (Hogwild!, Recht et al. 2011; Downpour, Dean et al. 2012) the gradient g was
taken at parameters that others have changed since.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class SGD:
    name: ClassVar[str] = "sgd"
    sentence: ClassVar[str] = "Steps against the gradient, in proportion to it."
    vectors: ClassVar[tuple[str, ...]] = ()
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        memory.steps += 1
        with np.errstate(all="ignore"):
            rate = np.float32(step.rate)
            for here in blocks(len(parameters_D)):
                w, g = parameters_D[here], update_D[here]
                np.multiply(g, rate, out=g)
                np.subtract(w, g, out=w)
