"""Code in disguise: functions, subgraphs, control flow, training information, metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crowdgrad.domain.program import Program
from tests.program.hostile.draft import GRADIENT, Case, program, spoilt, with_nodes
from tests.program.hostile.proto import BOOL, block, blocks, node, number, port, tensor

INNER = blocks(1, [node("Identity", "loss", "inner")]) + block(2, "inner")
TRUE = tensor("yes", BOOL, (), b"\x01")


def graph_attribute(name: str, graph: bytes) -> bytes:
    return block(5, block(1, name) + block(6, graph) + number(20, 5))


def nested(op: str, name: str, depth: int) -> bytes:
    """Nodes inside the graphs of nodes, so many deep."""
    graph = INNER
    for _ in range(depth):
        graph = blocks(1, [node(op, "yes", "out", more=graph_attribute(name, graph))])
    return node(op, "yes", "out", more=graph_attribute(name, graph))


def function(name: str, domain: str = "local", **more: bytes) -> bytes:
    """A FunctionProto."""
    body = blocks(7, [node(more.get("calls", b"Identity").decode(), "a", "b")])
    opset = block(9, block(1, "") + number(2, 20))
    return block(1, name) + block(4, "a") + block(5, "b") + body + opset + block(10, domain)


def cases() -> Iterator[Case]:
    yield from _control_flow()
    yield from _functions()
    yield from _besides()


def _control_flow() -> Iterator[Case]:
    flows = {
        "if": ("If", "then_branch"),
        "loop": ("Loop", "body"),
        "scan": ("Scan", "body"),
        "sequence_map": ("SequenceMap", "body"),
        "in_an_allowed_op": ("Identity", "body"),
        "in_softmax": ("Softmax", "axis"),
        "in_constant": ("Constant", "value"),
    }
    for name, (op, attribute) in flows.items():
        for depth in (0, 1, 1000) if op in ("If", "Loop") else (0,):
            yield Case(
                name=f"smuggled/{name}" + (f"_{depth}_deep" if depth else ""),
                says=f"{op} with a graph inside, {depth} levels deep",
                reason=f"an attribute of '{op}' .*has field 6\\b|attributes: they take more than",
                make=lambda op=op, attribute=attribute, depth=depth: with_nodes(
                    nested(op, attribute, depth), constants=[TRUE]
                ),
            )
    for name, op in (("if", "If"), ("loop", "Loop"), ("scan", "Scan")):
        yield Case(
            name=f"smuggled/{name}_without_a_graph",
            says=f"{op} on its own",
            reason=f"'{op}', which is not on the list",
            make=lambda op=op: with_nodes(node(op, "yes", "out"), constants=[TRUE]),
        )
    yield Case(
        name="smuggled/list_of_graphs",
        says="an attribute with a list of graphs",
        reason="has field 11",
        make=lambda: with_nodes(
            node("Identity", "loss", "out", more=block(5, block(1, "g") + block(11, INNER)))
        ),
    )
    yield Case(
        name="smuggled/reference_to_a_parameter",
        says="an attribute that refers to one of the function around it",
        reason="has field 21",
        make=lambda: with_nodes(
            node("Softmax", "loss", "out", more=block(5, block(1, "axis") + block(21, "a")))
        ),
    )


def _functions() -> Iterator[Case]:
    def made(*functions: bytes, call: bytes = b"") -> Program:
        nodes = (*GRADIENT.nodes, call) if call else GRADIENT.nodes
        return program(replace(GRADIENT, nodes=nodes, model_more=blocks(25, functions)))

    table = {
        "unused": (function("F"),),
        "shadows_add": (function("Add", ""),),
        "shadows_in_ai_onnx": (function("Add", "ai.onnx"),),
        "calls_itself": (function("F", calls=b"F"),),
        "a_hundred": tuple(function(f"F{index}") for index in range(100)),
        "empty": (b"",),
        "nameless": (function("", ""),),
        "doubles_each_time": tuple(
            function(f"F{index}", calls=f"F{index - 1}".encode()) for index in range(64)
        ),
    }
    for name, functions in table.items():
        yield Case(
            name=f"smuggled/function_{name}",
            says="a function of the host's own",
            reason="has field 25",
            make=lambda functions=functions: made(*functions),
        )
    call = node("F", "loss", "out", more=block(7, "local"))
    yield Case(
        name="smuggled/function_called",
        says="a function of the host's own, and a node that calls it",
        reason="has field 25",
        make=lambda: made(function("F"), call=call),
    )
    yield Case(
        name="smuggled/call_of_a_missing_function",
        says="a node that calls a function nobody wrote",
        reason="'local::F'",
        make=lambda: with_nodes(call),
    )
    yield Case(
        name="smuggled/overload",
        says="a node that names an overload",
        reason="has field 8",
        make=lambda: with_nodes(node("Identity", "loss", "out", more=block(8, "fast"))),
    )


def _besides() -> Iterator[Case]:
    entry = block(1, "key") + block(2, "value")
    model = {
        "training_info": (block(20, block(1, GRADIENT.graph)), 20),
        "empty_training_info": (block(20, b""), 20),
        "metadata": (block(14, entry), 14),
        "producer_version": (block(3, "1"), 3),
        "domain": (block(4, "ai.onnx"), 4),
        "model_version": (number(5, 1), 5),
        "doc_string": (block(6, "rm -rf /"), 6),
        "device_configuration": (block(26, block(1, "gpu")), 26),
    }
    for name, (more, field) in model.items():
        yield Case(
            name=f"smuggled/model_{name}",
            says=f"a model with {name.replace('_', ' ')}",
            reason=f"the gradient graph has field {field}\\b",
            make=lambda more=more: spoilt(model_more=more),
        )
    graph = {
        "doc_string": (block(10, "see /home/me"), 10),
        "value_info": (block(13, port("product", 1, ("batch", 3))), 13),
        "lying_value_info": (block(13, port("product", 1, (1 << 60,))), 13),
        "quantization": (block(14, block(1, "product")), 14),
        "sparse_initializer": (block(15, block(1, tensor("s", 1, (1,), bytes(4)))), 15),
        "metadata": (block(16, entry), 16),
    }
    for name, (more, field) in graph.items():
        yield Case(
            name=f"smuggled/graph_{name}",
            says=f"a graph with {name.replace('_', ' ')}",
            reason=f"the gradient graph has field {field}\\b",
            make=lambda more=more: spoilt(graph_more=more),
        )
    node_fields = {"doc_string": 6, "metadata": 9, "device_configurations": 10}
    for name, field in node_fields.items():
        yield Case(
            name=f"smuggled/node_{name}",
            says=f"a node with {name.replace('_', ' ')}",
            reason=f"a node of .* has field {field}\\b",
            make=lambda field=field: with_nodes(
                node("Identity", "loss", "out", more=block(field, entry))
            ),
        )
    for name, field in (("doc_string", 13), ("type_proto", 14), ("type_protos", 15)):
        yield Case(
            name=f"smuggled/attribute_{name}",
            says=f"an attribute with {name.replace('_', ' ')}",
            reason=f"has field {field}\\b",
            make=lambda field=field: with_nodes(
                node("Softmax", "loss", "out", more=block(5, block(1, "axis") + block(field, b"")))
            ),
        )
