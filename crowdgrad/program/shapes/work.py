"""What a node costs: floating-point operations, roughly, at a batch.

Products and convolutions are counted exactly, two operations a multiplication with its addition.
Everything else takes a few operations for each number it reads or makes, whichever are more.
"""

from __future__ import annotations

import math
from typing import Final

from crowdgrad.program.graph import Node
from crowdgrad.program.shapes.base import Value
from crowdgrad.program.shapes.infer import Shapes
from crowdgrad.program.sizes import at

_PRICES: Final = (
    (0, "Shape Size"),
    (4, "BatchNormalization Div Sqrt Reciprocal Mod"),
    (8, "InstanceNormalization LayerNormalization LogSoftmax Softmax"),
    (
        16,
        "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Elu Erf Exp Gelu Log Pow Sigmoid Sin Sinh Tan "
        "Tanh",
    ),
)
_PRICE: Final = {op: price for price, ops in _PRICES for op in ops.split()}
"""Operations for each number; 1 for every other operator."""


def work(node: Node, shapes: Shapes, samples: int) -> int:
    """Floating-point operations of a node for a batch of `samples`."""
    values = shapes.values
    made = [values[name] for name in node.outputs if name]
    read = [values[name] for name in node.inputs if name]
    if node.op in ("MatMul", "Gemm", "Conv", "ConvTranspose"):
        return 2 * _multiplications(node, read, made[0], samples)
    size = max(_count(value, samples) for value in (*read, *made)) if made else 0
    if node.op in ("AveragePool", "MaxPool"):
        kernel = node.attributes.get("kernel_shape", ())
        return _count(made[0], samples) * math.prod(kernel if isinstance(kernel, tuple) else ())
    if node.op == "TopK":
        return size * max(1, size.bit_length())
    return size * _PRICE.get(node.op, 1)


def _multiplications(node: Node, read: list[Value], made: Value, samples: int) -> int:
    first, second = read[0], read[1]
    if node.op == "MatMul":
        return _count(made, samples) * at(first.dims[-1], samples)
    if node.op == "Gemm":
        inner = first.dims[0 if node.attributes.get("transA") else 1]
        return _count(made, samples) * at(inner, samples)
    per_place = math.prod(at(size, samples) for size in second.dims[1:])
    return _count(made if node.op == "Conv" else first, samples) * per_place


def _count(value: Value, samples: int) -> int:
    return math.prod([size if type(size) is int else at(size, samples) for size in value.dims])
