"""Small graphs and single calls that the tests of shapes and work build by hand."""

from __future__ import annotations

from typing import Any

from crowdgrad.program.graph import Graph, Node, Port
from tests.program.random_calls import Feed, Use, constant

LARGEST = (1 << 63) - 1
"""What 64 bits hold."""
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
