"""Shapes that only the data would decide: nobody can say beforehand what they cost."""

from __future__ import annotations

from collections.abc import Iterator

from tests.program.hostile.draft import Case, with_nodes
from tests.program.hostile.proto import float32, int64, int64s, node

INTS = node("Cast", "p:b", "v", to=7)
NUMBER = (
    node("ReduceMax", "p:b all", "top", keepdims=0, noop_with_empty_axes=0),
    node("Cast", "top", "n", to=7),
)
ONE = (*NUMBER, node("Unsqueeze", "n first", "n1"))
TWO = (*ONE, node("Concat", "n1 n1", "n2", axis=0))
WAYS: dict[str, tuple[bytes, ...]] = {
    "Reshape": (*TWO, node("Reshape", "p:w n2", "out", allowzero=1)),
    "Reshape_by_a_batch_field": (
        node("Cast", "x:x", "c", to=7), node("ReduceMax", "c first", "m", keepdims=0),
        node("Reshape", "p:w m", "out", allowzero=1)),
    "Expand": (*TWO, node("Expand", "loss n2", "out")),
    "Tile": (*TWO, node("Tile", "p:w n2", "out")),
    "ConstantOfShape": (*TWO, node("ConstantOfShape", "n2", "out")),
    "ConstantOfShape_by_parameters": (INTS, node("ConstantOfShape", "v", "out")),
    "Range": (*NUMBER, node("Range", "zero n one", "out")),
    "Range_of_floats": (*NUMBER, node("Range", "zero_f top two", "out")),
    "Range_by_the_loss": (node("Range", "zero_f loss two", "out"),),
    "Slice_end": (*ONE, node("Slice", "p:w first n1", "out")),
    "Slice_start": (*ONE, node("Slice", "p:w n1 far", "out")),
    "Slice_axes": (*ONE, node("Slice", "p:w first far n1", "out")),
    "Slice_steps": (*ONE, node("Slice", "p:w first far first n1", "out")),
    "Pad": (*TWO, node("Pad", "p:b n2", "out", mode="constant")),
    "TopK": (*ONE, node("TopK", "p:b n1", "values indices")),
    "Split": (*TWO, node("Split", "p:w n2", "a b", axis=0)),
    "Squeeze": (*ONE, node("Squeeze", "p:w n1", "out")),
    "Unsqueeze": (*ONE, node("Unsqueeze", "p:w n1", "out")),
    "ReduceSum": (*ONE, node("ReduceSum", "p:w n1", "out", keepdims=0)),
    "CumSum": (*NUMBER, node("CumSum", "p:b n", "out")),
    "Expand_by_ArgMax": (
        node("ArgMax", "p:b", "n1", axis=0, keepdims=1), node("Expand", "loss n1", "out")),
    "Expand_by_gathered": (
        INTS, node("Gather", "v first", "n1", axis=0), node("Expand", "loss n1", "out")),
    "Expand_by_Where": (
        node("Greater", "loss two", "is"), node("Where", "is small far", "n1"),
        node("Expand", "loss n1", "out")),
    "Expand_by_shape_plus_data": (
        *ONE, node("Shape", "x:x", "s", start=0, end=1), node("Add", "s n1", "m"),
        node("Expand", "loss m", "out")),
    "Expand_by_shape_times_data": (
        *ONE, node("Shape", "x:x", "s", start=0, end=1), node("Mul", "s n1", "m"),
        node("Expand", "loss m", "out")),
    "Reshape_by_TopK": (
        node("TopK", "p:b small", "values indices"),
        node("Reshape", "loss indices", "out", allowzero=1)),
}  # fmt: skip
CONSTANTS = (
    int64("zero", 0), int64("one", 1), int64s("far", 1 << 40), int64s("small", 1),
    float32("zero_f", 0.0),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for name, nodes in WAYS.items():
        op = name.partition("_")[0]
        yield Case(
            name=f"dependent/{name}",
            says=f"{op} with a size that the numbers decide",
            reason=op,
            make=lambda nodes=nodes: with_nodes(*nodes, constants=CONSTANTS),
        )
