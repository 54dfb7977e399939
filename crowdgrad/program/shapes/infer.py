"""Shapes of everything in a graph, from the shapes of its inputs.

A long graph repeats itself (an unrolled loop, a stack of alike layers), so each kind of call is
worked out once: rules are pure, and a call is the same when its operator, its attributes (shared by
the reader) and the values it reads are the same objects. Values are kept once for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.graph import ELEMENTS, Constant, Graph, Node, Port
from crowdgrad.program.shapes.base import Call, Dims, Value
from crowdgrad.program.shapes.elements import TAKES
from crowdgrad.program.shapes.shaping import constant
from crowdgrad.program.shapes.table import RULES
from crowdgrad.program.sizes import BATCH, Poly, Size, batch_from, show

MAX_CALLS: Final = 4096
MAX_FOLLOWED: Final = 8192
"""Different calls in a graph, and numbers they compute about shapes: bounds on the checker's own
time. The largest of our examples has 304 and 92."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    values: dict[str, Value]
    """Every tensor of the graph by name."""


def infer(graph: Graph, smallest: int = 1) -> Shapes:
    """What every tensor is, for batches of at least `smallest` samples and up to MAX_BATCH.

    ProgramRefused for whatever cannot be told or does not fit.
    """
    batch = batch_from(smallest)
    one_of: dict[Value, Value] = {}
    values: dict[str, Value] = {}
    for port in graph.inputs:
        _add(values, port.name, one_of.setdefault(value := _port(port, batch), value))
    for tensor in graph.constants:
        _add(values, tensor.name, one_of.setdefault(value := _constant(tensor), value))
    _walk(graph.nodes, values, one_of)
    for port in graph.outputs:
        _check_output(values, port, batch)
    return Shapes(values=values)


def _walk(nodes: Iterable[Node], values: dict[str, Value], one_of: dict[Value, Value]) -> None:
    done: dict[tuple[object, ...], tuple[Value, ...]] = {}
    followed = 0
    for node in nodes:
        op, inputs, outputs, attributes = node
        try:
            read = [values[name] if name else None for name in inputs]
        except KeyError as missing:
            raise ProgramRefused(
                f"{op[:32]} reads {str(missing.args[0])[:64]!r} before it is made."
            ) from None
        key = (op, id(attributes), len(outputs), *map(id, read))
        made = done.get(key)
        if made is None:
            call = Call(op, attributes, tuple(read), len(outputs), outputs[0] if outputs else "")
            made = done[key] = tuple(_kept(one_of, value) for value in _apply(call))
            followed += sum(len(value.known or ()) for value in made)
            if len(done) > MAX_CALLS or followed > MAX_FOLLOWED:
                raise call.refusal("the graph has too many different shapes")
        for name, value in zip(outputs, made, strict=False):
            if name:
                _add(values, name, value)


def _kept(one_of: dict[Value, Value], value: Value) -> Value:
    """The one value that is equal to this; long contents are forgotten when they are passed on."""
    if value.short is None and value.known is not None:
        value = Value(value.element, value.dims)
    return one_of.setdefault(value, value)


def _apply(call: Call) -> tuple[Value, ...]:
    rule = RULES.get(call.op)
    if rule is None:
        raise ProgramRefused(f"the operator {call.op[:64]!r} is not on the list.")
    first = call.input(1 if call.op == "Where" else 0)
    if first.element not in TAKES[call.op]:
        raise call.refusal(f"it does not exist for {ELEMENTS[first.element]}")
    try:
        made = rule(call)
    except OverflowError:
        raise call.refusal("a size grows beyond all bounds") from None
    if call.outputs > len(made):
        raise call.refusal(f"it has {call.outputs} outputs")
    if call.op != "Shape" and any(0 in value.dims for value in made):
        # Optimisers take an Expand to 0 for one that does nothing: they would run other shapes
        # than those we have bounded. Models have no such tensors.
        raise call.refusal("a tensor without anything in it")
    return made


def _add(values: dict[str, Value], name: str, value: Value) -> None:
    if not name or name in values:
        raise ProgramRefused(f"{name[:64]!r} is made twice or has no name.")
    values[name] = value


def _port(port: Port, batch: Poly) -> Value:
    call = Call("The input", {}, (), 1, port.name)
    if port.element not in ELEMENTS:
        raise call.refusal(f"it has element type {port.element}")
    return call.make(port.element, _sizes(port, batch, call))


def _sizes(port: Port, batch: Poly, call: Call) -> Dims:
    dims: list[Size] = []
    for size in port.dims:
        if isinstance(size, str) and size != BATCH:
            raise call.refusal(f"only the batch may have a free size, not {size[:64]!r}")
        dims.append(batch if isinstance(size, str) else size)
    return tuple(dims)


def _constant(tensor: Constant) -> Value:
    return constant(Call("The constant", {}, (), 1, tensor.name), tensor)


def _check_output(values: dict[str, Value], port: Port, batch: Poly) -> None:
    """What is made must be what is promised: whoever runs the graph relies on it."""
    made = values.get(port.name)
    if made is None:
        raise ProgramRefused(f"the output {port.name[:64]!r} is never made.")
    promised = _sizes(port, batch, Call("The output", {}, (), 1, port.name))
    if made.element != port.element or made.dims != promised:
        names = [ELEMENTS.get(element, str(element)) for element in (made.element, port.element)]
        raise ProgramRefused(
            f"the output {port.name[:64]!r} is {names[0]} of shape {show(made.dims)}, "
            f"promised was {names[1]} of shape {show(promised)}."
        )
