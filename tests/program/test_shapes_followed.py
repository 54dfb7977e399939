"""Shapes that a graph computes from its own shapes are followed, as far as they are certain."""

from __future__ import annotations

import pytest

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.graph import Node, Port
from crowdgrad.program.shapes import infer
from crowdgrad.program.sizes import B, Size, multiply, subtract
from tests.program.random_calls import Feed, constant, listed, number
from tests.program.small_graphs import (
    LARGEST,
    SHAPE,
    graph,
    node,
)

ARITHMETIC: dict[str, tuple[list[Node], dict[str, Feed], tuple[Size, ...]]] = {
    "a part of the shape": (
        [node("Shape", "x", "r", start=0, end=2)], {}, (B, 3),
    ),
    "gathered and joined": (
        [node("Gather", "s zero", "b"), node("Concat", "b minus", "r", axis=0)],
        {"zero": listed(0), "minus": listed(-1)}, (B, -1),
    ),
    "a number of elements": (
        [node("Size", "x", "n"), node("Reshape", "n one", "r")],
        {"one": listed(1)}, (multiply(B, 12),),
    ),
    "the same by a product": (
        [node("ReduceProd", "s", "r", keepdims=1)], {}, (multiply(B, 12),),
    ),
    "a product and an exact quotient": (
        [node("Mul", "s six", "m"), node("Div", "m two", "r")],
        {"six": number(6), "two": number(2)}, (multiply(B, 3), 9, 12),
    ),
    "a difference, negated": (
        [node("Sub", "one s", "d"), node("Neg", "d", "r")],
        {"one": number(1)}, (subtract(B, 1), 2, 3),
    ),
    "the larger": (
        [node("Max", "s ones", "r")], {"ones": listed(1, 7, 1)}, (B, 7, 4),
    ),
    "the smaller": (
        [node("Min", "s ones", "r")], {"ones": listed(1, 7, 1)}, (1, 3, 1),
    ),
    "backwards": (
        [node("Slice", "s last first zero minus", "r")],
        {"last": listed(-1), "first": listed(-LARGEST), "zero": listed(0), "minus": listed(-1)},
        (4, 3, B),
    ),
    "chosen": (
        [node("Equal", "asked minus", "open"), node("Where", "open s asked", "r")],
        {"asked": listed(-1, 5, -1), "minus": number(-1)}, (B, 5, 4),
    ),
    "filled and stretched": (
        [
            node("ConstantOfShape", "two", "f", value=constant("", Feed(7, (1,), (4,)))),
            node("Expand", "one three", "e"),
            node("Concat", "f e", "r", axis=0),
        ],
        {"two": listed(2), "one": listed(1), "three": listed(3)}, (4, 4, 1, 1, 1),
    ),
    "counted": (
        [node("Range", "zero six two", "r")],
        {"zero": number(0), "six": number(6), "two": number(2)}, (0, 2, 4),
    ),
    "cast and back": (
        [node("Cast", "three", "c", to=6), node("Cast", "c", "r", to=7)],
        {"three": listed(3, 4)}, (3, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ARITHMETIC)
def test_shape_arithmetic_is_followed(name: str):
    nodes, constants, expected = ARITHMETIC[name]
    assert infer(graph(SHAPE, *nodes, constants=constants)).values["r"].known == expected


UNTOLD: dict[str, tuple[list[Node], dict[str, Feed]]] = {
    "a cast that wraps around": (
        [node("Cast", "large", "c", to=3), node("Cast", "c", "r", to=7)], {"large": listed(300)},
    ),
    "a sum that wraps around": (
        [node("Add", "large large", "r")], {"large": listed(LARGEST)},
    ),
    "a batch beyond 64 bits": (
        [node("Mul", "s large", "r")], {"large": listed(1 << 50)},
    ),
    "a rounded quotient of the batch": (
        [node("Div", "s two", "r")], {"two": number(2)},
    ),
    "an order that depends on the batch": (
        [node("Max", "s five", "r")], {"five": number(5)},
    ),
    "too many numbers": (
        [node("Concat", " ".join(["s"] * 11), "r", axis=0)], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTOLD)
def test_what_is_not_certain_is_not_told(name: str):
    nodes, constants = UNTOLD[name]
    assert infer(graph(SHAPE, *nodes, constants=constants)).values["r"].known is None


SHAPED: dict[str, tuple[list[Node], dict[str, Feed], tuple[Size, ...]]] = {
    "a batch times a side": (
        [node("Reshape", "x open", "r")], {"open": listed(-1, 4)}, (multiply(B, 3), 4),
    ),
    "all but the first sample": (
        [node("Slice", "x one end zero", "r")],
        {"one": listed(1), "end": listed(LARGEST), "zero": listed(0)}, (subtract(B, 1), 3, 4),
    ),
    "the last sample": (
        [node("Slice", "x last end zero", "r")],
        {"last": listed(-1), "end": listed(LARGEST), "zero": listed(0)}, (1, 3, 4),
    ),
    "every third of three batches": (
        [
            node("Concat", "x x x", "c", axis=0),
            node("Slice", "c zero end zero three", "r"),
        ],
        {"zero": listed(0), "end": listed(LARGEST), "three": listed(3)}, (B, 3, 4),
    ),
    "all pairs": (
        [node("Unsqueeze", "y one", "c"), node("Equal", "c y", "r")],
        {"one": listed(1)}, (B, B),
    ),
    "one more": (
        [node("Pad", "y ends", "r")], {"ends": listed(1, 0)}, (subtract(B, -1),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPED)
def test_sizes_may_grow_with_the_batch(name: str):
    nodes, constants, expected = SHAPED[name]
    assert infer(graph(*nodes, constants=constants)).values["r"].dims == expected


def test_larger_batches_make_more_certain():
    """The first two samples, where there are always two."""
    first = graph(
        node("Slice", "x zero two zero", "r"), constants={"zero": listed(0), "two": listed(2)}
    )
    assert infer(first, smallest=2).values["r"].dims == (2, 3, 4)
    with pytest.raises(ProgramRefused, match="depends on the batch"):
        infer(first)


def test_a_split_may_have_many_parts():
    parts = [f"p{k}" for k in range(100)]
    wide = Port(name="w", element=1, dims=("batch", 100))
    split = Node("Split", ("w", "sizes"), tuple(parts), {"axis": 1})
    values = infer(graph(split, constants={"sizes": listed(*[1] * 100)}, inputs=(wide,))).values
    assert values["p99"].dims == (B, 1)
