"""What a sample costs: arithmetic, and memory for what is kept between forward and backward.

Work is counted as the floating-point operations of matrix products and convolutions: they are what
takes time, everything else grows with them. Memory is the peak of what the gradient graph's values
occupy, each from where it is made to where it is last read; an engine may need somewhat less or
more, depending on what it fuses and reuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, fx

from crowdgrad.capture.trace import Traced

aten = torch.ops.aten
# Operator → where its left factor stands among the arguments.
_PRODUCTS: Final[dict[Any, int]] = {
    aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1,
}  # fmt: skip
# These give another view of a value, which takes no memory of its own.
_VIEWS: Final = frozenset(
    {
        aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.alias.default,
        aten.squeeze.dim, aten.squeeze.dims, aten.detach.default,
    }
)  # fmt: skip
_SIZES: Final = (32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Estimated bytes of a gradient step's intermediate values."""

    fixed_bytes: int
    bytes_per_sample: int

    def at(self, samples: int) -> int:
        return self.fixed_bytes + self.bytes_per_sample * samples


def work_per_sample(training: Iterable[Traced], evaluation: Traced) -> float:
    """Operations of a sample's forward and backward pass; at least 1.

    The graphs of several groups of parameters share one forward pass.
    """
    graphs = tuple(training)
    total = sum(_work(traced) for traced in graphs)
    return max(1.0, total - (len(graphs) - 1) * _work(evaluation))


def activation_memory(graphs: Iterable[Traced]) -> Memory:
    """How much the largest of the graphs needs, as a straight line over the batch size."""
    graphs = tuple(graphs)
    fixed = graphs[0].batches.fixed
    if fixed:
        return Memory(
            fixed_bytes=0, bytes_per_sample=-(-max(map(_peak_at(fixed), graphs)) // fixed)
        )
    small, large = _SIZES
    low, high = (max(map(_peak_at(size), graphs)) for size in _SIZES)
    slope = (high - low) // (large - small)
    return Memory(fixed_bytes=max(0, low - slope * small), bytes_per_sample=slope)


def _work(traced: Traced) -> float:
    samples = len(traced.examples[0])
    size = _sizes_at(samples)
    total = sum(_operations(node, size) for node in traced.module.graph.nodes)
    return total / samples


Size = Callable[[Any], int]


def _operations(node: fx.Node, size: Size) -> float:
    if node.target in _PRODUCTS:
        left = _value(node.args[_PRODUCTS[node.target]])
        return 2.0 * _elements(_value(node), size) * size(left.shape[-1])
    if node.target is aten.convolution.default:
        x, weight, transposed = node.args[0], node.args[1], node.args[6]
        return _convolution(_value(x if transposed else node), _value(weight), size)
    if node.target is aten.convolution_backward.default:
        gradient, x, weight, transposed = *node.args[:3], node.args[7]
        forward = _convolution(_value(x if transposed else gradient), _value(weight), size)
        mask: Any = node.args[10]
        return forward * sum(map(bool, mask[:2]))
    return 0.0


def _convolution(places: Tensor, weight: Tensor, size: Size) -> float:
    """2 · what the kernel is laid on · the products of one place."""
    return 2.0 * _elements(places, size) * math.prod(map(size, weight.shape[1:]))


def _peak_at(samples: int) -> Callable[[Traced], int]:
    size = _sizes_at(samples)

    def peak(traced: Traced) -> int:
        nodes = [n for n in traced.module.graph.nodes if n.op == "call_function"]
        last = {read: index for index, n in enumerate(nodes) for read in n.all_input_nodes}
        # Results stay until the end; a view keeps what it looks at.
        kept = set(next(n for n in traced.module.graph.nodes if n.op == "output").all_input_nodes)
        for node in reversed(nodes):
            if node.target in _VIEWS and isinstance(node.args[0], fx.Node):
                source = node.args[0]
                last[source] = max(last.get(source, -1), last.get(node, -1))
                if node in kept:
                    kept.add(source)
        held: dict[fx.Node, int] = {}
        now = most = 0
        for index, node in enumerate(nodes):
            held[node] = 0 if node.target in _VIEWS else _bytes(node.meta.get("val"), size)
            now += held[node]
            most = max(most, now)
            for read in {node, *node.all_input_nodes}:
                if read not in kept and last.get(read, -1) <= index:
                    now -= held.pop(read, 0)
        return most

    return peak


def _bytes(value: Any, size: Size) -> int:
    if isinstance(value, (tuple, list)):
        return sum(_bytes(part, size) for part in value)
    if not isinstance(value, Tensor):
        return 0
    return _elements(value, size) * value.element_size()


def _value(node: Any) -> Tensor:
    value: Tensor = node.meta["val"]
    return value


def _elements(value: Tensor, size: Size) -> int:
    return math.prod(map(size, value.shape))


def _sizes_at(samples: int) -> Size:
    """A symbolic size at a batch size: its expression with every symbol set to `samples`."""

    @cache
    def substituted(expression: Any) -> int:
        return int(expression.subs(dict.fromkeys(expression.free_symbols, samples)))

    return lambda size: size if isinstance(size, int) else substituted(size.node.expr)
