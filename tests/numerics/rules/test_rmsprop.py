"""RMSProp against its equation in float64."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.numerics.rules.rmsprop import RMSProp
from tests.numerics.rules.streams import RATE, distance, follow, gradients, start, wide


@pytest.mark.parametrize(
    ("alpha", "eps", "momentum"), [(0.99, 1e-8, 0.0), (0.9, 1e-2, 0.5), (0.0, 1e-3, 0.9)]
)
def test_it_is_the_equation(alpha: float, eps: float, momentum: float) -> None:
    ours, plain, stream = start(), wide(start()), gradients(6)
    squares, velocity = np.zeros_like(plain), np.zeros_like(plain)
    for g in map(wide, stream):
        squares = alpha * squares + (1 - alpha) * g**2
        velocity = momentum * velocity + g / (np.sqrt(squares) + eps)
        plain -= RATE * velocity
    memory = follow(RMSProp(alpha=alpha, eps=eps, momentum=momentum), ours, stream)
    assert distance(ours, plain) < 1e-6
    assert memory.vectors["velocity"].any() == (momentum > 0)
