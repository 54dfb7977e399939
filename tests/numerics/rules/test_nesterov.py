"""Nesterov's momentum against its equation in float64."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.numerics.rules.nesterov import Nesterov
from tests.numerics.rules.streams import RATE, distance, follow, gradients, start, wide


@pytest.mark.parametrize("momentum", [0.9, 0.5, 0.0])
def test_it_is_the_equation(momentum: float) -> None:
    ours, plain, stream = start(), wide(start()), gradients(6)
    velocity = np.zeros_like(plain)
    for g in map(wide, stream):
        velocity = momentum * velocity + g
        plain -= RATE * (g + momentum * velocity)
    follow(Nesterov(momentum=momentum), ours, stream)
    assert distance(ours, plain) < 1e-6
