"""Stochastic gradient descent: w ← w − η · g.

Applied asynchronously (Hogwild!, Recht et al. 2011; Downpour, Dean et al. 2012) the gradient g was
taken at parameters that others have changed since.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

import numpy as np

from crowdgrad.numerics.vectors import Vector, blocks


class SGD:
    def __init__(self, learning_rate: float) -> None:
        self._rate = np.float32(learning_rate)

    def apply(self, parameters_D: Vector, update_D: Vector, *, staleness: int) -> None:
        with np.errstate(all="ignore"):  # whoever applies it looks whether all is still finite
            for here in blocks(len(parameters_D)):
                step = np.multiply(update_D[here], self._rate, out=update_D[here])
                np.subtract(parameters_D[here], step, out=parameters_D[here])
