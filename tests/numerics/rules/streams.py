"""Parameters and gradients to try rules on, and how far two results are apart."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdgrad.numerics.rules.base import Memory, Rule, Step, begin
from crowdgrad.numerics.vectors import BLOCK, Vector

SIZE = BLOCK + 4_465
"""More than a block, and not a whole number of them."""
RATE = 0.07
"""No factor of any equation, lest two of them cancel."""


def start(size: int = SIZE, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def gradients(count: int, size: int = SIZE, seed: int = 1) -> list[Vector]:
    """Some parameters with small gradients, some with large ones, some with none."""
    random = np.random.default_rng(seed)
    scale = 10.0 ** random.uniform(-3, 1, size=size)
    scale[::97] = 0.0
    return [(scale * random.normal(size=size)).astype(np.float32) for _ in range(count)]


def follow(
    rule: Rule,
    parameters_D: Vector,
    updates: Iterable[Vector],
    rate: float = RATE,
    memory: Memory | None = None,
) -> Memory:
    """Step through all updates, in place; the updates themselves stay as they are."""
    memory = begin(rule, len(parameters_D)) if memory is None else memory
    base_D = np.full_like(parameters_D, 0.25) if rule.needs_base else None
    for update_D in updates:
        step = Step(rate=rate, base_D=base_D)
        rule.step(parameters_D, update_D.copy(), memory, step)
    return memory


def distance(ours: ArrayLike, theirs: ArrayLike) -> float:
    """Of two vectors, relative to the second."""
    a, b = wide(ours), wide(theirs)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def wide(vector: ArrayLike) -> NDArray[np.float64]:
    return np.array(vector, np.float64)
