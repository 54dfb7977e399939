"""The nodes of an ONNX graph, read in one loop: a file is mostly these.

A node is its inputs, its outputs, then its operator with its attributes, in this order as in all of
a file (`wire`). The last part is called the node's *kind* here. A long graph is an unrolled loop or
a deep stack of alike layers: it repeats a few kinds thousands of times, so each is read once, and
all its nodes share the attributes. Names are read once as well. What is left is a few hundred
nanoseconds for each name, where a general reader of messages takes ten times as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from crowdgrad.domain.program import ITEM_BYTES, DType
from crowdgrad.errors import ProgramRefused
from crowdgrad.program.sizes import MAX_SIZE
from crowdgrad.program.wire import MAX_NAME_BYTES, Known, Message, read, text, varint

MAX_NODES: Final = 16_384
"""In both graphs of a program. On one idle core of a small server a node takes 3 µs to read, 0.4 to
compare with its rule and 2 to find its shapes: whatever is malformed is refused within 0.1 s. To
add up memory and work takes 8 more. The largest programs that people need are unrolled loops: an
LSTM of 200 steps has 13 000 nodes, a GPT of 25 million parameters 1 700, a ResNet-18 1 800."""
MAX_EDGES: Final = 4 * MAX_NODES
"""Inputs and outputs of nodes in a graph: real ones have 3.2 a node, each takes 0.3 µs."""
MAX_KINDS_BYTES: Final = 32 << 10
"""Of different operators with their attributes, in a graph: 3 KB in a ResNet; 0.25 µs a byte."""
MAX_CONSTANT_BYTES: Final = 256 << 10
"""In a graph; our own examples have up to 9 KB."""

_NODE: Final = 1 << 3 | 2
_INPUT: Final = 1 << 3 | 2
_OUTPUT: Final = 2 << 3 | 2
_SHORT: Final = 0x80
"""Lengths below are one byte."""
_KIND: Final = {
    4: Known("op", "text", 64), 5: Known("attributes", "messages", 8),
    7: Known("domain", "text", 64),
}  # fmt: skip
_ATTRIBUTE: Final = {
    1: Known("name", "text", 64), 2: Known("f", "float"), 3: Known("i", "int"),
    4: Known("s", "bytes", 64), 5: Known("t", "message"), 8: Known("ints", "ints", 16),
    20: Known("type", "int"),
}  # fmt: skip
_FIELD_OF_TYPE: Final = {1: "f", 2: "i", 3: "s", 4: "t", 7: "ints"}
_TENSOR: Final = {
    1: Known("dims", "ints", 8), 2: Known("type", "int"), 8: Known("name", "text", MAX_NAME_BYTES),
    9: Known("data", "bytes", MAX_CONSTANT_BYTES),
}  # fmt: skip


ELEMENTS: Final[dict[int, DType]] = {
    1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
    11: "float64",
}  # fmt: skip
"""The element types there are, as ONNX numbers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A tensor inside the file: `data` is little-endian, in C order."""

    name: str
    element: int
    dims: tuple[int, ...]
    data: bytes


Attribute = int | float | bytes | tuple[int, ...] | Constant


class Node(NamedTuple):
    """One operation. A tuple because there are thousands, and a dataclass takes a microsecond."""

    op: str
    inputs: tuple[str, ...]
    """A name that is '' stands for an input that is left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    """Shared by all nodes of one kind."""


def read_nodes(data: bytes, what: str) -> tuple[tuple[Node, ...], int]:
    """The nodes that a graph begins with, and where in its bytes they end."""
    names, kinds, nodes = _Names(what), _Kinds(what), []
    at, stop, edges = 0, len(data), 0
    while at < stop and data[at] == _NODE:
        size, at = varint(data, at + 1, stop, what)
        end = at + size
        if end > stop:
            raise ProgramRefused(f"{what} is cut short.")
        inputs, at = _read_names(data, at, end, _INPUT, names)
        outputs, at = _read_names(data, at, end, _OUTPUT, names)
        op, attributes = kinds[data[at:end]]
        nodes.append(Node(op, inputs, outputs, attributes))
        at = end
        edges += len(inputs) + len(outputs)
        if len(nodes) > MAX_NODES or edges > MAX_EDGES:
            raise _too_many(what)
    return tuple(nodes), at


def _read_names(
    data: bytes, at: int, end: int, tag: int, names: _Names
) -> tuple[tuple[str, ...], int]:
    """The names from `at` on that have this tag, and where they end: at most at `end`."""
    found = []
    while at < end and data[at] == tag:
        start = at + 2
        if start > end or (size := data[at + 1]) >= _SHORT:
            size, start = varint(data, at + 1, end, names.what)
        at = start + size
        found.append(names[data[start:at]])
        if len(found) > MAX_EDGES:
            raise _too_many(names.what)
    if at > end:
        raise ProgramRefused(f"a node of {names.what} is cut short.")
    return tuple(found), at


class _Names(dict[bytes, str]):
    """Every name is decoded once."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __missing__(self, raw: bytes) -> str:
        name = self[raw] = text(raw, MAX_NAME_BYTES, f"a node of {self.what}", "name")
        return name


class _Kinds(dict[bytes, tuple[str, Mapping[str, Attribute]]]):
    """Every kind of node is read once: its operator and attributes."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._left = MAX_KINDS_BYTES

    def __missing__(self, raw: bytes) -> tuple[str, Mapping[str, Attribute]]:
        self._left -= len(raw)
        if self._left < 0:
            raise ProgramRefused(
                f"{self._what} has too many different operators and attributes: they take more "
                f"than {MAX_KINDS_BYTES} bytes."
            )
        kind = self[raw] = _kind(raw, self._what)
        return kind


def _too_many(what: str) -> ProgramRefused:
    return ProgramRefused(
        f"{what} has more than {MAX_NODES} nodes or {MAX_EDGES} inputs and outputs of nodes.",
        advice="Long unrolled loops in the model make large graphs: shorten them.",
    )


def _kind(raw: bytes, what: str) -> tuple[str, Mapping[str, Attribute]]:
    message = read(raw, f"a node of {what}", _KIND)
    op, domain = _text(message, "op"), _text(message, "domain")
    if domain:
        raise ProgramRefused(
            f"{what} uses the operator '{domain}::{op}', which is not one of the standard's."
        )
    attributes: dict[str, Attribute] = {}
    for part in message.get("attributes", ()):
        name, value = _attribute(cast(bytes, part), f"an attribute of {op!r} in {what}")
        if name in attributes:
            raise ProgramRefused(f"{what}: attribute {name!r} of {op} occurs twice.")
        attributes[name] = value
    return op, attributes


def _attribute(raw: bytes, what: str) -> tuple[str, Attribute]:
    """Name and value; what the attribute says it is and what it holds must be the same."""
    message = read(raw, what, _ATTRIBUTE)
    name, kind = _text(message, "name"), cast(int, message.pop("type", [0])[0])
    message.pop("name", None)
    field = _FIELD_OF_TYPE.get(kind)
    if field == "ints":  # none of them is a list too: the permutation of a single number
        message.setdefault(field, [])
    if field is None or list(message) != [field]:
        held = " and ".join(message) or "nothing"
        raise ProgramRefused(f"{what}: {name!r} says it is of type {kind}, but holds {held}.")
    values = message[field]
    if field == "t":
        return name, constant(cast(bytes, values[0]), what)
    if field == "ints":
        return name, cast("tuple[int, ...]", tuple(values))
    return name, cast("int | float | bytes", values[0])


def constant(raw: bytes, what: str) -> Constant:
    """A tensor of the file, with as many bytes as its shape needs."""
    message = read(raw, f"a constant of {what}", _TENSOR)
    element = cast(int, message.get("type", [0])[0])
    dims = cast("tuple[int, ...]", tuple(message.get("dims", ())))
    data = cast(bytes, message.get("data", [b""])[0])
    if element not in ELEMENTS:
        raise ProgramRefused(f"a constant of {what} has element type {element}.")
    if not all(0 <= size < MAX_SIZE for size in dims):
        raise ProgramRefused(f"a constant of {what} has shape {dims}.")
    if len(data) != math.prod(dims) * ITEM_BYTES[ELEMENTS[element]]:
        raise ProgramRefused(f"a constant of {what} of shape {dims} holds {len(data)} bytes.")
    if ELEMENTS[element] == "bool" and data.strip(b"\0\1"):
        raise ProgramRefused(f"a constant of {what} has a truth value that is neither 0 nor 1.")
    return Constant(name=_text(message, "name"), element=element, dims=dims, data=data)


def _text(message: Message, name: str) -> str:
    return cast(str, message.get(name, [""])[0])
