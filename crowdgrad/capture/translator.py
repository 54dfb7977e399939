"""What torch.onnx can translate, and what it need not do again.

Its table takes half a second to make, so it is made once. Before it translates it traces the whole
graph anew to take apart what it cannot translate, which takes longer than everything else. Our
graphs are taken apart already, but for a few operators that are only other names of others: with
these replaced, there is nothing left to do.

These are private names of PyTorch: should they change, `tests/capture` fails before anyone's job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.onnx._internal.exporter import _decomp, _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry

aten = torch.ops.aten
OPSET: Final = 20
Call = tuple[OpOverload, tuple[Any, ...], dict[str, Any]]
"""Operator, arguments and options."""
_make = ONNXRegistry.from_torchlib


@contextmanager
def hurried(exported: ExportedProgram) -> Iterator[None]:
    """Inside, torch.onnx does not do again what has been done; for this program only."""
    _rename(exported.graph_module.graph)
    with ExitStack() as stack:
        stack.enter_context(patch.object(ONNXRegistry, "from_torchlib", staticmethod(_table)))
        if _is_plain(exported.graph_module.graph):
            stack.enter_context(
                patch.object(_fx_passes, "decompose_with_registry", lambda program, _: program)
            )
        yield


def can_translate(operator: OpOverload) -> bool:
    """Whether torch.onnx has a translation, or PyTorch takes the operator apart for it."""
    return operator in _known()


@cache
def _table(*args: Any, **options: Any) -> ONNXRegistry:
    return _make(*args, **options)


def _rename(graph: fx.Graph) -> None:
    """Operators that are another name for a permutation or a cast, by that."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _OTHER_NAMES:
            # In place: the program's outputs know their nodes by name.
            node.target, node.args, node.kwargs = _OTHER_NAMES[node.target](node)


def _is_plain(graph: fx.Graph) -> bool:
    operators = {node.target for node in graph.nodes if isinstance(node.target, OpOverload)}
    return operators - _CHECKS <= _translated()


def _permutation(node: fx.Node, order: list[int]) -> Call:
    return aten.permute.default, (node.args[0], order), {}


def _moved(node: fx.Node) -> Call:
    rank = node.meta["val"].dim()
    source, target = (axis % rank for axis in node.args[1:3] if isinstance(axis, int))
    order = [axis for axis in range(rank) if axis != source]
    order.insert(target, source)
    return _permutation(node, order)


def _reversed(node: fx.Node) -> Call:
    return _permutation(node, list(range(node.meta["val"].dim()))[::-1])


def _cast(node: fx.Node) -> Call:
    return aten._to_copy.default, (node.args[0],), {"dtype": node.args[1]}


_OTHER_NAMES: Final[dict[Any, Callable[[fx.Node], Call]]] = {
    aten.movedim.int: _moved, aten.numpy_T.default: _reversed, aten.to.dtype: _cast,
}  # fmt: skip
_CHECKS: Final = {aten._assert_tensor_metadata.default}
"""Removed before anything is translated."""


@cache
def _translated() -> frozenset[Any]:
    table = _table(opset_version=OPSET)  # as torch.onnx asks for it: one table serves both
    return frozenset(_decomp.get_onnx_implemented_overloads(table))


@cache
def _known() -> frozenset[Any]:
    taken_apart = _decomp.create_onnx_friendly_decomposition_table(set(_translated()))
    return _translated() | frozenset(taken_apart)
