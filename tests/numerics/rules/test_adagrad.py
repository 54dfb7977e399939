"""Adagrad against its equation in float64."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.numerics.rules.adagrad import Adagrad
from tests.numerics.rules.streams import RATE, distance, follow, gradients, start, wide


@pytest.mark.parametrize("eps", [1e-10, 1e-2])
def test_it_is_the_equation(eps: float) -> None:
    ours, plain, stream = start(), wide(start()), gradients(6)
    squares = np.zeros_like(plain)
    for g in map(wide, stream):
        squares += g**2
        plain -= RATE * g / (np.sqrt(squares) + eps)
    follow(Adagrad(eps=eps), ours, stream)
    assert distance(ours, plain) < 1e-6
