"""Delay compensation whose strength follows the gradients' mean square."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.numerics.rules.base import Memory, Step, begin
from crowdgrad.numerics.rules.dc_adaptive import AdaptiveDelayCompensated
from crowdgrad.numerics.rules.sgd import SGD
from tests.numerics.rules.streams import SIZE, distance, gradients, start, wide


@pytest.mark.parametrize("batches", [1, 5])
@pytest.mark.parametrize(("strength", "decay"), [(2.0, 0.95), (0.5, 0.0)])
def test_it_is_the_equation(strength: float, decay: float, batches: int) -> None:
    rule = AdaptiveDelayCompensated(strength=strength, decay=decay)
    ours, plain, memory = start(), wide(start()), begin(rule, SIZE)
    mean_square = np.zeros_like(plain)
    for number, g in enumerate(gradients(4)):
        base = start(seed=number)
        mean_square = decay * mean_square + (1 - decay) * (wide(g) / batches) ** 2
        strengths = strength / np.sqrt(mean_square + 1e-7)
        plain -= 0.01 * (wide(g) + strengths * wide(g) ** 2 / batches * (plain - base))
        rule.step(ours, g, memory, Step(rate=0.01, batches=batches, base_D=base))
    assert distance(ours, plain) < 1e-6
    assert memory.steps == 4


@pytest.mark.parametrize("batches", [1, 4])
def test_an_update_that_is_not_late_is_plain_sgd_bit_for_bit(batches: int) -> None:
    rule = AdaptiveDelayCompensated(strength=7.0)
    ours, sgds, memory = start(), start(), begin(rule, SIZE)
    for g in gradients(3):
        at_once = Step(rate=0.1, batches=batches, base_D=ours.copy())
        rule.step(ours, g.copy(), memory, at_once)
        SGD().step(sgds, g.copy(), Memory({}), Step(rate=0.1, batches=batches))
    assert np.array_equal(ours, sgds)


def test_a_late_one_differs_from_sgd_by_the_correction() -> None:
    rule, late, base = AdaptiveDelayCompensated(), gradients(1, seed=9)[0], start(seed=4)
    ours, sgds = start(), start()
    rule.step(ours, late.copy(), begin(rule, SIZE), Step(rate=0.5, base_D=base))
    SGD().step(sgds, late.copy(), Memory({}), Step(rate=0.5))
    strengths = 2 / np.sqrt(0.05 * wide(late) ** 2 + 1e-7)
    correction = 0.5 * strengths * wide(late) ** 2 * (wide(start()) - wide(base))
    np.testing.assert_allclose(wide(sgds) - wide(ours), correction, rtol=1e-4, atol=1e-4)
    assert np.array_equal(base, start(seed=4))


def test_large_gradients_are_corrected_less_than_with_a_constant_strength() -> None:
    rule = AdaptiveDelayCompensated(strength=1.0, decay=0.0)
    w, g = np.ones(2, np.float32), np.array([0.01, 100.0], np.float32)
    rule.step(w, g, begin(rule, 2), Step(rate=1.0, base_D=np.zeros(2, np.float32)))
    # λₜ = 1/|g|, so that the correction is |g|·(w − b) = g: the step is twice SGD's for both.
    np.testing.assert_allclose(w, [1 - 0.02, 1 - 200], rtol=1e-3)
