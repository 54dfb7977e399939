"""Our shape inference tells what onnxruntime does, operator by operator and program by program.

Real runs are the judge: whatever is accepted must run, at every batch, with exactly the shapes,
types and contents that were told. What runs but depends on the batch in other ways is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.task import Task
from crowdgrad.domain.data import Field
from crowdgrad.errors import ProgramRefused
from crowdgrad.program import attributes
from crowdgrad.program.graph import Graph, Node, Port, parse
from crowdgrad.program.shapes import Value, infer, work
from crowdgrad.program.shapes.infer import MAX_CALLS
from crowdgrad.program.shapes.table import RULES
from crowdgrad.program.sizes import B, Size, at, multiply, subtract
from tests.program import random_calls
from tests.program.random_calls import DTYPES, MAKERS, Feed, Use, constant, listed, number

BATCHES = (1, 2, 5)
SEEDS = 12
LARGEST = (1 << 63) - 1


# ---- every operator against onnxruntime


def test_every_allowed_operator_has_a_rule():
    assert set(RULES) == set(attributes.RULES) == set(MAKERS)


@pytest.mark.parametrize("op", sorted(MAKERS))
def test_what_is_told_is_what_onnxruntime_makes(op: str):
    accepted = 0
    for seed in range(SEEDS):
        use = random_calls.make(op, seed)
        try:
            shapes = infer(random_calls.graph(use))
        except ProgramRefused:
            continue
        accepted += 1
        for batch, arrays in zip(BATCHES, random_calls.run(use, BATCHES), strict=True):
            for k, array in enumerate(arrays):
                assert_told(shapes.values[f"o{k}"], array, batch, use)
    assert accepted


def assert_told(value: Value, array: np.ndarray, batch: int, what: object) -> None:
    told = (tuple(at(size, batch) for size in value.dims), DTYPES[value.element])
    assert told == (array.shape, array.dtype), f"{what} at batch {batch}"
    if value.known is not None:
        assert [at(size, batch) for size in value.known] == array.ravel().tolist(), what


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_windows_have_as_many_places_as_onnxruntime_gives_them(op: str):
    sides = [
        (size, kernel, stride, pad, ceil)
        for size in (4, 5, 6, 7)
        for kernel, pad in ((2, 0), (2, 1), (3, 1))
        for stride in (2, 3)
        for ceil in (0, 1)
    ]
    for size, kernel, stride, pad, ceil in sides:
        use = of(
            op, Feed(1, (1, 1, size)),
            kernel_shape=(kernel,), strides=(stride,), pads=(pad, pad), ceil_mode=ceil,
        )  # fmt: skip
        told = infer(random_calls.graph(use)).values["o0"]
        assert_told(told, random_calls.run(use, (1,))[0][0], 1, use)


STRICTER = {
    "Clip": {5},  # only without bounds
    "Div": {2, 3, 5, 6, 7},  # an unknown divisor may be zero
    "Mod": {2, 3, 5, 6, 7},
}
"""Element types that onnxruntime has and we refuse."""


@pytest.mark.parametrize("op", sorted(set(MAKERS) - {"Range", "ConstantOfShape"}))
def test_element_types_are_those_onnxruntime_has(op: str):
    use = plain_use(op)
    for element in DTYPES:
        typed = replace(use, inputs=tuple(retyped(feed, use, element) for feed in use.inputs))
        ours = theirs = True
        try:
            infer(random_calls.graph(typed))
        except ProgramRefused:
            ours = False
        try:
            random_calls.run(typed, (2,))
        except Exception:  # whatever it raises means that it has no such operator
            theirs = False
        assert ours == (theirs and element not in STRICTER.get(op, ())), (typed, ours, theirs)


def plain_use(op: str) -> Use:
    """One that is accepted and whose data comes from outside."""
    wanted = 9 if op in ("And", "Not", "Or", "Xor") else 1
    for seed in range(200):
        use = random_calls.make(op, seed)
        data = use.inputs[1 if op == "Where" else 0]
        try:
            infer(random_calls.graph(use))
        except ProgramRefused:
            continue
        if data is not None and data.contents is None and data.element == wanted and data.dims:
            return use
    raise AssertionError(f"no plain use of {op}")


def retyped(feed: Feed | None, use: Use, element: int) -> Feed | None:
    main = use.inputs[1 if use.op == "Where" else 0]
    if feed is None or main is None or feed.contents is not None or feed.element != main.element:
        return feed
    return replace(feed, element=element)


# ---- whole programs against onnxruntime


class Pictures(nn.Module):
    """Convolutions with a step and in groups, normalisation, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, groups=2)
        self.last = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.second(self.norm(self.first(x)).relu()), 2)
        result: torch.Tensor = self.last(x.flatten(1))
        return result


@pytest.fixture(scope="module")
def pictures() -> Captured:
    torch.manual_seed(2)
    x, y = torch.randn(4, 1, 12, 12), torch.tensor([0, 1, 1, 0])
    fields = (
        Field(name="image", dtype="float32", shape=(1, 12, 12)),
        Field(name="label", dtype="uint8", shape=()),
    )
    return capture(Task(Pictures(), nn.functional.cross_entropy, inputs=(x,), targets=(y,)), fields)


def assert_told_throughout(data: bytes, smallest: int) -> None:
    """Run a graph with every value as an output and compare."""
    graph, model = parse(data, "the graph"), onnx.ModelProto.FromString(data)
    shapes = infer(graph, smallest)
    given_out = {port.name for port in graph.outputs}
    inner = [name for node in graph.nodes for name in node.outputs if name not in given_out]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    for batch in {max(smallest, batch) for batch in BATCHES}:
        feeds = {port.name: ones(port, batch) for port in graph.inputs}
        names = [output.name for output in session.get_outputs()]
        for name, array in zip(names, session.run(names, feeds), strict=True):
            assert_told(shapes.values[name], array, batch, name)


def ones(port: Port, batch: int) -> np.ndarray:
    dims = [batch if isinstance(size, str) else size for size in port.dims]
    return np.ones(dims, DTYPES[port.element])


def test_captured_programs_are_told_value_by_value(captured, rich, pair, pictures):
    for each in (captured, rich.captured, pair.captured, pictures):
        for data in (each.program.gradient, each.program.forward):
            assert_told_throughout(data, each.program.spec.smallest_batch)


def test_equal_values_are_one_object(pictures: Captured):
    """What makes it fast: calls are compared by the objects they read."""
    values = infer(parse(pictures.program.gradient, "the graph")).values
    assert len({id(value) for value in values.values()}) == len(set(values.values()))


# ---- shapes computed inside the graph


X = Port(name="x", element=1, dims=("batch", 3, 4))
Y = Port(name="y", element=7, dims=("batch",))


def graph(
    *nodes: Node,
    constants: dict[str, Feed] | None = None,
    inputs: tuple[Port, ...] = (X, Y),
    outputs: tuple[Port, ...] = (),
) -> Graph:
    return Graph(
        ir_version=9, opset=20, nodes=nodes, inputs=inputs, outputs=outputs,
        constants=tuple(constant(name, feed) for name, feed in (constants or {}).items()),
    )  # fmt: skip


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Node:
    return Node(op, tuple(inputs.split()), tuple(outputs.split()), attributes)


SHAPE = node("Shape", "x", "s")
ARITHMETIC: dict[str, tuple[list[Node], dict[str, Feed], tuple[Size, ...]]] = {
    "a part of the shape": (
        [node("Shape", "x", "r", start=0, end=2)], {}, (B, 3),
    ),
    "gathered and joined": (
        [node("Gather", "s zero", "b"), node("Concat", "b minus", "r", axis=0)],
        {"zero": listed(0), "minus": listed(-1)}, (B, -1),
    ),
    "a number of elements": (
        [node("Size", "x", "n"), node("Reshape", "n one", "r")],
        {"one": listed(1)}, (multiply(B, 12),),
    ),
    "the same by a product": (
        [node("ReduceProd", "s", "r", keepdims=1)], {}, (multiply(B, 12),),
    ),
    "a product and an exact quotient": (
        [node("Mul", "s six", "m"), node("Div", "m two", "r")],
        {"six": number(6), "two": number(2)}, (multiply(B, 3), 9, 12),
    ),
    "a difference, negated": (
        [node("Sub", "one s", "d"), node("Neg", "d", "r")],
        {"one": number(1)}, (subtract(B, 1), 2, 3),
    ),
    "the larger": (
        [node("Max", "s ones", "r")], {"ones": listed(1, 7, 1)}, (B, 7, 4),
    ),
    "the smaller": (
        [node("Min", "s ones", "r")], {"ones": listed(1, 7, 1)}, (1, 3, 1),
    ),
    "backwards": (
        [node("Slice", "s last first zero minus", "r")],
        {"last": listed(-1), "first": listed(-LARGEST), "zero": listed(0), "minus": listed(-1)},
        (4, 3, B),
    ),
    "chosen": (
        [node("Equal", "asked minus", "open"), node("Where", "open s asked", "r")],
        {"asked": listed(-1, 5, -1), "minus": number(-1)}, (B, 5, 4),
    ),
    "filled and stretched": (
        [
            node("ConstantOfShape", "two", "f", value=constant("", Feed(7, (1,), (4,)))),
            node("Expand", "one three", "e"),
            node("Concat", "f e", "r", axis=0),
        ],
        {"two": listed(2), "one": listed(1), "three": listed(3)}, (4, 4, 1, 1, 1),
    ),
    "counted": (
        [node("Range", "zero six two", "r")],
        {"zero": number(0), "six": number(6), "two": number(2)}, (0, 2, 4),
    ),
    "cast and back": (
        [node("Cast", "three", "c", to=6), node("Cast", "c", "r", to=7)],
        {"three": listed(3, 4)}, (3, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ARITHMETIC)
def test_shape_arithmetic_is_followed(name: str):
    nodes, constants, expected = ARITHMETIC[name]
    assert infer(graph(SHAPE, *nodes, constants=constants)).values["r"].known == expected


UNTOLD: dict[str, tuple[list[Node], dict[str, Feed]]] = {
    "a cast that wraps around": (
        [node("Cast", "large", "c", to=3), node("Cast", "c", "r", to=7)], {"large": listed(300)},
    ),
    "a sum that wraps around": (
        [node("Add", "large large", "r")], {"large": listed(LARGEST)},
    ),
    "a batch beyond 64 bits": (
        [node("Mul", "s large", "r")], {"large": listed(1 << 50)},
    ),
    "a rounded quotient of the batch": (
        [node("Div", "s two", "r")], {"two": number(2)},
    ),
    "an order that depends on the batch": (
        [node("Max", "s five", "r")], {"five": number(5)},
    ),
    "too many numbers": (
        [node("Concat", " ".join(["s"] * 11), "r", axis=0)], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTOLD)
def test_what_is_not_certain_is_not_told(name: str):
    nodes, constants = UNTOLD[name]
    assert infer(graph(SHAPE, *nodes, constants=constants)).values["r"].known is None


SHAPED: dict[str, tuple[list[Node], dict[str, Feed], tuple[Size, ...]]] = {
    "a batch times a side": (
        [node("Reshape", "x open", "r")], {"open": listed(-1, 4)}, (multiply(B, 3), 4),
    ),
    "all but the first sample": (
        [node("Slice", "x one end zero", "r")],
        {"one": listed(1), "end": listed(LARGEST), "zero": listed(0)}, (subtract(B, 1), 3, 4),
    ),
    "the last sample": (
        [node("Slice", "x last end zero", "r")],
        {"last": listed(-1), "end": listed(LARGEST), "zero": listed(0)}, (1, 3, 4),
    ),
    "every third of three batches": (
        [
            node("Concat", "x x x", "c", axis=0),
            node("Slice", "c zero end zero three", "r"),
        ],
        {"zero": listed(0), "end": listed(LARGEST), "three": listed(3)}, (B, 3, 4),
    ),
    "all pairs": (
        [node("Unsqueeze", "y one", "c"), node("Equal", "c y", "r")],
        {"one": listed(1)}, (B, B),
    ),
    "one more": (
        [node("Pad", "y ends", "r")], {"ends": listed(1, 0)}, (subtract(B, -1),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPED)
def test_sizes_may_grow_with_the_batch(name: str):
    nodes, constants, expected = SHAPED[name]
    assert infer(graph(*nodes, constants=constants)).values["r"].dims == expected


def test_larger_batches_make_more_certain():
    """The first two samples, where there are always two."""
    first = graph(
        node("Slice", "x zero two zero", "r"), constants={"zero": listed(0), "two": listed(2)}
    )
    assert infer(first, smallest=2).values["r"].dims == (2, 3, 4)
    with pytest.raises(ProgramRefused, match="depends on the batch"):
        infer(first)


def test_a_split_may_have_many_parts():
    parts = [f"p{k}" for k in range(100)]
    wide = Port(name="w", element=1, dims=("batch", 100))
    split = Node("Split", ("w", "sizes"), tuple(parts), {"axis": 1})
    values = infer(graph(split, constants={"sizes": listed(*[1] * 100)}, inputs=(wide,))).values
    assert values["p99"].dims == (B, 1)


# ---- what is refused


F = Feed(1, ("batch", 3, 4))
IMAGE = Feed(1, ("batch", 4, 8, 8))
KERNEL = Feed(1, (6, 4, 3, 3))
SPREAD = Feed(1, (4, 2, 3, 3))
FLAGS, PLACES = Feed(9, (3,)), Feed(7, (3, 1))
INDEX = Feed(7, ("batch",))
DATA = Feed(7, (2,))
"""A list of two numbers that nobody knows before they come."""


def of(op: str, *inputs: Feed | None, outputs: int = 1, **attributes: Any) -> Use:
    return Use(op, inputs, attributes, outputs)


REFUSED: list[tuple[str, Use]] = [
    # types
    ("mixes float32 and float64", of("Add", F, replace(F, element=11))),
    ("does not exist for int64", of("Erf", INDEX)),
    ("must be bool", of("Where", F, F, F)),
    ("must be int64", of("Gather", F, Feed(1, (2,)))),
    ("must be int64", of("GatherND", F, Feed(6, (2, 1)))),
    ("casts to element type 8", of("Cast", F, to=8)),
    ("must be a whole number", of("Cast", F)),
    ("exponents of bool", of("Pow", F, Feed(9, ()))),
    ("mixes", of("Clip", F, Feed(7, ()))),
    ("needs fmod", of("Mod", F, F)),
    ("cannot combine bool", of("ScatterND", FLAGS, PLACES, FLAGS, reduction=b"add")),
    ("cannot combine float32", of("ScatterElements", F, F, F, reduction=b"sum")),
    # traps of the processor
    ("divided by known numbers", of("Div", INDEX, INDEX)),
    ("divided by known numbers", of("Div", INDEX, number(0))),
    ("divided by known numbers", of("Div", INDEX, number(-1))),
    ("divided by known numbers", of("Mod", INDEX, listed(2, 0), fmod=1)),
    # broadcasting
    ("do not fit together", of("Add", Feed(1, (3,)), Feed(1, (4,)))),
    ("do not fit together for every batch", of("Add", Feed(1, ("batch",)), Feed(1, (4,)))),
    ("do not fit together", of("Expand", Feed(1, (3,)), listed(4))),
    ("must be single numbers", of("Clip", F, Feed(1, (2,)))),
    # products
    ("do not multiply", of("MatMul", F, F)),
    ("single number", of("MatMul", Feed(1, ()), F)),
    ("are no matrices", of("Gemm", F, F)),
    ("do not multiply", of("Gemm", Feed(1, (2, 3)), Feed(1, (4, 5)))),
    ("do not multiply", of("Gemm", Feed(1, (2, 3)), Feed(1, (3, 5)), transA=1)),
    ("do not fit together", of("Gemm", Feed(1, (2, 3)), Feed(1, (3, 5)), Feed(1, (3,)))),
    ("does not fit the product", of("Gemm", Feed(1, (1, 3)), Feed(1, (3, 5)), Feed(1, (2, 5)))),
    ("must be 0 or 1", of("Gemm", Feed(1, (2, 3)), Feed(1, (3, 5)), transA=2)),
    # windows
    ("no image", of("Conv", Feed(1, (2, 3)), Feed(1, (2, 3)))),
    ("do not fit 4 channels", of("Conv", IMAGE, KERNEL, group=2)),
    ("do not fit 4 channels", of("Conv", IMAGE, Feed(1, (5, 2, 3, 3)), group=2)),
    ("do not fit", of("Conv", IMAGE, Feed(1, (6, 4, 3)))),
    ("do not fit", of("Conv", IMAGE, KERNEL, kernel_shape=(5, 5))),
    ("has 0 groups", of("Conv", IMAGE, KERNEL, group=0)),
    ("does not fit into 8", of("Conv", IMAGE, Feed(1, (6, 4, 9, 9)))),
    ("does not fit into 8", of("Conv", IMAGE, KERNEL, dilations=(4, 4))),
    ("a bias of shape (4,)", of("Conv", IMAGE, KERNEL, Feed(1, (4,)))),
    ("not by auto_pad", of("Conv", IMAGE, KERNEL, auto_pad=b"SAME_UPPER")),
    ("strides (0, 1) make no sense", of("Conv", IMAGE, KERNEL, strides=(0, 1))),
    ("pads (1, 1) make no sense", of("Conv", IMAGE, KERNEL, pads=(1, 1))),
    ("pads (-1, 0, 0, 0) make no sense", of("Conv", IMAGE, KERNEL, pads=(-1, 0, 0, 0))),
    ("may not jump", of("Conv", Feed(1, (1, 4, "batch")), Feed(1, (6, 4, 1)), strides=(2,))),
    ("does not fit 2 axes", of("Conv", IMAGE, Feed(1, (6, 4, "batch", 3)))),
    ("nothing for its window", of("Conv", Feed(1, ("batch", 4, 0, 8)), KERNEL, pads=(3, 0, 3, 0))),
    ("not below its stride", of("ConvTranspose", IMAGE, SPREAD, output_padding=(1, 0))),
    ("takes everything away", of("ConvTranspose", IMAGE, SPREAD, pads=(9, 0, 9, 0))),
    ("not from output_shape", of("ConvTranspose", IMAGE, SPREAD, output_shape=(9, 9))),
    ("window has no size", of("MaxPool", IMAGE)),
    ("smaller than its window", of("MaxPool", IMAGE, kernel_shape=(2, 2), pads=(2, 0, 0, 0))),
    ("does not fit 2 axes", of("AveragePool", IMAGE, kernel_shape=(2,))),
    ("has 2 outputs", of("AveragePool", IMAGE, outputs=2, kernel_shape=(2, 2))),
    ("in training mode", of("BatchNormalization", IMAGE, *[Feed(1, (4,))] * 4, training_mode=1)),
    ("one number for each channel", of("BatchNormalization", IMAGE, *[Feed(1, (8,))] * 4)),
    ("no image", of("InstanceNormalization", Feed(1, (2, 3)), *[Feed(1, (3,))] * 2)),
    ("weights of shape (3,)", of("LayerNormalization", F, Feed(1, (3,)))),
    ("compute in float32", of("LayerNormalization", F, Feed(1, (4,)), stash_type=11)),
    # axes and reductions
    ("its axis is 3", of("Softmax", F, axis=3)),
    ("its axis is -1, of a tensor with 0", of("Softmax", Feed(1, ()))),
    ("one of its axes is 5", of("ReduceSum", F, listed(5))),
    ("name one twice", of("ReduceSum", F, listed(0, -3))),
    ("must not depend on data", of("ReduceSum", F, DATA)),
    ("of nothing", of("ReduceMax", Feed(1, (0, 3)), listed(0))),
    ("of nothing", of("ArgMax", Feed(1, (0, 3)))),
    ("does not fit into 4", of("TopK", F, listed(5), outputs=2)),
    ("does not fit into B", of("TopK", F, listed(2), outputs=2, axis=0)),
    ("its k is -1", of("TopK", F, listed(-1), outputs=2)),
    ("two outputs", of("TopK", F, listed(1))),
    ("its axis is 3", of("CumSum", F, number(3))),
    ("must be one number", of("CumSum", F, listed(0, 1))),
    # shaping
    ("cannot take the shape", of("Reshape", F, listed(5, -1))),
    ("cannot take the shape", of("Reshape", F, listed(7))),
    ("cannot take the shape", of("Reshape", F, listed(-2, 3))),
    ("more than one size open", of("Reshape", F, listed(-1, -1))),
    ("a size of 0", of("Reshape", F, listed(0, 0, 0, 0))),
    ("must not depend on data", of("Reshape", F, DATA)),
    ("must be a list of int64", of("Reshape", F, Feed(6, (1,), (-1,)))),
    ("must be a list of int64", of("Reshape", F, number(-1))),
    ("are 17 numbers", of("Reshape", F, listed(*[1] * 17))),
    ("dimensions are more than 8", of("Reshape", F, listed(*[1] * 8, -1))),
    ("its axis is 4", of("Flatten", F, axis=4)),
    ("takes away is not 1", of("Squeeze", F, listed(1))),
    ("takes away is not 1", of("Squeeze", F, listed(0))),
    ("would depend on the batch", of("Squeeze", F)),
    ("one of its axes is 4", of("Unsqueeze", F, listed(4))),
    ("is no order of 3 axes", of("Transpose", F, perm=(0, 1))),
    ("is no order of 3 axes", of("Transpose", F, perm=(0, 1, 1))),
    ("do not fit together", of("Concat", F, Feed(1, ("batch", 3, 5)), axis=1)),
    ("must be a whole number", of("Concat", F, F)),
    ("are not 2 parts of 4", of("Split", F, listed(1, 2), outputs=2, axis=2)),
    ("are not 2 parts of 4", of("Split", F, listed(5, -1), outputs=2, axis=2)),
    ("cannot be cut into 2 equal parts", of("Split", F, outputs=2, num_outputs=2)),
    ("it makes 2 parts, not 3", of("Split", F, outputs=2, num_outputs=3)),
    ("do not fit (B, 3, 4)", of("Tile", F, listed(2, 2))),
    ("do not fit (B, 3, 4)", of("Tile", F, listed(1, 1, -1))),
    ("lead nowhere", of("Range", number(0), number(3), number(0))),
    ("must not depend on data", of("Range", number(0), Feed(7, ()), number(1))),
    ("is no shape", of("ConstantOfShape", listed(-1))),
    ("too large", of("ConstantOfShape", listed(1 << 20, 1 << 20))),
    ("is no shape", of("ConstantOfShape", listed(1 << 40, 0))),
    ("too large", of("Tile", F, listed(1 << 20, 1 << 19, 1))),
    ("beyond all bounds", of("Tile", F, listed(1 << 50, 1, 1))),
    # slices, gathers, scatters
    ("depends on the batch", of("Slice", F, listed(0), listed(5), listed(0))),
    ("is not certain", of("Slice", F, listed(0), listed(LARGEST), listed(0), listed(2))),
    ("not equally many", of("Slice", F, listed(0), listed(1, 2))),
    ("name one twice", of("Slice", F, listed(0, 0), listed(1, 1), listed(0, 0))),
    ("a step of 0", of("Slice", F, listed(0), listed(1), listed(1), listed(0))),
    ("steps of -1 to", of("Slice", F, listed(-1), listed(LARGEST), listed(1), listed(-1))),
    ("must not depend on data", of("Slice", F, DATA, listed(1, 1))),
    ("paddings for 3 axes", of("Pad", F, listed(1, 1))),
    ("cuts more than there is", of("Pad", F, listed(0, 0, -5, 0, 0, 9))),
    ("by a constant only", of("Pad", F, listed(*[1] * 6), mode=b"reflect")),
    ("by one number only", of("Pad", F, listed(*[1] * 6), Feed(1, (2,)))),
    ("index 4 lies outside 4", of("Gather", F, listed(4), axis=2)),
    ("index -5 lies outside 4", of("Gather", F, listed(-5), axis=2)),
    ("without anything", of("Gather", Feed(1, (0, 3)), INDEX)),
    ("its axis is 0, of a tensor with 0", of("Gather", Feed(1, ()), INDEX)),
    ("indices (B,) for", of("GatherElements", F, INDEX)),
    ("does not fit into 3", of("GatherElements", F, Feed(7, ("batch", 4, 4)))),
    ("for (B, 3, 4)", of("GatherND", F, Feed(7, (2, 4)))),
    ("for (B, 3, 4)", of("GatherND", F, Feed(7, (2, "batch")))),
    ("to write at", of("ScatterElements", F, Feed(7, (1, 3, 4)), F)),
    ("to write at", of("ScatterND", F, Feed(7, (2, 1)), F)),
    # ports
    ("its input 1 is missing", of("Add", F)),
    ("its input 1 is missing", of("Add", F, None)),
    ("has 2 outputs", of("Relu", F, outputs=2)),
    ("not on the list", of("Loop", F)),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "use"), REFUSED, ids=lambda part: getattr(part, "op", None))
def test_what_does_not_fit_is_refused_with_the_reason(reason: str, use: Use):
    with pytest.raises(ProgramRefused) as refused:
        infer(random_calls.graph(use))
    assert reason in str(refused.value)


GRAPHS: dict[str, Graph] = {
    "reads 'nobody' before": graph(node("Relu", "nobody", "r")),
    "is made twice": graph(node("Relu", "x", "r"), node("Relu", "x", "r")),
    "'x' is made twice": graph(node("Relu", "x", "x")),
    "is never made": graph(outputs=(Port(name="r", element=1, dims=()),)),
    "promised was float32 of shape (3,)": graph(
        node("Relu", "x", "r"), outputs=(Port(name="r", element=1, dims=(3,)),)
    ),
    "promised was float64 of shape (B, 3, 4)": graph(
        node("Relu", "x", "r"), outputs=(Port(name="r", element=11, dims=("batch", 3, 4)),)
    ),
    "free size, not 'width'": graph(inputs=(Port(name="x", element=1, dims=("width",)),)),
    "has element type 8": graph(inputs=(Port(name="x", element=8, dims=()),)),
    "too large": graph(inputs=(Port(name="x", element=1, dims=(1 << 30, 1 << 30)),)),
    "is no shape": graph(inputs=(Port(name="x", element=1, dims=(-1,)),)),
    "copies by a size that may be 0": graph(
        SHAPE, node("Sub", "s one", "t"), node("Reshape", "x t", "r"),
        constants={"one": number(1)},
    ),
    "too many different shapes": graph(
        *[node("Concat", f"x{k} x0", f"x{k + 1}", axis=1) for k in range(MAX_CALLS + 1)],
        inputs=(Port(name="x0", element=1, dims=("batch", 1)),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", GRAPHS)
def test_graphs_that_make_no_sense_are_refused(reason: str):
    expected = "a size of B − 1" if reason.startswith("copies") else reason
    with pytest.raises(ProgramRefused) as refused:
        infer(GRAPHS[reason])
    assert expected in str(refused.value)


# ---- anything at all


VALUES = st.one_of(
    st.sampled_from([0, 1, -1, 2, 7, LARGEST, -LARGEST - 1]),
    st.floats(width=32),
    st.sampled_from([b"none", b"add", b"NOTSET", b"constant", b"reflect", b"tanh", b""]),
    st.lists(st.integers(-2, 4), max_size=8).map(tuple),
    st.sampled_from([(0, 1), (1, 0), (1, 1), (2, 2), (1, 1, 1, 1), (LARGEST, 1)]),
    st.sampled_from([Feed(7, (1,), (3,)), Feed(1, (1,), (1,)), Feed(9, (1,), (1,))]).map(
        lambda feed: constant("", feed)
    ),
)
NUMBERS = st.lists(st.sampled_from([-9, -1, 0, 1, 2, 3, LARGEST]), min_size=0, max_size=4)
PORTS = st.builds(
    lambda element, dims: (element, tuple(dims)),
    st.sampled_from([1, 1, 1, 7, 9, 11, 2]),
    st.lists(st.sampled_from(["batch", 0, 1, 2, 3, 1 << 39]), max_size=5),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A few nodes that read anything made before, with attributes that the reader would allow."""
    ports = draw(st.lists(PORTS, min_size=1, max_size=3))
    inputs = tuple(Port(name=f"x{k}", element=e, dims=d) for k, (e, d) in enumerate(ports))
    lists = draw(st.lists(NUMBERS, min_size=1, max_size=3))
    constants = {f"c{k}": listed(*numbers) for k, numbers in enumerate(lists)}
    constants["one"] = number(1)
    made = [port.name for port in inputs] + [*constants, ""]
    nodes = []
    for k in range(draw(st.integers(1, 5))):
        op = draw(st.sampled_from(sorted(RULES)))
        rule = attributes.RULES[op]
        count = draw(st.integers(rule.inputs[0], min(rule.inputs[1], 5)))
        names = tuple(draw(st.sampled_from(made)) for _ in range(count))
        given_values = {
            name: draw(VALUES) for name in sorted(rule.attributes) if draw(st.booleans())
        }
        tidy = draw(st.booleans())
        kept = {
            name: value for name, value in given_values.items()
            if not tidy or rule.attributes[name].test(value)
        }  # fmt: skip
        outputs = tuple(f"n{k}.{j}" for j in range(min(rule.outputs[1], draw(st.integers(1, 2)))))
        nodes.append(Node(op, names, outputs, kept))
        made += outputs
    return graph(*nodes, constants=constants, inputs=inputs)


@settings(max_examples=400, deadline=None)
@given(graphs())
def test_whatever_the_graph_it_is_told_or_refused(random_graph: Graph):
    try:
        shapes = infer(random_graph)
    except ProgramRefused:
        return
    for value in shapes.values.values():
        assert all(at(size, batch) >= 0 for size in value.dims for batch in (1, 2, 1000))
    assert all(work(each, shapes, 3) >= 0 for each in random_graph.nodes)


# ---- work


def cost(use: Use, samples: int = 1) -> int:
    made = random_calls.graph(use)
    return work(made.nodes[0], infer(made), samples)


def test_products_count_multiplications_and_additions():
    assert cost(of("MatMul", F, Feed(1, (4, 5))), 7) == 2 * 7 * 3 * 4 * 5
    assert cost(of("Gemm", Feed(1, (4, "batch")), Feed(1, (4, 5)), transA=1), 7) == 2 * 7 * 4 * 5


def test_convolutions_count_what_each_place_takes():
    grouped = of("Conv", IMAGE, Feed(1, (6, 2, 3, 3)), group=2)
    assert cost(grouped, 5) == 2 * (5 * 6 * 6 * 6) * (2 * 3 * 3)
    spread = of("ConvTranspose", IMAGE, SPREAD, strides=(2, 2))
    assert cost(spread, 5) == 2 * (5 * 4 * 8 * 8) * (2 * 3 * 3)


def test_the_rest_counts_its_numbers():
    assert cost(of("Add", F, Feed(1, (1,))), 7) == 7 * 3 * 4
    assert cost(of("ReduceSum", F), 7) == 7 * 3 * 4
    assert cost(of("MaxPool", IMAGE, kernel_shape=(2, 2), strides=(2, 2))) == 4 * 4 * 4 * 4
    assert cost(of("Exp", F)) > cost(of("Relu", F)) > cost(of("Shape", F)) == 0
    assert cost(of("TopK", F, listed(1), outputs=2)) > 2 * 12


@pytest.mark.parametrize("op", sorted(MAKERS))
def test_more_samples_are_never_less_work(op: str):
    for seed in range(SEEDS):
        made = random_calls.graph(random_calls.make(op, seed))
        try:
            shapes = infer(made)
        except ProgramRefused:
            continue
        costs = [work(made.nodes[0], shapes, samples) for samples in (1, 2, 64)]
        assert costs == sorted(costs)
