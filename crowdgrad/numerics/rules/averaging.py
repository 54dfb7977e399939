"""Averaging: w ← w + α·(received − w).

The update holds weights that a volunteer trained, not gradients, and the server averages them with
its own, as the crowdsource platform (Trinity College Dublin, 2018) does; with a small α it is the
server's side of asynchronous federated averaging (Xie et al. 2019, arXiv 1903.03934). The learning
rate is not used: the volunteer's own steps had it.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import Vector, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Averaging:
    name: ClassVar[str] = "averaging"
    sentence: ClassVar[str] = "Averages the weights it receives with its own."
    vectors: ClassVar[tuple[str, ...]] = ()
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True

    share: float = 0.5
    """α: how much the received weights count."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share {self.share} is not from above 0 to 1")

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        memory.steps += 1
        with np.errstate(all="ignore"):
            share = np.float32(self.share)
            for here in blocks(len(parameters_D)):
                w, received = parameters_D[here], update_D[here]
                np.subtract(received, w, out=received)
                np.multiply(received, share, out=received)
                np.add(w, received, out=w)
