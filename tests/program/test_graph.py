"""Our reader sees what the `onnx` package sees, or refuses; and it never reads without bounds."""

from __future__ import annotations

import itertools

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from crowdgrad.errors import ProgramRefused
from crowdgrad.program import graph as graphs
from crowdgrad.program import nodes
from crowdgrad.program.graph import ELEMENTS, Attribute, Constant, Graph, Node, Port, parse
from tests.program.protobuf import block, varint


def by_onnx(data: bytes) -> Graph:
    """The same types, filled by the `onnx` package."""
    model = onnx.ModelProto.FromString(data)
    return Graph(
        ir_version=model.ir_version,
        opset=model.opset_import[0].version,
        nodes=tuple(map(_node, model.graph.node)),
        constants=tuple(map(_constant, model.graph.initializer)),
        inputs=tuple(map(_port, model.graph.input)),
        outputs=tuple(map(_port, model.graph.output)),
    )


def _node(node: onnx.NodeProto) -> Node:
    values = {attribute.name: _value(attribute) for attribute in node.attribute}
    return Node(node.op_type, tuple(node.input), tuple(node.output), values)


def _value(attribute: onnx.AttributeProto) -> Attribute:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return _constant(value)
    return tuple(value) if isinstance(value, list) else value


def _constant(tensor: onnx.TensorProto) -> Constant:
    return Constant(
        name=tensor.name,
        element=tensor.data_type,
        dims=tuple(tensor.dims),
        data=tensor.raw_data,
    )


def _port(port: onnx.ValueInfoProto) -> Port:
    dims = port.type.tensor_type.shape.dim
    return Port(
        name=port.name,
        element=port.type.tensor_type.elem_type,
        dims=tuple(d.dim_param if d.HasField("dim_param") else d.dim_value for d in dims),
    )


def model_of(graph: bytes) -> bytes:
    """A file with this graph."""
    return b"\x08\x0a" + block(7, graph) + block(8, block(1, b"") + b"\x10\x14")


NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=150)
CONSTANTS = st.builds(
    lambda values, kind: numpy_helper.from_array(
        numpy_helper.to_array(helper.make_tensor("", kind, [len(values)], values))
    ),
    st.lists(st.integers(0, 1), max_size=20),
    st.sampled_from(sorted(ELEMENTS)),
)
VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False),
    st.binary(max_size=64),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=16),
    CONSTANTS,
)


@st.composite
def any_node(draw: st.DrawFn) -> onnx.NodeProto:
    return helper.make_node(
        draw(NAMES.filter(lambda name: 0 < len(name.encode()) <= 64)),
        draw(st.lists(NAMES, max_size=6)),
        draw(st.lists(NAMES, max_size=3)),
        domain=draw(st.sampled_from(["", None])),
        **draw(st.dictionaries(st.sampled_from("abcdefgh"), VALUES, max_size=4)),
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(any_node(), max_size=6))
def test_nodes_are_read_as_by_onnx(made):
    data = helper.make_model(
        helper.make_graph(made, "g", [], []),
        ir_version=10,
        opset_imports=[helper.make_opsetid("", 20)],
    ).SerializeToString(deterministic=True)
    assert parse(data, "it") == by_onnx(data)


def test_programs_are_read_as_by_onnx(captured, rich):
    for program in (captured.program, rich.captured.program):
        for data in (program.gradient, program.forward):
            assert parse(data, "it") == by_onnx(data)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_what_passes_is_read_as_by_onnx_however_it_was_altered(captured, data):
    """A difference between two readers is how one graph is checked and another run."""
    altered = bytearray(captured.program.gradient)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(altered) - 1))
        if data.draw(st.booleans()):
            altered[at] = data.draw(st.integers(0, 255))
        else:
            span = data.draw(st.integers(1, 12))
            altered[at:at] = altered[at : at + span]
    try:
        graph = parse(bytes(altered), "it")
    except ProgramRefused:
        return
    assert repr(graph) == repr(by_onnx(bytes(altered)))  # by repr: nan is not nan


NODE = block(1, block(1, b"x") + block(2, b"y") + block(4, b"Neg"))


def attribute(*fields: bytes) -> bytes:
    """A graph of one node with this attribute."""
    return block(1, block(4, b"Neg") + block(5, block(1, b"a") + b"".join(fields)))


def port(name: bytes, *dims: bytes) -> bytes:
    shape = b"".join(block(1, dim) for dim in dims)
    return block(1, name) + block(2, block(1, b"\x08\x01" + block(2, shape)))


def tensor(count: int) -> bytes:
    return b"\x08" + varint(count) + b"\x10\x03" + block(8, b"c") + block(9, bytes(count))


FLOAT, INT, STRING, TENSOR = b"\x15\0\0\0\0", b"\x18\x01", block(4, b"s"), block(5, tensor(1))
INTS = b"\x40\x01\x40\x02"


def says(kind: int) -> bytes:
    return b"\xa0\x01" + varint(kind)


def test_an_attribute_holds_what_it_says():
    whole = (FLOAT, 0.0), (INT, 1), (STRING, b"s"), (INTS, (1, 2)), (b"", ())
    for (field, value), kind in zip(whole, (1, 2, 3, 7, 7), strict=True):
        (node,) = parse(model_of(attribute(field, says(kind))), "it").nodes
        assert node.attributes == {"a": value}
    for fields in (
        (FLOAT, says(2)),
        (INT, says(1)),
        (INT, says(7)),
        (INTS, says(2)),
        (STRING, says(2)),
        (TENSOR, says(3)),
        (INT, says(4)),
        (INT, says(0)),
        (INT, says(8)),
        (INT, says(1 << 32 | 2)),
        (INT,),
        (),
        (says(2),),
        (FLOAT, INT, says(2)),
        (INT, INTS, says(7)),
    ):
        with pytest.raises(ProgramRefused, match="'a' says it is of type"):
            parse(model_of(attribute(*fields)), "it")


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (NODE * (nodes.MAX_NODES + 1), "more than .* nodes"),
        (block(1, block(1, b"x") * (nodes.MAX_EDGES + 1)), "inputs and outputs"),
        (
            b"".join(block(1, block(4, b"o%d" % i)) for i in range(nodes.MAX_KINDS_BYTES // 4)),
            "too many different operators",
        ),
        (block(1, block(4, b"Neg") + block(5, block(1, b"a") + says(7)) * 9), "more than 8"),
        (attribute(b"\x40\x01" * 17, says(7)), "more than 16 of 'ints'"),
        (attribute(block(4, bytes(65)), says(3)), "more than 64"),
        (attribute(block(7, b""), says(6)), "field 7"),
        (block(1, block(4, b"O" * 65)), "more than 64"),
        (block(1, block(1, b"x" * 513) + block(4, b"Neg")), "more than 512"),
        (block(1, block(1, b"\xff") + block(4, b"Neg")), "not UTF-8"),
        (block(1, block(1, b"a\x1b[2J") + block(4, b"Neg")), "cannot be shown"),
        (block(1, block(4, b"Neg") + block(1, b"x")), "field 1"),
        (block(1, block(2, b"y") + block(1, b"x") + block(4, b"Neg")), "field 1"),
        (block(1, block(4, b"Neg") + block(4, b"Abs")), "twice"),
        (block(1, block(3, b"name") + block(4, b"Neg")), "field 3"),
        (block(1, block(4, b"Neg") + block(7, b"mine")), "'mine::Neg'"),
        (block(1, block(1, b"xy")[:-1]), "cut short"),
        (block(1, b"\x0a"), "cut short"),
        (block(1, b"\x0a\x81\x00x"), "needless"),
        (NODE[:-1], "cut short"),
        (b"\x0a", "cut short"),
        (block(2, b"g") + NODE, "field 1"),
        (block(5, tensor(1)) * (graphs.MAX_CONSTANTS + 1), "more than .* of 'constants'"),
        (block(5, tensor(1 << 17)) * 3, "bytes of constants"),
        (block(5, tensor(nodes.MAX_CONSTANT_BYTES + 1)), "more than"),
        (block(5, b"\x08" + varint(-1) + b"\x10\x03"), r"shape \(-1,\)"),
        (block(5, b"\x08" + varint(1 << 40) + b"\x10\x03"), "shape"),
        (block(5, b"\x08\x01" * 9 + b"\x10\x03"), "more than 8 of 'dims'"),
        (block(11, port(b"x")) * (graphs.MAX_PORTS + 1), "more than .* of 'inputs'"),
        (block(12, port(b"x")) * (graphs.MAX_PORTS + 1), "more than .* of 'outputs'"),
        (block(11, port(b"x", *[b"\x08\x01"] * 9)), "more than 8 of 'dims'"),
        (block(11, port(b"x", b"\x08" + varint(-1))), "size -1"),
        (block(11, port(b"x", b"\x08" + varint(1 << 40))), f"size {1 << 40}"),
        (block(11, port(b"x", b"")), "neither a number nor a name"),
        (block(11, port(b"x", b"\x08\x01" + block(2, b"n"))), "neither a number nor a name"),
    ],
)
def test_counts_and_sizes_are_bounded_while_reading(graph, reason):
    with pytest.raises(ProgramRefused, match=reason):
        parse(model_of(graph), "it")


def test_a_file_has_a_largest_size():
    with pytest.raises(ProgramRefused, match="bytes, more than"):
        parse(bytes(graphs.MAX_FILE_BYTES + 1), "it")


def test_nodes_of_one_kind_share_their_attributes():
    """What makes long graphs quick to read and to check."""
    node = attribute(INTS, says(7))
    first, second = parse(model_of(node * 2), "it").nodes
    assert first.attributes is second.attributes


def test_the_limits_leave_room_for_large_models():
    """Two hundred steps of an unrolled recurrent layer, both ways, are some ten thousand nodes."""
    names = [b"x", *(b"v%d" % step for step in range(12_000))]
    graph = b"".join(
        block(1, block(1, a) + block(1, b"x") + block(2, b) + block(4, b"Add"))
        for a, b in itertools.pairwise(names)
    )
    assert len(parse(model_of(graph), "it").nodes) == 12_000
