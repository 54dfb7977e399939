"""What must change in a captured graph before it can travel, one small function a rewrite.

A rewrite replaces one ATen operator by others that compute the same. A *random* rewrite is given
its random numbers as its first argument: they become an input of the program, because an operator
that draws inside the graph could never be recomputed by anyone else. What nobody wrote
a rewrite for, torch.onnx translates, or takes apart as PyTorch itself does. Rewrites that must
happen before differentiation are in `early`, those of recurrent layers in `recurrent`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from torch._ops import OpOverload

from crowdgrad.domain.program import NoiseKind

Rewrite = Callable[..., Any]
"""Called with the operator's arguments, a random one with its noise before them."""


@dataclass(frozen=True, slots=True)
class RandomRewrite:
    kind: NoiseKind
    apply: Rewrite


REWRITES: Final[dict[OpOverload, Rewrite]] = {}
RANDOM: Final[dict[OpOverload, RandomRewrite]] = {}


def rewrite(*operators: OpOverload) -> Callable[[Rewrite], Rewrite]:
    """Register the function below as the replacement of `operators`."""

    def register(function: Rewrite) -> Rewrite:
        REWRITES.update(dict.fromkeys(operators, function))
        return function

    return register


def random(kind: NoiseKind, *operators: OpOverload) -> Callable[[Rewrite], Rewrite]:
    """Register the function below as the replacement of random `operators`."""

    def register(function: Rewrite) -> Rewrite:
        RANDOM.update(dict.fromkeys(operators, RandomRewrite(kind, function)))
        return function

    return register


def replacement(target: object) -> Rewrite | None:
    """What to call instead of an operator; None where it may stay."""
    return REWRITES.get(target) if isinstance(target, OpOverload) else None


# The one list of rewrites; each module registers itself when imported.
for _name in ("randomness", "bookkeeping", "convolution", "pooling", "normalisation", "scalars"):
    importlib.import_module(f"{__name__}.{_name}")
