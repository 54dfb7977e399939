"""Graphs that are no graphs, and graphs that are not those their spec promises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crowdgrad.domain.program import MetricSpec, NoiseSpec, ProgramSpec, TensorSpec
from tests.program.hostile.draft import FORWARD, GRADIENT, SPEC, Case, program, spoilt, with_nodes
from tests.program.hostile.proto import FLOAT, block, node, number, port

BEFORE = "before it is made|no such value"
PROMISE = "must be what the spec promises|spec"
EXTRA = TensorSpec(name="more", dtype="float32", shape=(2,))
NOISE = NoiseSpec(name="noise", kind="normal", shape=(), per_sample=True)
SPECS: dict[str, tuple[ProgramSpec, str]] = {
    "another_parameter": (replace(SPEC, parameters=(*SPEC.parameters, EXTRA)), PROMISE),
    "a_parameter_less": (replace(SPEC, parameters=SPEC.parameters[:1]), PROMISE),
    "parameters_turned": (replace(SPEC, parameters=SPEC.parameters[::-1]), PROMISE),
    "another_input": (replace(SPEC, inputs=(*SPEC.inputs, EXTRA)), PROMISE),
    "an_input_less": (replace(SPEC, inputs=SPEC.inputs[:1]), PROMISE),
    "a_buffer": (replace(SPEC, buffers=(EXTRA,)), PROMISE),
    "a_fixed_buffer": (replace(SPEC, fixed=(EXTRA,)), PROMISE),
    "noise": (replace(SPEC, noise=(NOISE,)), PROMISE),
    "forward_noise": (replace(SPEC, forward_noise=(NOISE,)), PROMISE),
    "a_metric": (replace(SPEC, metrics=(MetricSpec(name="accuracy"),)), PROMISE),
    "two_outputs": (replace(SPEC, outputs=2), PROMISE),
    "no_output": (replace(SPEC, outputs=0), PROMISE),
    "minus_one_outputs": (replace(SPEC, outputs=-1), "-1 outputs|outputs"),
    "a_million_outputs": (replace(SPEC, outputs=1_000_000), "1000000 outputs|outputs"),
    "a_fixed_batch": (replace(SPEC, fixed_batch=8), "x:x"),
    "opset_17": (replace(SPEC, opset=17), "opset 17"),
    "opset_21": (replace(SPEC, opset=21), "its spec says 21"),
    "opset_9999": (replace(SPEC, opset=9999), "opset 9999"),
    "opset_minus_one": (replace(SPEC, opset=-1), "opset -1"),
    "another_type": (
        replace(SPEC, inputs=(replace(SPEC.inputs[0], dtype="uint8"), SPEC.inputs[1])), "x:x"
    ),
    "another_shape": (
        replace(SPEC, inputs=(replace(SPEC.inputs[0], shape=(5,)), SPEC.inputs[1])), "x:x"
    ),
}  # fmt: skip


def cases() -> Iterator[Case]:
    yield from _cycles()
    yield from _ports()
    for slug, (spec, reason) in SPECS.items():
        yield Case(
            name=f"topology/spec_with_{slug}",
            says="a spec that describes other graphs",
            reason=reason,
            make=lambda spec=spec: program(spec=spec),
        )
    yield Case(
        name="topology/graphs_exchanged",
        says="the forward graph in place of the gradients' and the other way round",
        reason=PROMISE,
        make=lambda: program(FORWARD, GRADIENT),
    )


def _cycles() -> Iterator[Case]:
    table: dict[str, tuple[bytes, ...]] = {
        "reads_itself": (node("Neg", "out", "out"),),
        "two_in_a_circle": (node("Neg", "b", "a"), node("Neg", "a", "b")),
        "a_long_circle": tuple(
            node("Neg", f"c{(index - 1) % 1000}", f"c{index}") for index in range(1000)
        ),
        "reads_the_next": (node("Neg", "later", "out"), node("Neg", "loss", "later")),
        "reads_nothing_there_is": (node("Neg", "nowhere", "out"),),
        "reads_an_operator": (node("Neg", "Add", "out"),),
        "reads_its_second_output": (node("TopK", "p:b indices", "values indices"),),
    }
    for slug, nodes in table.items():
        yield Case(
            name=f"topology/{slug}",
            says="a node that reads what is not there yet",
            reason=BEFORE,
            make=lambda nodes=nodes: with_nodes(*nodes),
        )
    yield Case(
        name="topology/turned_round",
        says="every node in its place, from the last to the first",
        reason=BEFORE,
        make=lambda: spoilt(nodes=GRADIENT.nodes[::-1]),
    )
    for index in range(len(GRADIENT.nodes)):
        yield Case(
            name=f"topology/without_node_{index}",
            says=f"node {index} is missing",
            reason=f"{BEFORE}|is never made",
            make=lambda index=index: spoilt(
                nodes=GRADIENT.nodes[:index] + GRADIENT.nodes[index + 1 :]
            ),
        )
    for index in range(len(GRADIENT.constants)):
        yield Case(
            name=f"topology/without_constant_{index}",
            says=f"constant {index} is missing",
            reason=BEFORE,
            make=lambda index=index: spoilt(
                constants=GRADIENT.constants[:index] + GRADIENT.constants[index + 1 :]
            ),
        )
    yield Case(
        name="topology/nothing_at_all",
        says="ports and no node",
        reason="is never made",
        make=lambda: spoilt(nodes=()),
    )


def _ports() -> Iterator[Case]:
    inputs, outputs = GRADIENT.inputs, GRADIENT.outputs
    renamed = port("p:v", FLOAT, (4, 3))
    table: dict[str, dict[str, object]] = {
        "no_inputs": {"inputs": ()},
        "no_outputs": {"outputs": ()},
        "input_missing": {"inputs": inputs[:-1]},
        "input_twice": {"inputs": (*inputs, inputs[0])},
        "input_extra": {"inputs": (*inputs, renamed)},
        "input_renamed": {"inputs": (renamed, *inputs[1:])},
        "inputs_turned": {"inputs": inputs[::-1]},
        "input_without_a_name": {"inputs": (port("", FLOAT, (4, 3)), *inputs[1:])},
        "output_missing": {"outputs": outputs[:-1]},
        "output_twice": {"outputs": (*outputs, outputs[0])},
        "output_extra": {"outputs": (*outputs, port("slope", FLOAT, ("batch", 3)))},
        "outputs_turned": {"outputs": outputs[::-1]},
        "output_is_an_input": {"outputs": (outputs[0], port("p:w", FLOAT, (4, 3)), outputs[2])},
        "output_is_a_constant": {"outputs": (port("two", FLOAT, ()), *outputs[1:])},
        "loss_per_sample": {"outputs": (port("loss", FLOAT, ("batch",)), *outputs[1:])},
    }
    for slug, changes in table.items():
        yield Case(
            name=f"topology/{slug}",
            says="ports that the spec does not promise",
            reason=f"{PROMISE}|'loss'",
            make=lambda changes=changes: spoilt(**changes),
        )
    yield Case(
        name="topology/no_graph",
        says="a model without a graph",
        reason="holds no graph",
        make=lambda: program(GRADIENT.around()),
    )
    yield Case(
        name="topology/empty_graph",
        says="a graph of no bytes",
        reason=PROMISE,
        make=lambda: program(GRADIENT.around(block(7, b""))),
    )
    yield Case(
        name="topology/no_version",
        says="a model that does not say which ONNX it is",
        reason="format 0",
        make=lambda: spoilt(ir=0),
    )
    yield Case(
        name="topology/only_a_version",
        says="a model of nothing but a number",
        reason="standard operators",
        make=lambda: program(number(1, 10)),
    )
