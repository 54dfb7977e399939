"""An ONNX graph as the passes see it: who makes a value, who reads it, and its sizes where known.

A pass never edits. It says which nodes give way to which others and which values are another's
equal, and gets a new net. Names of new values grow from the name of the value they help to make,
so the same graph always gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

Sizes = tuple[int | str, ...]
"""A size is a number or the name of a free size; two of one name are equal."""
Constants = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Net:
    nodes: tuple[NodeProto, ...]
    constants: Constants
    sizes: Mapping[str, Sizes]
    elements: Mapping[str, int]
    """Element types, as ONNX numbers them; of values that a pass made, none."""
    outputs: frozenset[str]

    @cached_property
    def makers(self) -> dict[str, NodeProto]:
        return {name: node for node in self.nodes for name in node.output}

    @cached_property
    def readers(self) -> dict[str, list[NodeProto]]:
        """Who reads a value; a node that reads it twice is there twice."""
        readers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        return readers

    def maker(self, name: str, *ops: str) -> NodeProto | None:
        """The node that makes the value, if it is one of these operators."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type in ops else None

    def reader(self, name: str) -> NodeProto | None:
        """The only node that reads the value, if it is not an output as well."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def is_read(self, name: str) -> bool:
        return name in self.outputs or bool(self.readers.get(name))

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A constant's integers."""
        value = self.constants.get(name)
        if value is None or value.dtype != np.int64:
            return None
        return tuple(int(number) for number in value.reshape(-1))


@dataclass(slots=True)
class Edits:
    """What a pass wants changed."""

    instead: dict[str, list[NodeProto]] = field(default_factory=dict)
    """By the first output of a node: what stands in its place."""
    equal: dict[str, str] = field(default_factory=dict)
    """A value, and the one to read instead."""
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    sizes: dict[str, Sizes] = field(default_factory=dict)

    def integers(self, name: str, values: Iterable[int]) -> str:
        self.constants[name] = np.array(tuple(values), np.int64)
        return name

    def apply(self, net: Net) -> Net:
        nodes: list[NodeProto] = []
        for node in net.nodes:
            kept = self.instead.get(node.output[0], [node])
            nodes += [self._reading(one) for one in kept]
        return replace(
            net,
            nodes=tuple(nodes),
            constants={**net.constants, **self.constants},
            sizes={**net.sizes, **self.sizes},
        )

    def _reading(self, node: NodeProto) -> NodeProto:
        names = [self._final(name) for name in node.input]
        if names == list(node.input):
            return node
        made = NodeProto()
        made.CopyFrom(node)
        del made.input[:]
        made.input.extend(names)
        return made

    def _final(self, name: str) -> str:
        while name in self.equal:
            name = self.equal[name]
        return name


def read(graph: onnx.GraphProto) -> Net:
    ports = (*graph.input, *graph.value_info, *graph.output)
    sizes = {port.name: known for port in ports if (known := _sizes(port)) is not None}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    sizes |= {name: value.shape for name, value in constants.items()}
    elements = {port.name: port.type.tensor_type.elem_type for port in ports}
    elements |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    return Net(
        nodes=tuple(graph.node),
        constants=constants,
        sizes=sizes,
        elements=elements,
        outputs=frozenset(port.name for port in graph.output),
    )


def write(net: Net, like: onnx.GraphProto) -> onnx.GraphProto:
    """The net with the ports of the graph it was read from."""
    used = {name for node in net.nodes for name in node.input} | net.outputs
    tensors = [
        numpy_helper.from_array(value, name)
        for name, value in net.constants.items()
        if name in used
    ]
    return helper.make_graph(net.nodes, like.name, like.input, like.output, tensors)


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


def node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, list(inputs), [output], **attributes)


def _sizes(port: onnx.ValueInfoProto) -> Sizes | None:
    kind = port.type.tensor_type
    if not kind.HasField("shape"):
        return None
    sizes = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param for d in kind.shape.dim)
    return None if "" in sizes else sizes
