"""Refuse a program before any runtime sees it.

A runtime written in C++ must not be the first to read a stranger's bytes. So our own reader goes
first and lets through only the kind of graph that our own capture emits: standard operators from a
list with the attributes they have there (`attributes`), no code, no files, no loops, inputs and
outputs exactly as the spec promises, sizes fixed except the batch. Then every size is worked out
(`shapes`), and with them how much memory and work a batch takes (`bounds`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Final

from crowdgrad.domain.program import NoiseSpec, Program, ProgramSpec, TensorSpec
from crowdgrad.errors import ProgramRefused
from crowdgrad.program.attributes import RULES, Rule, refuse_odd_ports, rule_of
from crowdgrad.program.bounds import LIMITS, Bounds, Limits, measure, refuse_beyond
from crowdgrad.program.graph import ELEMENTS, MAX_PORTS, Graph, Port, parse
from crowdgrad.program.nodes import MAX_NODES
from crowdgrad.program.shapes import infer
from crowdgrad.program.sizes import BATCH, MAX_BATCH

GRADIENT: Final = "the gradient graph"
FORWARD: Final = "the forward graph"
MIN_OPSET: Final = 18
MAX_OPSET: Final = 22
MIN_IR: Final = 8
MAX_IR: Final = 11
MAX_OUTPUTS: Final = 1024
MAX_READERS: Final = 4096
"""Of one tensor: onnxruntime takes the square of this to load a graph, 32 s for 16,000. An LSTM of
12 steps has 146."""
ALLOWED_OPS: Final = frozenset(RULES)
_NUMBERS: Final = {name: number for number, name in ELEMENTS.items()}
Promise = tuple[str, int | None, tuple[int | str, ...] | None]
"""Name, element type and sizes of a port; None where the spec leaves it open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a batch costs at most: memory and work, by graph."""

    gradient: Bounds
    forward: Bounds


def check(program: Program, samples: int = 1, limits: Limits = LIMITS) -> Checked:
    """What the program costs, at most, with batches of up to `samples`.

    Raises ProgramRefused, with a reason a person understands, unless the program may run.
    """
    spec = program.spec
    _check_spec(spec)
    most = spec.fixed_batch or samples
    if not 1 <= samples <= MAX_BATCH:
        raise ProgramRefused(f"batches of {samples} samples are not between 1 and {MAX_BATCH}.")
    gradient = parse(program.gradient, GRADIENT)
    forward = parse(program.forward, FORWARD)
    _check_size(gradient, forward)
    bounds = {}
    for what, graph, noise, outputs in (
        (GRADIENT, gradient, spec.noise, _gradient_outputs(spec)),
        (FORWARD, forward, spec.forward_noise, _forward_outputs(spec)),
    ):
        _check_frame(graph, spec, what)
        _check_ports(graph.inputs, _inputs(spec, noise), f"input of {what}")
        _check_ports(graph.outputs, outputs, f"output of {what}")
        _check_nodes(graph, what)
        with _speaking_of(what):
            shapes = infer(graph)
        bounds[what] = measure(graph, shapes, most)
        refuse_beyond(bounds[what], limits, what)
    return Checked(gradient=bounds[GRADIENT], forward=bounds[FORWARD])


def _check_size(gradient: Graph, forward: Graph) -> None:
    nodes = len(gradient.nodes) + len(forward.nodes)
    if nodes > MAX_NODES:
        raise ProgramRefused(
            f"the program has {nodes} nodes, more than {MAX_NODES}.",
            advice="Long unrolled loops in the model make large graphs: shorten them.",
        )


def _check_spec(spec: ProgramSpec) -> None:
    if not MIN_OPSET <= spec.opset <= MAX_OPSET:
        raise ProgramRefused(f"opset {spec.opset} is not between {MIN_OPSET} and {MAX_OPSET}.")
    if not 0 <= spec.outputs <= MAX_OUTPUTS:
        raise ProgramRefused(f"the spec names {spec.outputs} outputs.")
    held = (spec.parameters, spec.buffers, spec.fixed, spec.inputs, spec.noise, spec.forward_noise)
    tensors = sum(map(len, held)) + len(spec.metrics)
    if tensors > MAX_PORTS:
        raise ProgramRefused(f"the spec names {tensors} tensors, more than {MAX_PORTS}.")


@contextmanager
def _speaking_of(what: str) -> Iterator[None]:
    """Refusals inside say which graph they are about."""
    try:
        yield
    except ProgramRefused as error:
        raise ProgramRefused(f"{what}: {error.message}", advice=error.advice) from None


def _inputs(spec: ProgramSpec, noise: tuple[NoiseSpec, ...]) -> list[Promise]:
    first: int | str = spec.fixed_batch or BATCH
    promises = [_promise(f"p:{t.name}", t) for t in spec.parameters]
    promises += [_promise(f"b:{t.name}", t) for t in (*spec.buffers, *spec.fixed)]
    promises += [_promise(f"x:{t.name}", t, first) for t in spec.inputs]
    for z in noise:
        sizes: tuple[int | str, ...] = (first, *z.shape) if z.per_sample else z.shape
        promises.append((f"z:{z.name}", _NUMBERS["float32"], sizes))
    return promises


def _gradient_outputs(spec: ProgramSpec) -> list[Promise]:
    gradients = [_promise(f"g:{t.name}", t) for t in spec.parameters]
    return [_scalar("loss"), *gradients, *(_promise(f"n:{t.name}", t) for t in spec.buffers)]


def _forward_outputs(spec: ProgramSpec) -> list[Promise]:
    scalars = [_scalar("loss"), *(_scalar(f"m:{metric.name}") for metric in spec.metrics)]
    return [*scalars, *((f"y:{index}", None, None) for index in range(spec.outputs))]


def _promise(name: str, tensor: TensorSpec, *first: int | str) -> Promise:
    return name, _NUMBERS[tensor.dtype], (*first, *tensor.shape)


def _scalar(name: str) -> Promise:
    return name, _NUMBERS["float32"], ()


def _check_frame(graph: Graph, spec: ProgramSpec, what: str) -> None:
    if graph.opset != spec.opset:
        raise ProgramRefused(f"{what} uses opset {graph.opset}, its spec says {spec.opset}.")
    if not MIN_IR <= graph.ir_version <= MAX_IR:
        raise ProgramRefused(
            f"{what} has ONNX format {graph.ir_version}, not {MIN_IR} to {MAX_IR}."
        )


def _check_ports(ports: tuple[Port, ...], promises: list[Promise], what: str) -> None:
    names = [port.name for port in ports]
    wanted = [name for name, _, _ in promises]
    if names != wanted:
        odd = next((pair for pair in zip(names, wanted, strict=False) if pair[0] != pair[1]), None)
        detail = f"{odd[0][:64]!r} instead of {odd[1][:64]!r}" if odd else f"{len(names)} of them"
        raise ProgramRefused(f"every {what} must be what the spec promises: {detail}.")
    for port, (name, element, dims) in zip(ports, promises, strict=True):
        if port.element not in ELEMENTS or (element is not None and port.element != element):
            raise ProgramRefused(f"{what} {name!r} has element type {port.element}.")
        if dims is not None and port.dims != dims:
            raise ProgramRefused(f"{what} {name!r} has shape {port.dims}, the spec says {dims}.")
        if any(isinstance(size, str) and size != BATCH for size in port.dims):
            raise ProgramRefused(
                f"{what} {name!r}: only the batch may have a free size: {port.dims}."
            )


def _check_nodes(graph: Graph, what: str) -> None:
    """Known operators, with the attributes and as many inputs and outputs as they have."""
    rules: dict[tuple[str, int], Rule] = {}
    for node in graph.nodes:
        kind = node.op, id(node.attributes)  # shared by all nodes of one kind: looked at once
        rule = rules.get(kind)
        if rule is None:
            rule = rules[kind] = rule_of(node, what)
        refuse_odd_ports(node, rule, what)
    read = Counter(chain.from_iterable(node.inputs for node in graph.nodes))
    del read[""]
    name, readers = max(read.items(), key=lambda item: item[1], default=("", 0))
    if readers > MAX_READERS:
        raise ProgramRefused(
            f"{what}: {name[:64]!r} is read by {readers} nodes, more than {MAX_READERS}."
        )
