"""Delay compensation with a constant strength."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.rules.dc_constant import DelayCompensated
from crowdgrad.numerics.rules.sgd import SGD
from tests.numerics.rules.streams import distance, gradients, start, wide


@pytest.mark.parametrize("batches", [1, 5])
def test_it_is_the_equation(batches: int) -> None:
    ours, plain, memory = start(), wide(start()), Memory({})
    rule = DelayCompensated(strength=0.3)
    for number, g in enumerate(gradients(4)):
        base = start(seed=number)
        correction = 0.3 * wide(g) ** 2 / batches * (plain - base)
        plain -= 0.01 * (wide(g) + correction)
        rule.step(ours, g, memory, Step(rate=0.01, batches=batches, base_D=base))
    assert distance(ours, plain) < 1e-6
    assert memory.steps == 4


@pytest.mark.parametrize("batches", [1, 4])
def test_an_update_that_is_not_late_is_plain_sgd_bit_for_bit(batches: int) -> None:
    ours, sgds = start(), start()
    for g in gradients(3):
        at_once = Step(rate=0.1, batches=batches, base_D=ours.copy())
        DelayCompensated(strength=7.0).step(ours, g.copy(), Memory({}), at_once)
        SGD().step(sgds, g.copy(), Memory({}), Step(rate=0.1, batches=batches))
    assert np.array_equal(ours, sgds)


@pytest.mark.parametrize("staleness", [1, 3, 8])
def test_a_late_one_differs_from_sgd_by_the_correction(staleness: int) -> None:
    history = [start()]
    for g in gradients(staleness):
        history.append(history[-1] - np.float32(0.01) * g)
    late = gradients(1, seed=9)[0]
    ours, sgds = history[-1].copy(), history[-1].copy()
    DelayCompensated().step(ours, late.copy(), Memory({}), Step(rate=0.5, base_D=history[0]))
    SGD().step(sgds, late.copy(), Memory({}), Step(rate=0.5))
    correction = 0.5 * 0.04 * wide(late) ** 2 * (wide(history[-1]) - wide(history[0]))
    assert np.abs(correction).max() > 0.01
    np.testing.assert_allclose(wide(sgds) - wide(ours), correction, rtol=1e-4, atol=1e-5)


def test_what_the_update_was_computed_from_stays_as_it_is() -> None:
    base, g = start(seed=3), gradients(1)[0]
    DelayCompensated().step(start(), g, Memory({}), Step(rate=0.1, base_D=base))
    assert np.array_equal(base, start(seed=3))
