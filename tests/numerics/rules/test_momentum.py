"""Momentum against its equation in float64."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.numerics.rules.base import Step, begin
from crowdgrad.numerics.rules.momentum import Momentum
from tests.numerics.rules.streams import RATE, distance, follow, gradients, start, wide


@pytest.mark.parametrize(("momentum", "dampening"), [(0.9, 0.0), (0.5, 0.3), (0.0, 0.0)])
def test_it_is_the_equation(momentum: float, dampening: float) -> None:
    ours, plain, stream = start(), wide(start()), gradients(6)
    velocity = np.zeros_like(plain)
    for number, g in enumerate(stream):
        velocity = momentum * velocity + (1 - (dampening if number > 0 else 0)) * wide(g)
        plain -= RATE * velocity
    follow(Momentum(momentum=momentum, dampening=dampening), ours, stream)
    assert distance(ours, plain) < 1e-6


def test_by_hand() -> None:
    w, rule = np.array([1.0], np.float32), Momentum(momentum=0.5, dampening=0.25)
    memory = begin(rule, 1)
    seen = []
    for g in (1.0, 1.0, 2.0):  # velocities 1, 0.5 + 0.75, 0.625 + 1.5
        rule.step(w, np.array([g], np.float32), memory, Step(rate=2.0))
        seen.append(float(w[0]))
    assert seen == [-1.0, -3.5, -7.75]
