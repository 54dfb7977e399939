"""What shape inference cannot tell, or the runtime would not do, is refused with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.errors import ProgramRefused
from crowdgrad.program import attributes
from crowdgrad.program.graph import Graph, Node, Port
from crowdgrad.program.shapes import infer, work
from crowdgrad.program.shapes.infer import MAX_CALLS
from crowdgrad.program.shapes.table import RULES
from crowdgrad.program.sizes import at
from tests.program import random_calls
from tests.program.random_calls import Feed, Use, constant, listed, number
from tests.program.small_graphs import (
    DATA,
    FLAGS,
    IMAGE,
    INDEX,
    KERNEL,
    LARGEST,
    PLACES,
    SHAPE,
    SPREAD,
    F,
    graph,
    node,
    of,
)

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
