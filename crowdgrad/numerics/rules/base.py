"""What every rule can do: change parameters by an update, remembering what it must.

A rule itself is a frozen dataclass of hyperparameters; what it remembers from step to step is a
`Memory` that others keep, copy and put back. The same rules step the host's parameters and, inside
a unit, a volunteer's replica.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from crowdgrad.numerics.vectors import Vector


@dataclass(slots=True)
class Memory:
    """What a rule remembers: vectors as long as the parameters, and numbers."""

    vectors: dict[str, Vector]
    numbers: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    """How often the rule has stepped."""

    @property
    def bytes(self) -> int:
        return sum(int(vector.nbytes) for vector in self.vectors.values())

    def copy(self) -> Memory:
        vectors = {name: vector.copy() for name, vector in self.vectors.items()}
        return Memory(vectors, dict(self.numbers), self.steps)

    def clear(self) -> None:
        """Begin anew, in the same place."""
        for vector in self.vectors.values():
            vector.fill(0.0)
        self.numbers.clear()
        self.steps = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a rule is told of a step besides the vectors."""

    rate: float
    """η, after schedule and staleness."""
    batches: int = 1
    """How many batches' gradients the update is the sum of."""
    base_D: Vector | None = None
    """The parameters that the update was computed from; for rules that need them."""
    trained: tuple[slice, ...] | None = None
    """The parts of the parameters that learn at all; None: everything. Decay stays inside them."""


class Rule(Protocol):
    """A frozen dataclass with the hyperparameters as fields, all of them numbers or flags."""

    name: ClassVar[str]
    sentence: ClassVar[str]
    vectors: ClassVar[tuple[str, ...]]
    """Names of the vectors it remembers; they begin as zeros."""
    needs_base: ClassVar[bool]
    """Whether it asks for the parameters that an update was computed from."""
    takes_weights: ClassVar[bool]
    """Whether updates are weights instead of gradients."""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        """Change parameters and memory in place. The update may be used as scratch space.

        Numbers that are not finite are passed on silently: whoever steps looks at them.
        """


def begin(rule: Rule, size: int) -> Memory:
    """The memory of a rule that has not stepped yet."""
    return Memory({name: np.zeros(size, np.float32) for name in rule.vectors})
