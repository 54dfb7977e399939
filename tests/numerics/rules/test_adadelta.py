"""Adadelta against its equation in float64."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.numerics.rules.adadelta import Adadelta
from tests.numerics.rules.streams import distance, follow, gradients, start, wide


@pytest.mark.parametrize(("rho", "eps"), [(0.9, 1e-6), (0.5, 1e-2), (0.0, 1e-3)])
def test_it_is_the_equation(rho: float, eps: float) -> None:
    ours, plain, stream = start(), wide(start()), gradients(6)
    squares, changes = np.zeros_like(plain), np.zeros_like(plain)
    for g in map(wide, stream):
        squares = rho * squares + (1 - rho) * g**2
        change = g * np.sqrt(changes + eps) / np.sqrt(squares + eps)
        changes = rho * changes + (1 - rho) * change**2
        plain -= 10 * change
    follow(Adadelta(rho=rho, eps=eps), ours, stream, rate=10.0)
    assert distance(ours, plain) < 1e-6
    assert distance(ours - start(), plain - start()) < 1e-5
