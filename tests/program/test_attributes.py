"""The table allows what the capture emits, nothing beside it, and nothing the standard does not."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.attributes import MANY, RULES, refuse_odd_ports, rule_of
from crowdgrad.program.check import MAX_OPSET, MIN_OPSET
from crowdgrad.program.nodes import ELEMENTS, Attribute, Constant, Node

INF, NAN = float("inf"), float("nan")
ONE = Constant(name="", element=1, dims=(1,), data=bytes(4))
TWO = Constant(name="", element=1, dims=(2,), data=bytes(8))
FLAG = [0, 1], [-1, 2, 1.0, b"1", (1,)]
AXIS = [-8, 7], [-9, 8, 0.0, (0,)]
EDGE = [-8, 8], [-9, 9, 0.0]
FINITE = [-2.5, 0.0, 3e38], [INF, -INF, NAN, 1, b"1.0"]
POSITIVE = [0.0, 1e-5], [-1e-9, INF, NAN, 0]
SIDES = [(1,), (65536, 1), (1, 2, 3)], [(), (0,), (1, -1), (65537,), (1,) * 4, 1, (1.0,)]
BORDERS = [(0, 0), (1, 2, 65536, 0), (1,) * 6], [(), (0,), (1,) * 3, (-1, 0), (65537, 0), (0,) * 8]
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "allowzero": FLAG,
    "alpha": FINITE,
    "approximate": ([b"none", b"tanh"], [b"", b"Tanh", b"erf", 0]),
    "auto_pad": ([b"NOTSET"], [b"SAME_UPPER", b"VALID", b"notset", b""]),
    "axis": AXIS,
    "batch_dims": ([0], [1, -1, 0.0]),
    "beta": FINITE,
    "ceil_mode": FLAG,
    "count_include_pad": FLAG,
    "detect_negative": FLAG,
    "detect_positive": FLAG,
    "dilations": SIDES,
    "end": EDGE,
    "epsilon": POSITIVE,
    "exclusive": FLAG,
    "Flatten.axis": EDGE,
    "fmod": FLAG,
    "group": ([1, 65536], [0, -1, 65537, 1.0]),
    "keepdims": FLAG,
    "kernel_shape": SIDES,
    "largest": FLAG,
    "mode": ([b"constant"], [b"reflect", b"edge", b"wrap", b"Constant", 0]),
    "momentum": FINITE,
    "noop_with_empty_axes": FLAG,
    "num_outputs": ([1, MANY], [0, MANY + 1, -1, 2.0]),
    "output_padding": ([(0,), (1, 65536), (0, 0, 0)], [(), (-1,), (65537,), (0,) * 4, 0]),
    "pads": BORDERS,
    "perm": (
        [(), (0,), (1, 0), (7, 6, 5, 4, 3, 2, 1, 0)],
        [(1,), (0, 0), (-1, 0), 0, (*range(9),)],
    ),
    "reduction": ([b"none", b"add"], [b"sum", b"ADD", b"", 0]),
    "reverse": FLAG,
    "saturate": ([1], [0, 2]),
    "ScatterND.reduction": ([b"none", b"add"], [b"mul", b"max", b"min", b"sum"]),
    "select_last_index": ([0], [1, -1]),
    "sorted": FLAG,
    "start": EDGE,
    "stash_type": ([1], [0, 10, 11]),
    "storage_order": ([0], [1]),
    "strides": SIDES,
    "to": ([*ELEMENTS], [0, 4, 8, 10, 12, 14, 16, 17, 22, -1, 1.0]),
    "training_mode": ([0], [1]),
    "transA": FLAG,
    "transB": FLAG,
    "value": ([ONE], [TWO, 1.0, (1,), 1]),
}
"""Values that are allowed, the outermost among them, and their neighbours, which are not."""
KINDS = {
    onnx.defs.OpSchema.AttrType.INT: int,
    onnx.defs.OpSchema.AttrType.FLOAT: float,
    onnx.defs.OpSchema.AttrType.STRING: bytes,
    onnx.defs.OpSchema.AttrType.INTS: tuple,
    onnx.defs.OpSchema.AttrType.TENSOR: Constant,
}
ENTRIES = [(op, name) for op, rule in RULES.items() for name in rule.attributes]


def of(op: str, name: str) -> tuple[list[Any], list[Any]]:
    return VALUES.get(f"{op}.{name}") or VALUES[name]


def node(op: str, name: str, value: Attribute) -> Node:
    """A node with this attribute, then those it cannot do without, for as many axes."""
    needed = {need: of(op, need)[0][0] for need in RULES[op].needs}
    if "kernel_shape" in needed and isinstance(value, tuple):
        needed["kernel_shape"] = (1,) * (len(value) // (2 if name == "pads" else 1))
    return Node(op, ("x",), ("y",), {name: value} | needed | {name: value})


@pytest.mark.parametrize(("op", "name"), ENTRIES, ids=[f"{op}.{name}" for op, name in ENTRIES])
def test_every_entry_allows_its_range_and_refuses_the_neighbours(op, name):
    good, bad = of(op, name)
    for value in good:
        rule_of(node(op, name, value), "it")
    for value in bad:
        with pytest.raises(ProgramRefused, match=f"{op} has {name} = .*, it may be ") as caught:
            rule_of(node(op, name, value), "it")
        assert str(caught.value).isprintable()


def schemas(op: str) -> list[Any]:
    versions = range(MIN_OPSET, MAX_OPSET + 1)
    return [onnx.defs.get_schema(op, v) for v in versions if onnx.defs.has(op, v)]


@pytest.mark.parametrize("op", RULES)
def test_every_entry_is_one_of_the_standards(op):
    """An attribute of another name or type would be an error of ours, or of the runtime."""
    rule, found = RULES[op], schemas(op)
    assert found, "not an operator of the standard"
    for name in rule.attributes:
        kinds = {KINDS.get(s.attributes[name].type) for s in found if name in s.attributes}
        assert kinds == {type(of(op, name)[0][0])}, name
    for schema in found:
        required = {name for name, a in schema.attributes.items() if a.required}
        assert required <= set(rule.needs)
        assert schema.min_input <= rule.inputs[0] <= rule.inputs[1] <= schema.max_input
        assert schema.min_output <= rule.outputs[0] <= rule.outputs[1] <= schema.max_output


@pytest.mark.parametrize("op", RULES)
def test_every_operator_refuses_one_port_more_or_fewer(op):
    rule = RULES[op]
    (fewest, most), (least, largest) = rule.inputs, rule.outputs
    for inputs, outputs in ((fewest, least), (most, largest)):
        refuse_odd_ports(Node(op, ("x",) * inputs, ("y",) * outputs, {}), rule, "it")
    for inputs in (fewest - 1, most + 1):
        with pytest.raises(ProgramRefused, match=f"{op} has {inputs} inputs, not {fewest}"):
            refuse_odd_ports(Node(op, ("x",) * inputs, ("y",) * least, {}), rule, "it")
    for outputs in (least - 1, largest + 1):
        with pytest.raises(ProgramRefused, match=f"{op} has {outputs} outputs, not {least}"):
            refuse_odd_ports(Node(op, ("x",) * fewest, ("y",) * outputs, {}), rule, "it")


def test_only_a_bound_of_clip_may_be_left_out():
    refuse_odd_ports(Node("Clip", ("x", "", "high"), ("y",), {}), RULES["Clip"], "it")
    for op, names in (("Clip", ("", "low")), ("Add", ("x", "")), ("Slice", ("x", "s", "e", ""))):
        with pytest.raises(ProgramRefused, match=f"{op} leaves out its input"):
            refuse_odd_ports(Node(op, names, ("y",), {}), RULES[op], "it")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (Node("Loop", ("x",), ("y",), {}), "uses the operator 'Loop', which is not on the list"),
        (Node("Constant", (), ("y",), {"value": ONE}), "'Constant', which is not on the list"),
        (Node("Neg", ("x",), ("y",), {"axis": 1}), "Neg has the unknown attribute 'axis'"),
        (Node("Softmax", ("x",), ("y",), {"axes": 1}), "Softmax has the unknown attribute 'axes'"),
        (Node("Cast", ("x",), ("y",), {}), "Cast lacks the attribute 'to'"),
        (
            Node("Conv", ("x", "w"), ("y",), {"kernel_shape": (3, 3), "strides": (1,)}),
            "Conv has sizes for different axes: kernel_shape 2, strides 1",
        ),
        (
            Node("MaxPool", ("x",), ("y",), {"kernel_shape": (3, 3), "pads": (1, 1)}),
            "MaxPool has sizes for different axes: kernel_shape 2, pads 1",
        ),
    ],
)
def test_other_nodes_are_refused_with_the_reason(made, reason):
    with pytest.raises(ProgramRefused, match=reason):
        rule_of(made, "it")
