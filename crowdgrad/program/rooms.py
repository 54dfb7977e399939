"""The room that onnxruntime's operators take while they run, besides what they read and make.

Told from its sources (1.30), operator by operator, for one thread: convolutions lay out one image's
windows, a softmax along another axis than the last turns its input and its result around, a choice
keeps both sides, products of stacks of matrices list their pairs, and whatever goes by indices
lists them as int64.
"""

from __future__ import annotations

import math
from typing import Final

from crowdgrad.program.graph import Node
from crowdgrad.program.shapes import Shapes, Value
from crowdgrad.program.sizes import at

ITEM_BYTES: Final = {1: 4, 2: 1, 3: 1, 5: 2, 6: 4, 7: 8, 9: 1, 11: 8}
"""By ONNX's number of an element type."""
_BLOCKED: Final = 1 << 20
"""A convolution that needs more than this goes block by block."""
_INDEX_BYTES: Final = 8
_PRODUCT_BYTES: Final = 128
"""A product of stacks of matrices keeps notes about each pair."""
_INDEXED: Final = {"GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1}
_REDUCING: Final = ("ArgMax", "ArgMin", "Reduce")


def room_bytes(node: Node, shapes: Shapes, samples: int) -> int:
    """Bytes, at a batch of so many samples."""
    op = node.op
    if op in ("Conv", "ConvTranspose"):
        return _windows(node, shapes, samples)
    made = shapes.values[node.outputs[0]]
    size = _count(made, samples) * ITEM_BYTES[made.element]
    if op == "Where" or (op in ("Max", "Min") and len(node.inputs) > 2):
        return 2 * size
    if op in ("Softmax", "LogSoftmax"):
        return 0 if node.attributes.get("axis", -1) in (-1, len(made.dims) - 1) else 2 * size
    if op == "Gelu":
        return size
    if op == "MatMul":
        return _PRODUCT_BYTES * math.prod(at(size, samples) for size in made.dims[:-2])
    if op == "TopK":  # it sorts the places of one row after the other
        axis = node.attributes.get("axis", -1)
        row = shapes.values[node.inputs[0]].dims[axis if isinstance(axis, int) else -1]
        return 2 * _INDEX_BYTES * at(row, samples)
    if op in _INDEXED:
        return _INDEX_BYTES * _count(shapes.values[node.inputs[1]], samples)
    if op.startswith(_REDUCING):
        read = _count(shapes.values[node.inputs[0]], samples)
        kept = _count(made, samples)
        return _INDEX_BYTES * (kept + read // max(1, kept))
    return 0


def _windows(node: Node, shapes: Shapes, samples: int) -> int:
    """One image's windows, a row for each place of the result (transposed: of the input)."""
    weight, values = shapes.values[node.inputs[1]], shapes.values
    place = values[node.outputs[0] if node.op == "Conv" else node.inputs[0]]
    images = math.prod(at(size, samples) for size in place.dims[2:])
    window = math.prod(at(size, samples) for size in weight.dims[1:])
    return 4 * images * window + _BLOCKED


def _count(value: Value, samples: int) -> int:
    return math.prod(at(size, samples) for size in value.dims)
