"""An ONNX file as frozen types, read with `wire`: only the parts a program of ours may have.

Whatever is not in these tables (functions, subgraphs, external data, sparse or string tensors,
other types than tensors, training info, metadata) has no field here and is refused by the reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.wire import Known, Message, read

MAX_NODES: Final = 50_000
MAX_TENSORS: Final = 20_000

_MODEL: Final = {
    1: Known("ir_version", "int"), 2: Known("producer", "text"), 7: Known("graph", "message"),
    8: Known("opsets", "messages", 1),
}  # fmt: skip
_OPSET: Final = {1: Known("domain", "text"), 2: Known("version", "int")}
_GRAPH: Final = {
    1: Known("nodes", "messages", MAX_NODES), 2: Known("name", "text"),
    5: Known("constants", "messages", MAX_TENSORS), 11: Known("inputs", "messages", MAX_TENSORS),
    12: Known("outputs", "messages", MAX_TENSORS),
}  # fmt: skip
_NODE: Final = {
    1: Known("inputs", "texts", 1024), 2: Known("outputs", "texts", 1024), 3: Known("name", "text"),
    4: Known("op", "text", 64), 5: Known("attributes", "messages", 32), 7: Known("domain", "text"),
}  # fmt: skip
_ATTRIBUTE: Final = {
    1: Known("name", "text", 64), 2: Known("f", "float"), 3: Known("i", "int"),
    4: Known("s", "bytes"), 5: Known("t", "message"), 7: Known("floats", "floats", 4096),
    8: Known("ints", "ints", 4096), 20: Known("type", "int"),
}  # fmt: skip
_TENSOR: Final = {
    1: Known("dims", "ints", 8), 2: Known("type", "int"), 8: Known("name", "text", 512),
    9: Known("data", "bytes"),
}  # fmt: skip
_VALUE: Final = {1: Known("name", "text", 512), 2: Known("type", "message")}
_TYPE: Final = {1: Known("tensor", "message")}
_TENSOR_TYPE: Final = {1: Known("element", "int"), 2: Known("shape", "message")}
_SHAPE: Final = {1: Known("dims", "messages", 8)}
_DIM: Final = {1: Known("value", "int"), 2: Known("symbol", "text", 64)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A tensor inside the file; `bytes` is the length of its raw data."""

    name: str
    element: int
    dims: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, int], ...]
    """Name and, where it is a single integer, value (otherwise 0)."""
    constants: tuple[Constant, ...]
    """Tensors among the attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input or output of the graph; a size is a number or the name of a free size."""

    name: str
    element: int
    dims: tuple[int | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    ir_version: int
    opset: int
    nodes: tuple[Node, ...]
    constants: tuple[Constant, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def parse(data: bytes, what: str) -> Graph:
    """The graph of an ONNX file; ProgramRefused where it holds anything not described here."""
    model = read(data, what, _MODEL)
    opsets = [read(raw, f"{what}'s opset", _OPSET) for raw in _bytes(model, "opsets")]
    if len(opsets) != 1 or _text(opsets[0], "domain") != "":
        raise ProgramRefused(f"{what} must use the standard operators only, in one version.")
    graphs = _bytes(model, "graph")
    if not graphs:
        raise ProgramRefused(f"{what} holds no graph.")
    graph = read(graphs[0], what, _GRAPH)
    return Graph(
        ir_version=_int(model, "ir_version"),
        opset=_int(opsets[0], "version"),
        nodes=tuple(_node(raw, what) for raw in _bytes(graph, "nodes")),
        constants=tuple(_constant(raw, what) for raw in _bytes(graph, "constants")),
        inputs=tuple(_port(raw, what) for raw in _bytes(graph, "inputs")),
        outputs=tuple(_port(raw, what) for raw in _bytes(graph, "outputs")),
    )


def _node(raw: bytes, what: str) -> Node:
    message = read(raw, f"a node of {what}", _NODE)
    op = _text(message, "op")
    attributes = [
        read(part, f"an attribute of {op[:32]!r}", _ATTRIBUTE)
        for part in _bytes(message, "attributes")
    ]
    tensors = [part for attribute in attributes for part in _bytes(attribute, "t")]
    return Node(
        op=op,
        domain=_text(message, "domain"),
        inputs=_texts(message, "inputs"),
        outputs=_texts(message, "outputs"),
        attributes=tuple((_text(part, "name"), _int(part, "i")) for part in attributes),
        constants=tuple(_constant(part, what) for part in tensors),
    )


def _constant(raw: bytes, what: str) -> Constant:
    message = read(raw, f"a constant of {what}", _TENSOR)
    return Constant(
        name=_text(message, "name"),
        element=_int(message, "type"),
        dims=tuple(cast(Iterable[int], message.get("dims", ()))),
        bytes=sum(len(part) for part in _bytes(message, "data")),
    )


def _port(raw: bytes, what: str) -> Port:
    message = read(raw, f"an input or output of {what}", _VALUE)
    name = _text(message, "name")
    where = f"{name[:64]!r} of {what}"
    parts = [
        read(tensor, where, _TENSOR_TYPE)
        for kind in _bytes(message, "type")
        for tensor in _bytes(read(kind, where, _TYPE), "tensor")
    ]
    if not parts or "shape" not in parts[0]:
        raise ProgramRefused(f"{where} is not a tensor of known shape.")
    shape = read(_bytes(parts[0], "shape")[0], where, _SHAPE)
    dims = tuple(_dim(part, where) for part in _bytes(shape, "dims"))
    return Port(name=name, element=_int(parts[0], "element"), dims=dims)


def _dim(raw: bytes, where: str) -> int | str:
    message = read(raw, where, _DIM)
    if len(message) != 1:
        raise ProgramRefused(f"{where} has a size that is neither a number nor a name.")
    return _text(message, "symbol") if "symbol" in message else _int(message, "value")


def _int(message: Message, name: str) -> int:
    return cast(int, message.get(name, [0])[0])


def _text(message: Message, name: str) -> str:
    return cast(str, message.get(name, [""])[0])


def _texts(message: Message, name: str) -> tuple[str, ...]:
    return tuple(cast("list[str]", message.get(name, [])))


def _bytes(message: Message, name: str) -> list[bytes]:
    return cast("list[bytes]", message.get(name, []))
