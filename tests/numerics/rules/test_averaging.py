"""Averaging received weights with the server's own, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.numerics.rules.averaging import Averaging
from crowdgrad.numerics.rules.base import Memory, Step
from tests.numerics.rules.streams import distance, start, wide


def test_by_hand() -> None:
    w, memory = np.array([1.0, -2.0, 8.0], np.float32), Memory({})
    Averaging().step(w, np.array([3.0, 2.0, 8.0], np.float32), memory, Step(rate=0.1))
    assert w.tolist() == [2.0, 0.0, 8.0]
    Averaging(share=0.25).step(w, np.array([6.0, -4.0, 0.0], np.float32), memory, Step(rate=9.9))
    assert w.tolist() == [3.0, -1.0, 6.0]
    assert memory.steps == 2


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_it_is_the_equation(share: float) -> None:
    ours, plain = start(), wide(start())
    for seed in range(1, 5):
        received = start(seed=seed)
        plain = (1 - share) * plain + share * wide(received)
        Averaging(share=share).step(ours, received, Memory({}), Step(rate=0.3))
    assert distance(ours, plain) < 1e-6


def test_the_same_weights_change_nothing() -> None:
    w = start()
    Averaging(share=0.3).step(w, start(), Memory({}), Step(rate=0.1))
    assert np.array_equal(w, start())
