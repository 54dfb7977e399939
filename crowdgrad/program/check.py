"""Refuse a program before any runtime sees it.

A runtime written in C++ must not be the first to read a stranger's bytes. So our own reader goes
first and lets through only the kind of graph that our own capture emits: standard operators from a
list, no code, no files, no loops, inputs and outputs exactly as the spec promises, sizes fixed
except the batch, no attribute that the standard does not give an operator. Bounds on memory and
work by shape inference belong here too, as further rules over the `Graph`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from crowdgrad.domain.program import ITEM_BYTES, NoiseSpec, Program, ProgramSpec, TensorSpec
from crowdgrad.errors import ProgramRefused
from crowdgrad.program.artifact import MAX_ONNX_BYTES
from crowdgrad.program.graph import Constant, Graph, Node, Port, parse

MIN_OPSET: Final = 18
MAX_OPSET: Final = 22
MIN_IR: Final = 8
MAX_IR: Final = 11
MAX_CONSTANT_BYTES: Final = 256 << 10
MAX_OUTPUTS: Final = 1024
BATCH: Final = "batch"
"""The name of the one size that may be free."""

_ELEMENTWISE: Final = {
    "Abs", "Acos", "Add", "And", "Asin", "Asinh", "Atan", "Ceil", "Clip", "Cos", "Cosh", "Div",
    "Equal", "Erf", "Exp", "Floor", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less",
    "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
    "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Sub", "Sum", "Tan", "Where", "Xor",
}  # fmt: skip
_ACTIVATIONS: Final = {
    "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "InstanceNormalization",
    "LayerNormalization", "LeakyRelu",
    "LogSoftmax", "Mish", "PRelu", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "Softsign",
    "Tanh", "ThresholdedRelu",
}  # fmt: skip
_WINDOWS: Final = {"AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "MaxPool"}
_REDUCTIONS: Final = {
    "ArgMax", "ArgMin", "CumSum", "Gemm", "MatMul", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "TopK",
}  # fmt: skip
_SHAPING: Final = {
    "Cast", "CastLike", "Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather",
    "GatherElements", "GatherND", "Identity", "Pad", "Range", "Reshape", "ScatterElements",
    "ScatterND", "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Trilu",
    "Unsqueeze",
}  # fmt: skip
ALLOWED_OPS: Final = frozenset(_ELEMENTWISE | _ACTIVATIONS | _WINDOWS | _REDUCTIONS | _SHAPING)
_ATTRIBUTES: Final = (
    ("ArgMax ArgMin", "axis keepdims select_last_index"),
    ("AveragePool", "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides"),
    ("BatchNormalization", "epsilon momentum training_mode"),
    ("Cast", "saturate to"),
    ("CastLike", "saturate"),
    ("Celu Elu LeakyRelu ThresholdedRelu", "alpha"),
    ("Concat Flatten Gather GatherElements LogSoftmax Softmax", "axis"),
    ("Constant", "value value_float value_floats value_int value_ints"),
    ("ConstantOfShape", "value"),
    ("Conv", "auto_pad dilations group kernel_shape pads strides"),
    (
        "ConvTranspose",
        "auto_pad dilations group kernel_shape output_padding output_shape pads strides",
    ),
    ("CumSum", "exclusive reverse"),
    ("GatherND", "batch_dims"),
    ("Gelu", "approximate"),
    ("Gemm", "alpha beta transA transB"),
    ("HardSigmoid", "alpha beta"),
    ("InstanceNormalization", "epsilon"),
    ("IsInf", "detect_negative detect_positive"),
    ("LayerNormalization", "axis epsilon stash_type"),
    ("MaxPool", "auto_pad ceil_mode dilations kernel_shape pads storage_order strides"),
    ("Mod", "fmod"),
    ("Pad", "mode"),
    (
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
        "ReduceProd ReduceSum ReduceSumSquare",
        "keepdims noop_with_empty_axes",
    ),
    ("Reshape", "allowzero"),
    ("ScatterElements", "axis reduction"),
    ("ScatterND", "reduction"),
    ("Selu", "alpha gamma"),
    ("Shape", "end start"),
    ("Split", "axis num_outputs"),
    ("TopK", "axis largest sorted"),
    ("Transpose", "perm"),
    ("Trilu", "upper"),
)
"""Operators and the attributes they may have, by the standard; the others have none."""
ALLOWED_ATTRIBUTES: Final = {
    op: frozenset(names.split()) for ops, names in _ATTRIBUTES for op in ops.split()
}

ELEMENTS: Final[dict[int, str]] = {
    1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
    11: "float64",
}  # fmt: skip
_NUMBERS: Final = {name: number for number, name in ELEMENTS.items()}
Promise = tuple[str, int | None, tuple[int | str, ...] | None]
"""Name, element type and sizes of a port; None where the spec leaves it open."""


def check(program: Program) -> None:
    """Raise ProgramRefused, with a reason a person understands, unless the program may run."""
    spec = program.spec
    if not MIN_OPSET <= spec.opset <= MAX_OPSET:
        raise ProgramRefused(f"opset {spec.opset} is not between {MIN_OPSET} and {MAX_OPSET}.")
    if not 0 <= spec.outputs <= MAX_OUTPUTS:
        raise ProgramRefused(f"the spec names {spec.outputs} outputs.")
    for what, data, noise, outputs in (
        ("the gradient graph", program.gradient, spec.noise, _gradient_outputs(spec)),
        ("the forward graph", program.forward, spec.forward_noise, _forward_outputs(spec)),
    ):
        if len(data) > MAX_ONNX_BYTES:
            raise ProgramRefused(f"{what} has {len(data)} bytes, more than {MAX_ONNX_BYTES}.")
        graph = parse(data, what)
        _check_frame(graph, spec, what)
        _check_ports(graph.inputs, _inputs(spec, noise), f"input of {what}")
        _check_ports(graph.outputs, outputs, f"output of {what}")
        _check_constants(graph, what)
        _check_nodes(graph, what)


def _inputs(spec: ProgramSpec, noise: tuple[NoiseSpec, ...]) -> list[Promise]:
    first: int | str = spec.fixed_batch or BATCH
    promises = [_promise(f"p:{t.name}", t) for t in spec.parameters]
    promises += [_promise(f"b:{t.name}", t) for t in (*spec.buffers, *spec.fixed)]
    promises += [_promise(f"x:{t.name}", t, first) for t in spec.inputs]
    for z in noise:
        sizes: tuple[int | str, ...] = (first, *z.shape) if z.per_sample else z.shape
        promises.append((f"z:{z.name}", _NUMBERS["float32"], sizes))
    return promises


def _gradient_outputs(spec: ProgramSpec) -> list[Promise]:
    gradients = [_promise(f"g:{t.name}", t) for t in spec.parameters]
    return [_scalar("loss"), *gradients, *(_promise(f"n:{t.name}", t) for t in spec.buffers)]


def _forward_outputs(spec: ProgramSpec) -> list[Promise]:
    scalars = [_scalar("loss"), *(_scalar(f"m:{metric.name}") for metric in spec.metrics)]
    return [*scalars, *((f"y:{index}", None, None) for index in range(spec.outputs))]


def _promise(name: str, tensor: TensorSpec, *first: int | str) -> Promise:
    return name, _NUMBERS[tensor.dtype], (*first, *tensor.shape)


def _scalar(name: str) -> Promise:
    return name, _NUMBERS["float32"], ()


def _check_frame(graph: Graph, spec: ProgramSpec, what: str) -> None:
    if graph.opset != spec.opset:
        raise ProgramRefused(f"{what} uses opset {graph.opset}, its spec says {spec.opset}.")
    if not MIN_IR <= graph.ir_version <= MAX_IR:
        raise ProgramRefused(
            f"{what} has ONNX format {graph.ir_version}, not {MIN_IR} to {MAX_IR}."
        )


def _check_ports(ports: tuple[Port, ...], promises: list[Promise], what: str) -> None:
    names = [port.name for port in ports]
    wanted = [name for name, _, _ in promises]
    if names != wanted:
        odd = next((pair for pair in zip(names, wanted, strict=False) if pair[0] != pair[1]), None)
        detail = f"{odd[0][:64]!r} instead of {odd[1][:64]!r}" if odd else f"{len(names)} of them"
        raise ProgramRefused(f"every {what} must be what the spec promises: {detail}.")
    for port, (name, element, dims) in zip(ports, promises, strict=True):
        if port.element not in ELEMENTS or (element is not None and port.element != element):
            raise ProgramRefused(f"{what} {name!r} has element type {port.element}.")
        if dims is not None and port.dims != dims:
            raise ProgramRefused(f"{what} {name!r} has shape {port.dims}, the spec says {dims}.")
        if any(not _good_size(size) for size in port.dims):
            raise ProgramRefused(
                f"{what} {name!r}: only the batch may have a free size: {port.dims}."
            )


def _good_size(size: int | str) -> bool:
    return size == BATCH if isinstance(size, str) else 0 <= size < 1 << 40


def _check_constants(graph: Graph, what: str) -> None:
    inside = (constant for node in graph.nodes for constant in node.constants)
    total = 0
    for constant in (*graph.constants, *inside):
        _check_constant(constant, what)
        total += constant.bytes
    if total > MAX_CONSTANT_BYTES:
        raise ProgramRefused(
            f"{what} holds {total} bytes of constants, more than {MAX_CONSTANT_BYTES}.",
            advice="Tables a model needs belong into its parameters or its data.",
        )


def _check_constant(constant: Constant, what: str) -> None:
    if constant.element not in ELEMENTS:
        raise ProgramRefused(f"a constant of {what} has element type {constant.element}.")
    if any(size < 0 for size in constant.dims):
        raise ProgramRefused(f"a constant of {what} has shape {constant.dims}.")
    promised = math.prod(constant.dims) * ITEM_BYTES[ELEMENTS[constant.element]]
    if constant.bytes != promised:
        raise ProgramRefused(
            f"a constant of {what} of shape {constant.dims} holds {constant.bytes} bytes."
        )


def _check_nodes(graph: Graph, what: str) -> None:
    """Known operators, each value made once and before it is used, every output made."""
    made: set[str] = set()
    _make(made, (port.name for port in graph.inputs), what)
    _make(made, (constant.name for constant in graph.constants), what)
    for node in graph.nodes:
        if node.domain not in ("", "ai.onnx") or node.op not in ALLOWED_OPS:
            name = f"{node.domain}::{node.op}" if node.domain else node.op
            raise ProgramRefused(
                f"{what} uses the operator {name[:80]!r}, which is not on the list.",
                advice="Only plain arithmetic travels; `crowdgrad check` names what a model uses.",
            )
        _check_attributes(node, what)
        missing = next((name for name in node.inputs if name and name not in made), None)
        if missing is not None:
            raise ProgramRefused(f"{what}: {node.op} reads {missing[:64]!r} before it is made.")
        _make(made, (name for name in node.outputs if name), what)
    for port in graph.outputs:
        if port.name not in made:
            raise ProgramRefused(f"{what} never makes its output {port.name[:64]!r}.")


def _check_attributes(node: Node, what: str) -> None:
    names = [name for name, _ in node.attributes]
    if len(set(names)) != len(names):
        raise ProgramRefused(f"{what}: an attribute of {node.op} occurs twice.")
    for name, value in node.attributes:
        if node.op == "Cast" and name == "to" and value not in ELEMENTS:
            raise ProgramRefused(f"{what} casts to element type {value}.")
        if name == "training_mode" and value != 0:
            raise ProgramRefused(f"{what}: {node.op} in training mode, which runtimes disagree on.")
        if node.op == "Constant" and name.startswith("value_string"):
            raise ProgramRefused(f"{what} holds a text, which no program of ours does.")
        if name not in ALLOWED_ATTRIBUTES.get(node.op, ()):
            raise ProgramRefused(f"{what}: {node.op} has the unknown attribute {name[:64]!r}.")


def _make(made: set[str], names: Iterable[str], what: str) -> None:
    for name in names:
        if not name or name in made:
            raise ProgramRefused(f"{what} makes {name[:64]!r} twice or without a name.")
        made.add(name)
