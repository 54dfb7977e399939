"""Delay-compensated SGD, adaptive form (DC-ASGD-a, Zheng et al. 2016, arXiv 1609.08326):

    s ← m·s + (1 − m)·g⊙g,   λₜ = λ₀/√(s + 10⁻⁷),   w ← w − η·(g + λₜ⊙g⊙g⊙(w − b))

b: the parameters that g was computed from. Where gradients are large the correction of
`dc_constant` would be too, so λ falls with their mean square, element by element.

Where the update is the sum of n batches' gradients, the mean square is that of the mean gradient
g/n, and the correction has g⊙g/n, as in `dc_constant`. With b = w it is exactly SGD. Remembered is
s/(1 − m), which saves a pass.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import BLOCK, Vector, blocks

EPS: Final = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveDelayCompensated:
    name: ClassVar[str] = "dc_adaptive"
    sentence: ClassVar[str] = (
        "Corrects a late gradient for how far the parameters have moved, less where gradients are "
        "large."
    )
    vectors: ClassVar[tuple[str, ...]] = ("squares",)
    needs_base: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False

    strength: float = 2.0
    """λ₀: how much of the correction is made."""
    decay: float = 0.95
    """m: the part of the mean square that is kept."""

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1e6:
            raise ValueError(f"strength {self.strength} is not from 0 to a million")
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay {self.decay} is not from 0 to below 1")

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        base_D, squares_D = step.base_D, memory.vectors["squares"]
        assert base_D is not None, "dc_adaptive needs the parameters the update came from"
        memory.steps += 1
        scratch = np.empty((2, min(BLOCK, len(parameters_D))), np.float32)
        with np.errstate(all="ignore"):
            rate, kept = np.float32(step.rate), np.float32(self.decay)
            eps, of_square = np.float32(EPS / (1 - self.decay)), np.float32(1 / step.batches**2)
            strength = self.strength / math.sqrt(1 - self.decay) / step.batches
            factor = np.float32(step.rate * strength)
            for here in blocks(len(parameters_D)):
                w, g, s = parameters_D[here], update_D[here], squares_D[here]
                root, moved = scratch[:, : len(w)]
                np.multiply(g, g, out=root)
                if step.batches > 1:
                    np.multiply(root, of_square, out=root)
                np.multiply(s, kept, out=s)
                np.add(s, root, out=s)
                np.add(s, eps, out=root)
                np.sqrt(root, out=root)
                np.subtract(w, base_D[here], out=moved)
                np.divide(moved, root, out=moved)
                np.multiply(moved, g, out=moved)
                np.multiply(moved, factor, out=moved)
                np.add(moved, rate, out=moved)  # η·(1 + λₜ⊙g⊙(w − b)): exactly η where w = b
                np.multiply(g, moved, out=g)
                np.subtract(w, g, out=w)
