"""The trained model as an ordinary ONNX file: outputs only, weights inside."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from crowdgrad.capture.export import serialise
from crowdgrad.domain.program import Program
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import Vector


def onnx_model_with_weights(program: Program, state: Vector) -> bytes:
    """The forward graph pruned to the model's outputs `y:*`; needs no targets.

    It takes any batch size, or the one that the program was captured for.
    What a model draws in evaluation mode stays an input: whoever runs the file chooses the numbers.
    """
    graph = onnx.ModelProto.FromString(program.forward).graph
    outputs = [port for port in graph.output if port.name.startswith("y:")]
    nodes, used = _needed(graph, {port.name for port in outputs})
    parameters = len(program.spec.parameters)
    weights = []
    for index, (spec, view) in enumerate(StateLayout(program.spec).tensors(state)):
        name = f"p:{spec.name}" if index < parameters else f"b:{spec.name}"
        if name in used:
            weights.append(numpy_helper.from_array(np.ascontiguousarray(view), name))
    constants = [constant for constant in graph.initializer if constant.name in used]
    inputs = [p for p in graph.input if p.name in used and p.name.startswith(("x:", "z:"))]
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
