"""AdamW against its equation in float64, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.numerics.rules.adam import Adam
from crowdgrad.numerics.rules.adamw import AdamW
from crowdgrad.numerics.rules.base import Step, begin
from crowdgrad.numerics.vectors import BLOCK
from tests.numerics.rules.streams import RATE, SIZE, distance, follow, gradients, start, wide


@pytest.mark.parametrize(("beta1", "beta2", "decay"), [(0.9, 0.999, 0.01), (0.5, 0.9, 0.4)])
def test_it_is_the_equation(beta1: float, beta2: float, decay: float) -> None:
    ours, plain, stream = start(), wide(start()), gradients(6)
    mean, square = np.zeros_like(plain), np.zeros_like(plain)
    for t, g in enumerate(map(wide, stream), start=1):
        mean = beta1 * mean + (1 - beta1) * g
        square = beta2 * square + (1 - beta2) * g**2
        unbiased_mean, unbiased_square = mean / (1 - beta1**t), square / (1 - beta2**t)
        plain = (
            plain - RATE * decay * plain - RATE * unbiased_mean / (np.sqrt(unbiased_square) + 1e-8)
        )
    follow(AdamW(beta1=beta1, beta2=beta2, decay=decay), ours, stream)
    assert distance(ours, plain) < 1e-6


def test_without_decay_it_is_adam() -> None:
    ours, adams, stream = start(), start(), gradients(5)
    follow(AdamW(decay=0.0), ours, stream)
    follow(Adam(), adams, stream)
    assert np.array_equal(ours, adams)


def test_what_is_frozen_does_not_decay() -> None:
    trained = (slice(10, 20), slice(20, 21), slice(BLOCK - 5, BLOCK + 7), slice(SIZE - 1, SIZE))
    w, rule = start(), AdamW(decay=0.5)
    memory = begin(rule, SIZE)
    for _ in range(3):
        rule.step(w, np.zeros(SIZE, np.float32), memory, Step(rate=0.1, trained=trained))
    expected = wide(start())
    for part in trained:
        expected[part] *= 0.95**3
    moved = expected != start()
    np.testing.assert_allclose(w, expected, rtol=1e-6)
    assert np.array_equal(w[~moved], start()[~moved])
    assert moved.sum() == 24
