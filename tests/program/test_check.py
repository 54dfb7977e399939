"""Real programs pass; every way to smuggle something in is refused with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from crowdgrad.domain.program import MetricSpec, NoiseSpec, Program, TensorSpec
from crowdgrad.errors import ProgramRefused
from crowdgrad.program import check as checker
from crowdgrad.program.bounds import Limits
from crowdgrad.program.check import check
from crowdgrad.program.graph import MAX_PORTS
from crowdgrad.program.nodes import MAX_CONSTANT_BYTES
from crowdgrad.program.sizes import MAX_BATCH
from tests.program.protobuf import block


def altered(program: Program, change: Callable[[onnx.ModelProto], object]) -> Program:
    model = onnx.ModelProto.FromString(program.gradient)
    change(model)
    return replace(program, gradient=model.SerializeToString())


def refusal(program: Program) -> str:
    """Why the program is refused; '' where it passes."""
    try:
        check(program)
    except ProgramRefused as error:
        return str(error)
    return ""


def test_a_captured_program_passes(captured):
    check(captured.program)


def add_node(op: str, domain: str = "", **attributes: object) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = helper.make_node(op, ["loss"], ["extra"], domain=domain, **attributes)
        model.graph.node.append(node)

    return change


def subgraph() -> onnx.GraphProto:
    return helper.make_graph([], "inner", [], [])


def external(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")


def constant(tensor: onnx.TensorProto) -> Callable[[onnx.ModelProto], None]:
    return lambda model: model.graph.initializer.append(tensor)


def cut_initializer(model: onnx.ModelProto) -> None:
    found = next(t for t in model.graph.initializer if t.raw_data)
    found.raw_data = found.raw_data[:-1]


def rename_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "p:other"


def batch_of_seven(model: onnx.ModelProto) -> None:
    port = next(p for p in model.graph.input if p.name == "x:pixels")
    port.type.tensor_type.shape.dim[0].dim_value = 7


def free_size(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"


def wrong_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def no_shape(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.ClearField("shape")


def sequence(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1


def swap_nodes(model: onnx.ModelProto) -> None:
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def double_attribute(model: onnx.ModelProto) -> None:
    node = next(node for node in model.graph.node if node.attribute)
    node.attribute.append(node.attribute[0])


def unnamed_output(model: onnx.ModelProto) -> None:
    model.graph.node[-1].output[0] = ""


def smaller_gradient(model: onnx.ModelProto) -> None:
    """An output that is not what it promises to be."""
    node = next(node for node in model.graph.node if "g:0.bias" in node.output)
    node.output[list(node.output).index("g:0.bias")] = "whole"
    model.graph.node.append(helper.make_node("Identity", ["p:3.bias"], ["g:0.bias"]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (add_node("RandomNormal"), "'RandomNormal', which is not on the list"),
        (add_node("Loop", body=subgraph()), "field 6"),
        (add_node("Gelu", domain="com.microsoft"), "com.microsoft::Gelu"),
        (add_node("Identity", graphs=[subgraph()]), "field 11"),
        (add_node("Identity", words=["a"]), "field 9"),
        (add_node("Neg", domain="ai.onnx"), "ai.onnx::Neg"),
        (add_node("Neg", floats=[1.0]), "field 7"),
        (add_node("Cast", to=TensorProto.STRING), "Cast has to = 8, it may be 1 or"),
        (add_node("Constant", value_string="a"), "'Constant', which is not on the list"),
        (add_node("Constant", value=numpy_helper.from_array(np.zeros(1))), "not on the list"),
        (add_node("Add"), "Add has 1 inputs, not 2"),
        (add_node("Identity", axis=1), "Identity has the unknown attribute 'axis'"),
        (add_node("Softmax", axes=1), "Softmax has the unknown attribute 'axes'"),
        (lambda m: m.functions.add(name="f", domain="d"), "field 25"),
        (lambda m: m.metadata_props.add(key="a", value="b"), "field 14"),
        (lambda m: m.training_info.add(), "field 20"),
        (lambda m: m.opset_import.add(domain="ai.onnx.ml", version=1), "more than 1"),
        (lambda m: setattr(m.opset_import[0], "domain", "mine"), "standard operators"),
        (lambda m: setattr(m.opset_import[0], "version", 21), "opset 21"),
        (lambda m: setattr(m, "ir_version", 99), "format 99"),
        (lambda m: m.ClearField("graph"), "no graph"),
        (lambda m: setattr(m.graph, "doc_string", "/home/me"), "field 10"),
        (lambda m: setattr(m.graph.node[0], "doc_string", "/home/me"), "field 6"),
        (lambda m: m.graph.value_info.add(name="v"), "field 13"),
        (lambda m: m.graph.sparse_initializer.add(), "field 15"),
        (external, "field 1[34]"),
        (constant(helper.make_tensor("s", TensorProto.STRING, [1], [b"a"])), "field 6"),
        (constant(helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0])), "field 4"),
        (
            constant(numpy_helper.from_array(np.zeros(MAX_CONSTANT_BYTES, np.int8), "k")),
            "constants",
        ),
        (constant(numpy_helper.from_array(np.zeros(2, np.float16), "k")), "element type 10"),
        (constant(numpy_helper.from_array(np.zeros(2, np.float32), "p:0.bias")), "twice"),
        (cut_initializer, "holds"),
        (rename_input, "'p:other' instead of 'p:0.weight'"),
        (lambda m: m.graph.input[0].ClearField("name"), "'' instead of 'p:0.weight'"),
        (lambda m: m.graph.input.pop(), "input of the gradient graph"),
        (lambda m: m.graph.output.pop(), "output of the gradient graph"),
        (lambda m: m.graph.output.append(m.graph.output[0]), "output of the gradient graph"),
        (batch_of_seven, "shape"),
        (free_size, "shape"),
        (wrong_type, "element type 11"),
        (no_shape, "known shape"),
        (sequence, "field 4"),
        (swap_nodes, "before it is made"),
        (lambda m: m.graph.node.append(m.graph.node[0]), "twice"),
        (lambda m: m.graph.node.pop(), "is never made|before it is made"),
        (double_attribute, "twice"),
        (lambda m: m.graph.node[0].input.append("x" * 600), "more than 512"),
        (lambda m: setattr(m.graph.node[0], "name", "n"), "field 3"),
        (lambda m: setattr(m.graph.node[0], "overload", "n"), "field 8"),
        (lambda m: setattr(m, "producer_name", "x" * 65), "more than 64"),
        (lambda m: setattr(m, "producer_version", "1"), "field 3"),
        (unnamed_output, "without a name"),
        (smaller_gradient, "'g:0.bias' is float32 of shape"),
    ],
)
def test_whatever_capture_does_not_emit_is_refused(captured, change, reason):
    with pytest.raises(ProgramRefused, match=reason):
        check(altered(captured.program, change))


def test_a_second_graph_cannot_hide_behind_the_first(captured):
    # A full parser merges two occurrences of one field; ours refuses them.
    whole = captured.program.gradient
    graph = block(7, onnx.ModelProto.FromString(whole).graph.SerializeToString())
    assert whole.count(graph) == 1
    for twice in (whole + whole, whole + graph, whole.replace(graph, graph + graph)):
        assert onnx.ModelProto.FromString(twice).graph.node
        with pytest.raises(ProgramRefused, match=r"twice|out of order"):
            check(replace(captured.program, gradient=twice))


def test_the_spec_must_describe_the_graphs(captured):
    spec = captured.program.spec
    extra = TensorSpec(name="more", dtype="float32", shape=(2,))
    noise = NoiseSpec(name="noise1", kind="normal", shape=(), per_sample=True)
    for changed in (
        replace(spec, parameters=(*spec.parameters, extra)),
        replace(spec, parameters=spec.parameters[::-1]),
        replace(spec, inputs=(*spec.inputs, extra)),
        replace(spec, noise=()),
        replace(spec, noise=(*spec.noise, noise)),
        replace(spec, buffers=(extra,)),
        replace(spec, metrics=()),
        replace(spec, metrics=(*spec.metrics, MetricSpec(name="another"))),
        replace(spec, fixed=(extra,)),
        replace(spec, fixed_batch=8),
        replace(spec, forward_noise=(noise,)),
        replace(spec, outputs=2),
        replace(spec, outputs=-1),
        replace(spec, metrics=tuple(MetricSpec(name=f"m{i}") for i in range(MAX_PORTS))),
        replace(spec, opset=17),
        replace(spec, opset=23),
        replace(spec, opset=21),
    ):
        with pytest.raises(ProgramRefused):
            check(replace(captured.program, spec=changed))


def test_the_forward_graph_is_checked_too(captured):
    with pytest.raises(ProgramRefused, match="forward graph"):
        check(replace(captured.program, forward=captured.program.gradient))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_and_nothing_else_happens(captured, data):
    with pytest.raises(ProgramRefused):
        check(replace(captured.program, gradient=data))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_programs_pass_or_are_refused(captured, data):
    graph = bytearray(captured.program.gradient)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(graph) - 1))
        if data.draw(st.booleans()):
            graph[at] = data.draw(st.integers(0, 255))
        else:
            del graph[at : at + data.draw(st.integers(1, 20))]
    reason = refusal(replace(captured.program, gradient=bytes(graph)))
    assert reason.isprintable()
    assert len(reason) < 600


def test_it_tells_what_a_batch_costs(captured):
    one, many = check(captured.program), check(captured.program, 64)
    assert many.gradient.samples == 64
    assert many.gradient.work > many.forward.work > one.forward.work > 0
    assert many.gradient.peak_bytes > one.gradient.peak_bytes > 0


def test_a_batch_beyond_the_limits_is_refused(captured):
    found = check(captured.program, 64)
    check(captured.program, 64, Limits(work=found.gradient.work))
    with pytest.raises(ProgramRefused, match="the gradient graph would take"):
        check(captured.program, 64, Limits(work=found.gradient.work - 1))
    for samples in (0, -1, MAX_BATCH + 1):
        with pytest.raises(ProgramRefused, match=f"batches of {samples} samples"):
            check(captured.program, samples)


def test_both_graphs_together_have_a_largest_size(captured, monkeypatch):
    graphs = captured.program.gradient, captured.program.forward
    nodes = [onnx.ModelProto.FromString(data).graph.node for data in graphs]
    monkeypatch.setattr(checker, "MAX_NODES", sum(map(len, nodes)))
    check(captured.program)
    monkeypatch.setattr(checker, "MAX_NODES", sum(map(len, nodes)) - 1)
    with pytest.raises(ProgramRefused, match=r"the program has .* nodes, more than"):
        check(captured.program)


def test_a_tensor_has_only_so_many_readers(captured, monkeypatch):
    nodes = onnx.ModelProto.FromString(captured.program.gradient).graph.node
    most = max(Counter(name for node in nodes for name in node.input if name).values())
    monkeypatch.setattr(checker, "MAX_READERS", most)
    check(captured.program)
    monkeypatch.setattr(checker, "MAX_READERS", most - 1)
    with pytest.raises(ProgramRefused, match=f"is read by {most} nodes"):
        check(captured.program)
