"""The smallest whole program, written by hand, and ways to spoil it.

Linear regression by squares: loss = Σ (x·w + b − y)², so its gradients are 2·xᵀ(x·w + b − y) and
the sum of 2·(x·w + b − y) over the samples. A `Draft` is one graph of it as lists of finished
messages; a hostile case adds, replaces or removes some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from crowdgrad.domain.program import Program, ProgramSpec, TensorSpec
from tests.program.hostile.proto import (
    FLOAT,
    block,
    blocks,
    float32,
    in_order,
    int64s,
    node,
    number,
    port,
)

Made = Program | bytes
"""A program, or the bytes of a whole artifact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    says: str
    """What a stranger tries, in one line."""
    reason: str
    """A regular expression: what the refusal must mention, so that it is refused for this."""
    make: Callable[[], Made] = field(repr=False)
    samples: int = 32
    """The largest batch of the job it comes with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    nodes: tuple[bytes, ...]
    constants: tuple[bytes, ...]
    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]
    ir: int = 10
    opset: bytes = block(1, "") + number(2, 20)
    graph_more: bytes = b""
    model_more: bytes = b""

    @property
    def graph(self) -> bytes:
        return in_order(
            blocks(1, self.nodes),
            block(2, "main"),
            blocks(5, self.constants),
            blocks(11, self.inputs),
            blocks(12, self.outputs),
            self.graph_more,
        )

    @property
    def model(self) -> bytes:
        return self.around(block(7, self.graph))

    def around(self, *graph: bytes) -> bytes:
        """The model with any bytes in place of its graph."""
        version, producer = number(1, self.ir), block(2, "crowdgrad")
        return in_order(version, producer, *graph, block(8, self.opset), self.model_more)

    def plus(self, *nodes: bytes, constants: Iterable[bytes] = ()) -> Draft:
        return replace(self, nodes=(*self.nodes, *nodes), constants=(*self.constants, *constants))


SPEC = ProgramSpec(
    parameters=(
        TensorSpec(name="w", dtype="float32", shape=(4, 3)),
        TensorSpec(name="b", dtype="float32", shape=(3,)),
    ),
    buffers=(),
    inputs=(
        TensorSpec(name="x", dtype="float32", shape=(4,)),
        TensorSpec(name="y", dtype="float32", shape=(3,)),
    ),
    noise=(),
    metrics=(),
    outputs=1,
    work_per_sample=100.0,
    opset=20,
)
_INPUTS = (
    port("p:w", FLOAT, (4, 3)),
    port("p:b", FLOAT, (3,)),
    port("x:x", FLOAT, ("batch", 4)),
    port("x:y", FLOAT, ("batch", 3)),
)
_ALL = int64s("all")
_FIRST = int64s("first", 0)
_LOSS = (
    node("Mul", "error error", "squares"),
    node("ReduceSum", "squares all", "loss", keepdims=0, noop_with_empty_axes=0),
)


def _errors(prediction: str) -> tuple[bytes, ...]:
    return (
        node("MatMul", "x:x p:w", "product"),
        node("Add", "product p:b", prediction),
        node("Sub", f"{prediction} x:y", "error"),
    )


GRADIENT = Draft(
    nodes=(
        *_errors("prediction"),
        *_LOSS,
        node("Mul", "error two", "slope"),
        node("Transpose", "x:x", "turned", perm=(1, 0)),
        node("MatMul", "turned slope", "g:w"),
        node("ReduceSum", "slope first", "g:b", keepdims=0, noop_with_empty_axes=0),
    ),
    constants=(_ALL, _FIRST, float32("two", 2.0)),
    inputs=_INPUTS,
    outputs=(port("loss", FLOAT, ()), port("g:w", FLOAT, (4, 3)), port("g:b", FLOAT, (3,))),
)
FORWARD = Draft(
    nodes=(*_errors("y:0"), *_LOSS),
    constants=(_ALL,),
    inputs=_INPUTS,
    outputs=(port("loss", FLOAT, ()), port("y:0", FLOAT, ("batch", 3))),
)


def program(
    gradient: Draft | bytes = GRADIENT,
    forward: Draft | bytes = FORWARD,
    spec: ProgramSpec = SPEC,
) -> Program:
    return Program(spec=spec, gradient=_bytes(gradient), forward=_bytes(forward))


def _bytes(draft: Draft | bytes) -> bytes:
    return draft.model if isinstance(draft, Draft) else draft


def with_nodes(*nodes: bytes, constants: Iterable[bytes] = ()) -> Program:
    """The sound program with something behind its gradients."""
    return program(GRADIENT.plus(*nodes, constants=constants))


def spoilt(**changes: object) -> Program:
    """The sound program with parts of its gradient graph replaced."""
    return program(replace(GRADIENT, **changes))  # type: ignore[arg-type]
