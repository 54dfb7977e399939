"""Adam against its equation in float64."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.numerics.rules.adam import Adam
from tests.numerics.rules.streams import RATE, distance, follow, gradients, start, wide


@pytest.mark.parametrize(
    ("beta1", "beta2", "eps"), [(0.9, 0.999, 1e-8), (0.5, 0.9, 1e-2), (0.0, 0.0, 1e-3)]
)
def test_it_is_the_equation(beta1: float, beta2: float, eps: float) -> None:
    ours, plain, stream = start(), wide(start()), gradients(6)
    mean, square = np.zeros_like(plain), np.zeros_like(plain)
    for t, g in enumerate(map(wide, stream), start=1):
        mean = beta1 * mean + (1 - beta1) * g
        square = beta2 * square + (1 - beta2) * g**2
        unbiased_mean, unbiased_square = mean / (1 - beta1**t), square / (1 - beta2**t)
        plain -= RATE * unbiased_mean / (np.sqrt(unbiased_square) + eps)
    follow(Adam(beta1=beta1, beta2=beta2, eps=eps), ours, stream)
    assert distance(ours, plain) < 1e-6


def test_the_first_step_is_as_large_as_the_rate_whatever_the_gradient() -> None:
    w = np.zeros(3, np.float32)
    follow(Adam(), w, [np.array([1e-3, -40.0, 7.0], np.float32)], rate=0.5)
    np.testing.assert_allclose(w, [-0.5, 0.5, -0.5], rtol=2e-5)
