"""NAdam against its equation in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crowdgrad.numerics.rules.nadam import NAdam
from tests.numerics.rules.streams import RATE, distance, follow, gradients, start, wide


@pytest.mark.parametrize(
    ("beta1", "beta2", "eps", "momentum_decay"),
    [(0.9, 0.999, 1e-8, 4e-3), (0.5, 0.9, 1e-2, 3.0), (0.0, 0.0, 1e-3, 0.0)],
)
def test_it_is_the_equation(beta1: float, beta2: float, eps: float, momentum_decay: float) -> None:
    ours, plain, stream = start(), wide(start()), gradients(6)
    mean, square = np.zeros_like(plain), np.zeros_like(plain)
    mus = [beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay)) for t in range(1, 8)]
    for t, g in enumerate(map(wide, stream), start=1):
        mean = beta1 * mean + (1 - beta1) * g
        square = beta2 * square + (1 - beta2) * g**2
        of_gradient = (1 - mus[t - 1]) / (1 - math.prod(mus[:t]))
        of_mean = mus[t] / (1 - math.prod(mus[: t + 1]))
        ahead = of_gradient * g + of_mean * mean
        plain -= RATE * ahead / (np.sqrt(square / (1 - beta2**t)) + eps)
    rule = NAdam(beta1=beta1, beta2=beta2, eps=eps, momentum_decay=momentum_decay)
    follow(rule, ours, stream)
    assert distance(ours, plain) < 1e-6
