"""What a sample costs: floating-point operations of the matrix products, forward and backward.

The products are what takes time; everything else grows with them. So credit counts them alone.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import fx

aten = torch.ops.aten
# Operator → where its left factor stands among the arguments.
_PRODUCTS: Final[dict[Any, int]] = {
    aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1,
}  # fmt: skip


def work_per_sample(module: fx.GraphModule, samples: int) -> float:
    """2·m·k·n for every product of the graph, over `samples`; at least 1."""
    total = 0.0
    for node in module.graph.nodes:
        if node.target in _PRODUCTS:
            left = node.args[_PRODUCTS[node.target]].meta["val"]
            total += (
                2.0 * _elements(node.meta["val"].shape, samples) * _size(left.shape[-1], samples)
            )
    return max(1.0, total / samples)


def _elements(shape: Any, samples: int) -> int:
    return math.prod(_size(size, samples) for size in shape)


def _size(size: Any, samples: int) -> int:
    """A symbolic size at the traced batch: its expression with every symbol set to `samples`."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression.subs(dict.fromkeys(expression.free_symbols, samples)))
