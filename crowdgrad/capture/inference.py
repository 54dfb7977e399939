"""The trained model as an ordinary ONNX file: outputs only, weights inside."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from crowdgrad.capture.export import serialise
from crowdgrad.domain.program import Program
from crowdgrad.numerics.layout import Layout


def onnx_model_with_weights(program: Program, parameters: NDArray[np.float32]) -> bytes:
    """The forward graph pruned to the model's outputs `y:*`; needs no targets, any batch size."""
    graph = onnx.ModelProto.FromString(program.forward).graph
    outputs = [port for port in graph.output if port.name.startswith("y:")]
    nodes, used = _needed(graph, {port.name for port in outputs})
    weights = [
        numpy_helper.from_array(np.ascontiguousarray(view), f"p:{spec.name}")
        for spec, view in Layout(program.spec.parameters).views(parameters)
        if f"p:{spec.name}" in used
    ]
    constants = [constant for constant in graph.initializer if constant.name in used]
    inputs = [p for p in graph.input if p.name in used and p.name.startswith("x:")]
    pruned = helper.make_graph(nodes, "model", inputs, outputs, [*weights, *constants])
    return serialise(pruned)


def _needed(graph: onnx.GraphProto, wanted: set[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes on the way to `wanted`, in order, and the names of every value they touch."""
    used, nodes = set(wanted), []
    for node in reversed(graph.node):
        if used.intersection(node.output):
            nodes.append(node)
            used.update(node.input)
    return nodes[::-1], used
