"""An ONNX file as frozen types, read with `wire`: only the parts a program of ours may have.

Whatever is not in these tables (functions, subgraphs, external data, sparse or string tensors,
other types than tensors, training info, metadata) has no field here and is refused by the reader.
Nodes are most of a file, and `nodes` reads those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.nodes import (
    ELEMENTS,
    MAX_CONSTANT_BYTES,
    Attribute,
    Constant,
    Node,
    constant,
    read_nodes,
)
from crowdgrad.program.sizes import MAX_SIZE
from crowdgrad.program.wire import MAX_NAME_BYTES, Known, Message, read

__all__ = ["ELEMENTS", "MAX_PORTS", "Attribute", "Constant", "Graph", "Node", "Port", "parse"]

MAX_FILE_BYTES: Final = 4 << 20
MAX_CONSTANTS: Final = 2048
"""A ResNet-18 has 69. One takes 5 µs."""
MAX_PORTS: Final = 2048
"""Inputs, or outputs: a ResNet-18 has 124, 25 million parameters of GPT 86. One takes 3 to 9 µs."""

_MODEL: Final = {
    1: Known("ir_version", "int"), 2: Known("producer", "text", 64),
    7: Known("graph", "message"), 8: Known("opsets", "messages", 1),
}  # fmt: skip
_OPSET: Final = {1: Known("domain", "text"), 2: Known("version", "int")}
_REST: Final = {
    2: Known("name", "text", 64), 5: Known("constants", "messages", MAX_CONSTANTS),
    11: Known("inputs", "messages", MAX_PORTS), 12: Known("outputs", "messages", MAX_PORTS),
}  # fmt: skip
"""A graph without its nodes, which come first."""
_VALUE: Final = {1: Known("name", "text", MAX_NAME_BYTES), 2: Known("type", "message")}
_TYPE: Final = {1: Known("tensor", "message")}
_TENSOR_TYPE: Final = {1: Known("element", "int"), 2: Known("shape", "message")}
_SHAPE: Final = {1: Known("dims", "messages", 8)}
_DIM: Final = {1: Known("value", "int"), 2: Known("symbol", "text", 64)}

Sizes = tuple[int | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input or output of the graph; a size is a number or the name of a free size."""

    name: str
    element: int
    dims: Sizes


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
    if len(data) > MAX_FILE_BYTES:
        raise ProgramRefused(f"{what} has {len(data)} bytes, more than {MAX_FILE_BYTES}.")
    model = read(data, what, _MODEL)
    opsets = [read(raw, f"{what}'s opset", _OPSET) for raw in _parts(model, "opsets")]
    if len(opsets) != 1 or opsets[0].get("domain", [""]) != [""]:
        raise ProgramRefused(f"{what} must use the standard operators only, in one version.")
    graphs = _parts(model, "graph")
    if not graphs:
        raise ProgramRefused(f"{what} holds no graph.")
    nodes, end = read_nodes(graphs[0], what)
    rest = read(graphs[0][end:], what, _REST)
    types: dict[bytes, tuple[int, Sizes]] = {}
    return Graph(
        ir_version=_int(model, "ir_version"),
        opset=_int(opsets[0], "version"),
        nodes=nodes,
        constants=_constants(_parts(rest, "constants"), what),
        inputs=tuple(_port(raw, types, what) for raw in _parts(rest, "inputs")),
        outputs=tuple(_port(raw, types, what) for raw in _parts(rest, "outputs")),
    )


def _constants(parts: Iterable[bytes], what: str) -> tuple[Constant, ...]:
    found, total = [], 0
    for raw in parts:
        found.append(constant(raw, what))
        total += len(found[-1].data)
        if total > MAX_CONSTANT_BYTES:
            raise ProgramRefused(
                f"{what} holds more than {MAX_CONSTANT_BYTES} bytes of constants.",
                advice="Tables a model needs belong into its parameters or its data.",
            )
    return tuple(found)


def _port(raw: bytes, types: dict[bytes, tuple[int, Sizes]], what: str) -> Port:
    """An input or output; `types` are those read so far, because layers repeat."""
    message = read(raw, f"an input or output of {what}", _VALUE)
    name = str(message.get("name", [""])[0])
    kind = b"".join(_parts(message, "type"))
    known = types.get(kind)
    if known is None:
        known = types[kind] = _type(kind, f"{name[:64]!r} of {what}")
    return Port(name=name, element=known[0], dims=known[1])


def _type(raw: bytes, where: str) -> tuple[int, Sizes]:
    parts = [
        read(tensor, where, _TENSOR_TYPE) for tensor in _parts(read(raw, where, _TYPE), "tensor")
    ]
    if not parts or "shape" not in parts[0]:
        raise ProgramRefused(f"{where} is not a tensor of known shape.")
    shape = read(_parts(parts[0], "shape")[0], where, _SHAPE)
    return _int(parts[0], "element"), tuple(_dim(part, where) for part in _parts(shape, "dims"))


def _dim(raw: bytes, where: str) -> int | str:
    message = read(raw, where, _DIM)
    if len(message) != 1:
        raise ProgramRefused(f"{where} has a size that is neither a number nor a name.")
    size = cast("int | str", next(iter(message.values()))[0])
    if isinstance(size, int) and not 0 <= size < MAX_SIZE:
        raise ProgramRefused(f"{where} has the size {size}.")
    return size


def _int(message: Message, name: str) -> int:
    return cast(int, message.get(name, [0])[0])


def _parts(message: Message, name: str) -> list[bytes]:
    return cast("list[bytes]", message.get(name, []))
