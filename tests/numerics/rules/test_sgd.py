"""SGD in blocks of float32 against the formula in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.numerics.rules.base import Step, begin
from crowdgrad.numerics.rules.sgd import SGD
from crowdgrad.numerics.vectors import BLOCK, Vector


def stepped(parameters: Vector, gradient: Vector, rate: float) -> int:
    memory = begin(SGD(), len(parameters))
    SGD().step(parameters, gradient, memory, Step(rate=rate))
    return memory.steps


@settings(max_examples=20)
@given(st.integers(0, 2 * BLOCK + 3), st.floats(1e-6, 10.0), st.integers(0, 1000))
def test_it_is_the_formula(length: int, rate: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    before = random.normal(size=length).astype(np.float32)
    gradient = random.normal(size=length).astype(np.float32)
    expected = before.astype(np.float64) - rate * gradient.astype(np.float64)
    parameters = before.copy()
    assert stepped(parameters, gradient.copy(), rate) == 1
    assert parameters.dtype == np.float32
    np.testing.assert_allclose(parameters, expected, rtol=1e-5, atol=1e-6 * (1 + rate))


def test_parameters_change_in_place() -> None:
    parameters = np.ones(4, np.float32)
    view = parameters[1:3]
    stepped(parameters, np.full(4, 2.0, np.float32), 0.5)
    assert view.tolist() == [0.0, 0.0]


def test_an_overflow_is_left_to_whoever_looks_at_the_result() -> None:
    parameters = np.zeros(3, np.float32)
    stepped(parameters, np.full(3, np.finfo(np.float32).max, np.float32), 100.0)
    assert not np.isfinite(parameters).any()


def test_an_update_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        stepped(np.zeros(4, np.float32), np.zeros(3, np.float32), 0.1)
