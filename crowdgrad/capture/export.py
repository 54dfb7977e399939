"""ATen graph → a canonical ONNX file with nothing in it but the arithmetic.

torch.onnx translates; then the file is built anew: our names for inputs and outputs, numbered names
inside, no metadata (stack traces and paths of the host would travel), no weights, attributes in
order. The same graph gives the same bytes; but which of two forms a convolution's gradient has is
decided by timing them (`forms`), so a model with convolutions may come out in either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes
import torch
from onnx import helper, numpy_helper
from onnxscript.optimizer._constant_folding import FoldConstantsPass
from torch.export import ExportedProgram

from crowdgrad.capture.tidy import tidy
from crowdgrad.capture.translator import OPSET, hurried
from crowdgrad.domain.program import DType
from crowdgrad.errors import CaptureError
from crowdgrad.program.sizes import BATCH

_IR_VERSION: Final = 10
_FEW: Final = 16
Sizes = tuple[int | str, ...]
Port = tuple[str, DType, Sizes]
"""Name, type and sizes of an input or output."""


def to_onnx(
    exported: ExportedProgram, inputs: Sequence[Port], outputs: Sequence[Port | str]
) -> bytes:
    """ONNX with these ports by position; an output given by name alone keeps its own type."""
    with hurried(exported):
        program = torch.onnx.export(
            exported,
            dynamo=True,
            opset_version=OPSET,
            external_data=False,
            verbose=False,
            optimize=False,
        )
    if program is None:
        raise CaptureError("torch.onnx returned no program.")
    _simplify(program.model)
    return canonical(program.model_proto, inputs, outputs)


def _simplify(model: ir.Model) -> None:
    """Constants folded, twins merged, what nobody reads removed.

    Not onnxscript's own `optimize`: it also searches for patterns, which takes longer than all of
    this together, and `tidy` finds those that matter to us.
    """
    simplify = ir.passes.Sequential(
        passes.InlinePass(),
        FoldConstantsPass(shape_inference=True, input_size_limit=1024, output_size_limit=1024),
        passes.RemoveUnusedNodesPass(),
        passes.RemoveUnusedFunctionsPass(),  # type: ignore[no-untyped-call]
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.DeduplicateInitializersPass(),
        passes.CommonSubexpressionEliminationPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    )
    simplify(model)


def canonical(
    model: onnx.ModelProto, inputs: Sequence[Port], outputs: Sequence[Port | str]
) -> bytes:
    """The model's arithmetic, renamed and stripped."""
    graph = model.graph
    if len(graph.input) != len(inputs) or len(graph.output) != len(outputs):
        raise CaptureError(
            f"the exporter made {len(graph.input)} inputs and {len(graph.output)} outputs where "
            f"{len(inputs)} and {len(outputs)} were expected."
        )
    if model.functions:
        raise CaptureError(f"the exporter left the function {model.functions[0].name!r} inside.")
    graph = tidy(graph)
    names = {"": ""}
    names |= {old.name: new[0] for old, new in zip(graph.input, inputs, strict=True)}
    names |= {old.name: f"c{index}" for index, old in enumerate(graph.initializer)}
    constants, nodes = _constants(graph, names)
    copies = _name_outputs(graph, outputs, names)
    nodes += [_node(node, names) for node in graph.node]
    nodes += [helper.make_node("Identity", [names[old]], [new]) for old, new in copies]
    symbol = next((d.dim_param for p in graph.input for d in _dims(p) if d.dim_param), "")
    ports = [
        _open_port(new, old, symbol) if isinstance(new, str) else _port(new)
        for old, new in zip(graph.output, outputs, strict=True)
    ]
    return serialise(helper.make_graph(nodes, "g", [_port(p) for p in inputs], ports, constants))


def _constants(
    graph: onnx.GraphProto, names: dict[str, str]
) -> tuple[list[onnx.TensorProto], list[onnx.NodeProto]]:
    """The constants; one that holds a single value many times becomes a node that makes it."""
    constants: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    for old in graph.initializer:
        name, value = names[old.name], numpy_helper.to_array(old)
        flat = value.reshape(-1)
        if value.size <= _FEW or (flat != flat[0]).any():
            constants.append(numpy_helper.from_array(value, name))
            continue
        shape = numpy_helper.from_array(np.array(value.shape, np.int64), f"s{name}")
        constants.append(shape)
        one = numpy_helper.from_array(flat[:1])
        nodes.append(helper.make_node("ConstantOfShape", [shape.name], [name], value=one))
    return constants, nodes


def _name_outputs(
    graph: onnx.GraphProto, outputs: Sequence[Port | str], names: dict[str, str]
) -> list[tuple[str, str]]:
    """Enter the outputs' names; returns (value, name) where a copy has to become the output."""
    copies = []
    for old, new in zip(graph.output, outputs, strict=True):
        name = new if isinstance(new, str) else new[0]
        if old.name in names:  # an input, a constant, or the same value twice
            copies.append((old.name, name))
        else:
            names[old.name] = name
    return copies


def serialise(graph: onnx.GraphProto) -> bytes:
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        graph, ir_version=_IR_VERSION, opset_imports=opsets, producer_name="crowdgrad"
    )
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _node(node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    """The node with numbered values and sorted attributes; adds its outputs to `names`."""
    inputs = [names[name] for name in node.input]
    for name in node.output:
        names.setdefault(name, f"v{len(names)}")
    made = onnx.NodeProto(
        op_type=node.op_type,
        domain=node.domain,
        input=inputs,
        output=[names[name] for name in node.output],
    )
    for attribute in sorted(node.attribute, key=lambda a: str(a.name)):
        kept = made.attribute.add()
        kept.CopyFrom(attribute)
        kept.ClearField("doc_string")
        if kept.HasField("t"):
            kept.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t)))
    return made


def _port(port: Port) -> onnx.ValueInfoProto:
    name, dtype, sizes = port
    return helper.make_tensor_value_info(name, _element(dtype), sizes)


def _open_port(name: str, old: onnx.ValueInfoProto, symbol: str) -> onnx.ValueInfoProto:
    if any(d.dim_param not in ("", symbol) for d in _dims(old)):
        found = ", ".join(str(d.dim_param or d.dim_value) for d in _dims(old))
        raise CaptureError(
            "the model's output must keep the batch as its own first dimension, but its shape is "
            f"({found}).",
            advice="Return (B, T, V) from the model, and reshape to (B · T, V) in the loss.",
        )
    sizes = [BATCH if d.dim_param else d.dim_value for d in _dims(old)]
    return helper.make_tensor_value_info(name, old.type.tensor_type.elem_type, sizes)


def _element(dtype: DType) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _dims(port: onnx.ValueInfoProto) -> list[onnx.TensorShapeProto.Dimension]:
    return list(port.type.tensor_type.shape.dim)
