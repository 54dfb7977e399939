"""Every pass leaves what a graph computes as it was, and takes away what it promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from crowdgrad.capture.tidy import tidy
from crowdgrad.capture.tidy.channels import with_channel_maps
from crowdgrad.capture.tidy.copies import (
    with_single_reshapes,
    with_sums_in_place,
    without_copies,
    without_twins,
    without_unread,
    without_unread_results,
)
from crowdgrad.capture.tidy.expands import with_late_expands, without_expands
from crowdgrad.capture.tidy.net import Net, read, write
from crowdgrad.capture.tidy.sums import with_stacked_sums

BATCHES = (1, 5)
Sizes = tuple[int | str, ...]


def a_graph(
    text: str, inputs: dict[str, Sizes], outputs: Sequence[str], **constants: object
) -> onnx.GraphProto:
    """A graph from lines like `y = Reshape x shape`, attributes as `axis=0` or `perm=1,0`."""
    nodes = []
    for line in text.strip().splitlines():
        made, _, call = line.partition("=")
        op, *rest = call.split()
        attributes = dict(part.split("=") for part in rest if "=" in part)
        numbers = {
            name: [int(v) for v in value.split(",")] if "," in value else int(value)
            for name, value in attributes.items()
        }
        names = [part for part in rest if "=" not in part]
        nodes.append(helper.make_node(op, names, made.split(), **numbers))
    ports = [helper.make_tensor_value_info(name, 1, sizes) for name, sizes in inputs.items()]
    ends = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    tensors = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "g", ports, ends, tensors)
    return onnx.shape_inference.infer_shapes(a_model(graph)).graph


def say(graph: onnx.GraphProto, **sizes: Sizes) -> None:
    """Sizes that torch's exporter knows and onnx does not infer."""
    for port in (*graph.value_info, *graph.output):
        if port.name in sizes:
            port.CopyFrom(helper.make_tensor_value_info(port.name, 1, sizes[port.name]))


def a_model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def values(graph: onnx.GraphProto, batch: int) -> list[NDArray[np.float32]]:
    random = np.random.default_rng(batch)
    feeds = {}
    for port in graph.input:
        dims = port.type.tensor_type.shape.dim
        sizes = [batch if d.dim_param else d.dim_value for d in dims]
        feeds[port.name] = random.standard_normal(sizes).astype(np.float32)
    return list(ReferenceEvaluator(a_model(graph)).run(None, feeds))


def count(graph: onnx.GraphProto) -> Counter[str]:
    return Counter(node.op_type for node in graph.node)


def improved(graph: onnx.GraphProto, *passes: Callable[[Net], Net]) -> Counter[str]:
    """The operators after the passes, and that they compute the same."""
    net = read(graph)
    for improve in (*passes, without_unread):
        net = improve(net)
    after = write(net, graph)
    onnx.checker.check_model(a_model(after))
    for batch in BATCHES:
        for one, other in zip(values(graph, batch), values(after, batch), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
    return count(after)


def ints(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def test_values_that_equal_another_are_read_there() -> None:
    graph = a_graph(
        """a = Identity x
           b = ReduceSum a first keepdims=1
           c = Transpose b perm=0,1,2
           d = Expand c same
           y = Neg d""",
        {"x": (1, 4, 3)},
        ["y"],
        first=ints(0),
        same=ints(1, 1, 3),
    )
    assert improved(graph, without_copies) == {"Neg": 1}


def test_a_sum_over_a_free_size_is_no_copy() -> None:
    graph = a_graph("y = ReduceSum x first keepdims=1", {"x": ("batch", 3)}, ["y"], first=ints(0))
    assert improved(graph, without_copies) == {"ReduceSum": 1}


def test_an_output_keeps_its_name() -> None:
    graph = a_graph("a = Neg x\ny = Identity a", {"x": ("batch",)}, ["a", "y"])
    assert improved(graph, without_copies, without_twins) == {"Neg": 1, "Identity": 1}


def test_a_chain_of_reshapes_is_one() -> None:
    graph = a_graph(
        """a = Unsqueeze x first
           b = Squeeze a first
           c = Reshape b flat
           y = Neg c
           d = Reshape b wide
           z = Neg d""",
        {"x": ("batch", 2, 3)},
        ["y", "z"],
        first=ints(0),
        flat=ints(-1, 6),
        wide=ints(-1, 3, 2),
    )
    say(graph, c=("batch", 6), d=("batch", 3, 2))
    assert improved(graph, with_single_reshapes, without_copies) == {"Reshape": 2, "Neg": 2}


def test_a_sum_drops_its_axis_itself() -> None:
    graph = a_graph(
        "a = ReduceSum x first keepdims=1\nb = Reshape a flat\ny = Neg b",
        {"x": ("batch", 3)},
        ["y"],
        first=ints(0),
        flat=ints(3),
    )
    assert improved(graph, with_sums_in_place) == {"ReduceSum": 1, "Neg": 1}


def test_what_is_computed_twice_is_computed_once() -> None:
    graph = a_graph(
        """a = Transpose x perm=1,0
           b = Transpose x perm=1,0
           c = Mul a one
           d = Mul b uno
           y = Add c d
           e = Transpose x perm=0,1
           z = Neg e""",
        {"x": (2, 2)},
        ["y", "z"],
        one=np.float32(1),
        uno=np.float32(1),
    )
    assert improved(graph, without_twins) == {"Transpose": 2, "Mul": 1, "Add": 1, "Neg": 1}


def test_what_no_output_needs_goes() -> None:
    graph = a_graph("y = Neg x\nz = Exp x\nw = Exp z", {"x": (2,)}, ["y"])
    assert improved(graph) == {"Neg": 1}


def test_indices_that_nobody_reads_are_not_made() -> None:
    """And then two poolings of the same are one."""
    graph = a_graph(
        """a i = MaxPool x kernel_shape=2,2
           b j = MaxPool x kernel_shape=2,2
           y = Add a b""",
        {"x": ("batch", 1, 3, 3)},
        ["y"],
    )
    assert improved(graph, without_unread_results, without_twins) == {"MaxPool": 1, "Add": 1}


def a_recurrent_sum(steps: int, rest: str = "") -> onnx.GraphProto:
    """Σₜ Aₜᵀ·Bₜ and the sum of all rows of the Aₜ, as exporters write them."""
    lines, inputs = [], {}
    for t in range(steps):
        inputs |= {f"a{t}": ("batch", 3), f"b{t}": ("batch", 2)}
        lines += [f"t{t} = Transpose a{t} perm=1,0", f"p{t} = MatMul t{t} b{t}"]
        lines += [f"r{t} = ReduceSum a{t} first keepdims=0"]
    for t in range(1, steps):
        before = (f"s{t - 1}", f"q{t - 1}") if t > 1 else ("p0", "r0")
        lines += [f"s{t} = Add {before[0]} p{t}", f"q{t} = Add {before[1]} r{t}"]
    end = f"y = Neg s{steps - 1}\nz = Neg q{steps - 1}" + rest
    return a_graph("\n".join(lines) + "\n" + end, inputs, ["y", "z"], first=ints(0))


def test_sums_of_products_become_one_product() -> None:
    after = improved(a_recurrent_sum(4), with_stacked_sums, without_twins)
    assert after == {"Concat": 2, "Transpose": 1, "MatMul": 1, "ReduceSum": 1, "Neg": 2}


def test_two_products_stay_two() -> None:
    assert improved(a_recurrent_sum(2), with_stacked_sums)["MatMul"] == 2


def test_a_product_that_others_read_stays() -> None:
    graph = a_graph(
        """ta = Transpose a perm=1,0
           p = MatMul ta b
           q = MatMul ta c
           r = MatMul ta d
           s = Add p q
           t = Add s r
           u = Add t w
           y = Mul u q""",
        {"a": ("batch", 3), **{k: ("batch", 2) for k in "bcd"}, "w": (3, 2)},
        ["y"],
    )
    assert improved(graph, with_stacked_sums)["MatMul"] == 3


def test_a_sum_keeps_its_other_terms() -> None:
    graph = a_graph(
        """ta = Transpose a perm=1,0
           p = MatMul ta b
           q = MatMul ta c
           r = MatMul ta d
           s = Add p w
           t = Add s q
           u = Add t v
           y = Add u r""",
        {"a": ("batch", 3), **{k: ("batch", 2) for k in "bcd"}, "w": (3, 2), "v": (3, 2)},
        ["y"],
    )
    after = improved(graph, with_stacked_sums)
    assert (after["MatMul"], after["Add"]) == (1, 2)


def a_spread_sum(rest: str) -> onnx.GraphProto:
    """Four small terms, three of a kind, and one that spreads them over the batch."""
    return a_graph(
        f"""p = ReduceSum a first keepdims=1
           q = ReduceSum b first keepdims=1
           r = ReduceSum c first keepdims=1
           s = Add w p
           t = Add s q
           u = Add t r
           {rest}""",
        {**{k: ("batch", 3) for k in "abc"}, "w": ("batch", 3)},
        ["y"],
        first=ints(0),
    )


def test_stacked_terms_keep_their_own_sizes() -> None:
    """Terms that the sum spreads are no copies of it."""
    graph = a_spread_sum("y = Neg u")
    net = with_stacked_sums(read(graph))
    made = next(node for node in net.nodes if node.op_type == "ReduceSum" and "." in node.output[0])
    assert net.sizes[made.output[0]] == (1, 3)
    improved(graph, with_stacked_sums, without_copies, without_expands)


def test_sums_in_between_have_no_sizes() -> None:
    graph = a_graph(
        """p = ReduceSum a first keepdims=1
           q = ReduceSum b first keepdims=1
           r = ReduceSum c first keepdims=1
           s = Add p v
           t = Add q s
           u = Add w r
           x = Add t u
           y = Neg x""",
        {**{k: ("batch", 3) for k in "abcw"}, "v": (1, 3)},
        ["y"],
        first=ints(0),
    )
    say(graph, **{name: ("batch", 3) for name in "stu"})
    net = with_stacked_sums(read(graph))
    partial = [node.output[0] for node in net.nodes if ".add" in node.output[0]]
    assert partial
    assert not net.sizes.keys() & set(partial)


def test_a_sum_stacked_again_has_names_of_its_own() -> None:
    graph = a_spread_sum("y = Neg u")
    once = with_stacked_sums(read(graph))
    total = next(n for n in once.nodes if n.op_type == "ReduceSum" and "." in n.output[0])
    root = next(n for n in once.nodes if n.output[0] == "u")
    # What a pass in between may find: two more terms of the kind.
    more = [
        helper.make_node("ReduceSum", ["a", "first"], ["d"], keepdims=1),
        helper.make_node("ReduceSum", ["b", "first"], ["e"], keepdims=1),
        helper.make_node("Add", [total.output[0], "d"], ["f"]),
        helper.make_node("Add", ["e", "w"], ["g"]),
        helper.make_node("Add", ["f", "g"], ["u"]),
    ]
    nodes = []
    for made in once.nodes:
        nodes += more if made is root else [made]
    again = with_stacked_sums(
        replace(
            once,
            nodes=tuple(nodes),
            sizes={**once.sizes, "d": (1, 3), "e": (1, 3), "f": ("batch", 3), "g": ("batch", 3)},
        )
    )
    names = [name for made in again.nodes for name in made.output]
    assert len(names) == len(set(names))
    assert sum(".sum" in name for name in names) > sum(".sum" in n for m in nodes for n in m.output)


NORMALISE = """
    a = Sub x m
    b = Mul a r
    c = Mul w b
    d = Add c s
    y = Relu d
"""
IMAGES: dict[str, Sizes] = {
    "x": ("batch", 3, 2, 2),
    "m": (1, 3, 1, 1),
    "r": (1, 3, 1, 1),
    "w": (3, 1, 1),
    "s": (3, 1, 1),
}


def test_normalisation_is_one_pass() -> None:
    after = improved(a_graph(NORMALISE, IMAGES, ["y"]), with_channel_maps)
    assert after == {"Reshape": 4, "Mul": 1, "BatchNormalization": 1, "Relu": 1}


def test_what_is_read_in_between_is_still_made() -> None:
    graph = a_graph(NORMALISE + "z = Mul a a", IMAGES, ["y", "z"])
    after = improved(graph, with_channel_maps)
    assert (after["Sub"], after["BatchNormalization"]) == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "a = Mul x r\nb = Sub a m\nc = Div b w\nd = Add c s\ny = Relu d",
        "a = Add x s\nb = Sub a m\nc = Mul b w\ny = Relu c",
        "a = Div x r\nb = Div a w\ny = Relu b",
    ],
)
def test_any_chain_of_numbers_a_channel(text: str) -> None:
    after = improved(a_graph(text, IMAGES, ["y"]), with_channel_maps)
    assert after["BatchNormalization"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "a = Sub m x\nb = Mul a r\ny = Relu b",  # m − x is no (x − m)
        "a = Mul x k\nb = Mul a k\ny = Relu b",  # a number for every column
        "a = Mul x x\nb = Mul a x\ny = Relu b",
    ],
)
def test_what_is_no_such_chain_stays(text: str) -> None:
    graph = a_graph(text, {**IMAGES, "x": ("batch", 3, 2, 3), "k": (3,)}, ["y"])
    assert improved(graph, with_channel_maps)["BatchNormalization"] == 0


@pytest.mark.parametrize("element", [TensorProto.INT64, TensorProto.DOUBLE, None])
def test_only_float32_is_folded(element: int | None) -> None:
    """Whole numbers, doubles, and what is not known."""
    net = read(a_graph(NORMALISE, IMAGES, ["y"]))
    elements = {} if element is None else dict.fromkeys(net.elements, element)
    after = with_channel_maps(replace(net, elements=elements))
    assert after.nodes == net.nodes


def test_what_is_spread_out_for_others_need_not_be() -> None:
    graph = a_graph(
        """size = Shape x
           e = Expand s size
           d = Div e four
           c = LessOrEqual x zero
           y = Where c zero d""",
        {"x": ("batch", 3, 2, 2), "s": ("batch", 3, 1, 1)},
        ["y"],
        four=np.float32(4),
        zero=np.float32(0),
    )
    whole = ("batch", 3, 2, 2)
    say(graph, e=whole, d=whole, y=whole)
    after = improved(graph, with_late_expands, without_expands)
    assert after == {"Div": 1, "LessOrEqual": 1, "Where": 1}


def test_what_only_its_spreading_makes_large_stays_spread() -> None:
    graph = a_graph("e = Expand s size\ny = Add e e", {"s": (3, 1)}, ["y"], size=ints(3, 4))
    assert improved(graph, without_expands) == {"Expand": 1, "Add": 1}


def test_all_passes_together_end_and_say_the_same_each_time() -> None:
    graph = a_recurrent_sum(5, "\nunread = Neg y")
    once, again = tidy(graph), tidy(graph)
    assert once.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert tidy(once) == once
    assert count(once)["MatMul"] == 1
