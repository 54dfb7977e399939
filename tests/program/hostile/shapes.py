"""Shapes that are huge, negative, free, overflowing, unlike the spec, or do not fit together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.program.hostile.draft import FORWARD, GRADIENT, Case, program, spoilt, with_nodes
from tests.program.hostile.proto import (
    FLOAT,
    INT64,
    Size,
    block,
    int64,
    int64s,
    node,
    number,
    port,
    shape,
    strange_port,
    tensor,
)

INPUTS: dict[str, tuple[Size, ...]] = {
    "more_rows": (5, 3), "negative": (-4, 3), "zero": (0, 3), "rank_one": (12,),
    "rank_three": (4, 3, 1), "scalar": (), "free": ("n", 3), "batch": ("batch", 3),
    "huge": (1 << 62, 3), "overflowing": (1 << 32, 1 << 32), "empty_name": ("", 3),
    "unknown": (None, 3), "spaced_batch": ("batch ", 3), "capital_batch": ("Batch", 3),
    "least": (-(1 << 63), 3),
}  # fmt: skip
BATCH: dict[str, tuple[Size, ...]] = {
    "fixed": (7, 4), "one": (1, 4), "zero": (0, 4), "negative": (-1, 4), "other_name": ("n", 4),
    "twice": ("batch", "batch"), "last": (4, "batch"), "sum": ("batch+1", 4),
    "product": ("2*batch", 4), "unknown": (None, 4), "long_name": ("b" * 65, 4),
}  # fmt: skip
OUTPUTS: dict[str, tuple[Size, ...]] = {
    "batch_first": ("batch", 4), "other": (9, 9), "free": ("rows", 3), "negative": (-1, 3),
    "batch_twice": ("batch", "batch"), "huge": (1 << 50, 3),
}  # fmt: skip
MISFITS: dict[str, tuple[bytes, ...]] = {
    "MatMul_inner_sizes": (node("MatMul", "p:w p:w", "out"),),
    "MatMul_of_a_scalar": (node("MatMul", "loss p:w", "out"),),
    "Gemm_inner_sizes": (node("Gemm", "p:w p:w", "out"),),
    "Gemm_rank": (node("Gemm", "p:b p:w", "out"),),
    "Add_sizes": (node("Add", "p:w x:y", "out"), node("Add", "four p:b", "out2")),
    "Where_sizes": (node("Equal", "p:b p:b", "is"), node("Where", "is p:b four", "out")),
    "Concat_sizes": (node("Concat", "p:w four", "out", axis=0),),
    "Concat_a_vector_and_a_number": (node("Concat", "p:b loss", "out", axis=0),),
    "Concat_other_sizes": (node("Concat", "p:w x:x", "out", axis=0),),
    "Reshape_elements": (node("Reshape", "p:w five", "out", allowzero=1),),
    "Reshape_two_open": (node("Reshape", "p:w open", "out", allowzero=1),),
    "Reshape_negative": (node("Reshape", "p:w minus", "out", allowzero=1),),
    "Expand_sizes": (node("Expand", "p:w five", "out"),),
    "Expand_negative": (node("Expand", "p:b minus", "out"),),
    "Squeeze_of_four": (node("Squeeze", "p:w first", "out"),),
    "Squeeze_beyond": (node("Squeeze", "p:w minus", "out"),),
    "Unsqueeze_beyond": (node("Unsqueeze", "p:w far", "out"),),
    "Unsqueeze_twice": (node("Unsqueeze", "p:w doubled", "out"),),
    "Split_sizes": (node("Split", "p:w five", "a b", axis=0),),
    "Split_negative": (node("Split", "p:w minus", "a b", axis=0),),
    "Tile_rank": (node("Tile", "p:w first", "out"),),
    "Tile_negative": (node("Tile", "p:w minus", "out"),),
    "Pad_rank": (node("Pad", "p:w five", "out"),),
    "Slice_axes": (node("Slice", "p:w first five far", "out"),),
    "Slice_step_of_zero": (node("Slice", "p:w first one first first", "out"),),
    "ReduceSum_beyond": (node("ReduceSum", "p:w far", "out", keepdims=0),),
    "ReduceSum_twice": (node("ReduceSum", "p:w doubled", "out", keepdims=0),),
    "ConstantOfShape_negative": (node("ConstantOfShape", "minus", "out"),),
    "TopK_more_than_there": (node("TopK", "p:b five1", "v i"),),
    "TopK_negative": (node("TopK", "p:b minus1", "v i"),),
    "Range_of_step_zero": (node("Range", "zero nine zero", "out"),),
    "GatherND_too_deep": (node("GatherND", "p:b deep", "out"),),
    "ScatterElements_sizes": (node("ScatterElements", "p:w first p:b", "out"),),
    "LayerNormalization_scale": (node("LayerNormalization", "p:w four four", "out", axis=-1),),
    "BatchNormalization_scale": (node("BatchNormalization", "p:w p:b p:b p:b four", "out"),),
    "Trilu_of_a_vector": (node("Trilu", "p:b", "out"),),
    "Transpose_of_a_scalar": (node("Transpose", "loss", "out", perm=(0,)),),
    "Conv_of_a_matrix": (node("Conv", "p:w p:w", "out"),),
}  # fmt: skip
TYPES: dict[str, tuple[bytes, ...]] = {
    "Add_float_and_int": (node("Add", "p:b first", "out"),),
    "MatMul_float_and_int": (node("MatMul", "p:w whole", "out"),),
    "And_of_floats": (node("And", "p:b p:b", "out"),),
    "Where_by_float": (node("Where", "p:b p:b p:b", "out"),),
    "Gather_by_float": (node("Gather", "p:w p:b", "out", axis=0),),
    "Reshape_by_float": (node("Reshape", "p:w p:b", "out", allowzero=1),),
    "ReduceSum_by_float": (node("ReduceSum", "p:w p:b", "out", keepdims=0),),
    "Concat_float_and_int": (node("Concat", "p:b first", "out", axis=0),),
    "Not_of_floats": (node("Not", "p:b", "out"),),
    "Erf_of_truth": (node("Equal", "p:b p:b", "is"), node("Exp", "is", "out")),
    "Softmax_of_int": (node("Softmax", "first", "out", axis=0),),
}
COUNTS: dict[str, bytes] = {
    "Add_of_one": node("Add", "p:b", "out"),
    "Add_of_three": node("Add", "p:b p:b p:b", "out"),
    "Add_of_nothing": node("Add", "", "out"),
    "Add_two_outputs": node("Add", "p:b p:b", "out more"),
    "Add_no_output": node("Add", "p:b p:b", ""),
    "Add_left_out": node("Add", "- p:b", "out"),
    "Relu_of_two": node("Relu", "p:b p:b", "out"),
    "MatMul_of_one": node("MatMul", "p:w", "out"),
    "Where_of_two": node("Where", "p:b p:b", "out"),
    "Clip_of_four": node("Clip", "p:b p:b p:b p:b", "out"),
    "Concat_of_nothing": node("Concat", "", "out", axis=0),
    "TopK_three_outputs": node("TopK", "p:b one", "a b c"),
    "Constant_with_an_input": node("Constant", "p:b", "out", value_int=1),
    "Identity_of_nothing": node("Identity", "", "out"),
    "LayerNormalization_four_outputs": node(
        "LayerNormalization", "p:w p:b p:b", "a b c d", axis=-1
    ),
    "BatchNormalization_five_outputs": node(
        "BatchNormalization", "p:w p:b p:b p:b p:b", "a b c d e"
    ),
}  # fmt: skip
CONSTANTS = (
    int64s("five", 5, 3), int64s("open", -1, -1), int64s("minus", -2, -6), int64s("far", 9),
    int64s("doubled", 0, 0), int64s("one", 1), int64s("five1", 5), int64s("minus1", -5),
    int64("zero", 0), int64("nine", 9), tensor("four", FLOAT, (4,), bytes(16)),
    tensor("whole", INT64, (3, 3), bytes(72)), tensor("deep", INT64, (1, 4), bytes(32)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for name, dims in INPUTS.items():
        yield Case(
            name=f"shapes/parameter_{name}",
            says=f"a parameter of shape {dims}",
            reason="p:w",
            make=lambda dims=dims: spoilt(inputs=(port("p:w", FLOAT, dims), *GRADIENT.inputs[1:])),
        )
    for name, dims in BATCH.items():
        yield Case(
            name=f"shapes/batch_{name}",
            says=f"a batch of shape {str(dims)[:40]}",
            reason="x:x",
            make=lambda dims=dims: spoilt(
                inputs=(*GRADIENT.inputs[:2], port("x:x", FLOAT, dims), GRADIENT.inputs[3])
            ),
        )
    for name, dims in OUTPUTS.items():
        yield Case(
            name=f"shapes/model_output_{name}",
            says=f"a model's output said to have shape {dims}",
            reason="y:0",
            make=lambda dims=dims: program(
                forward=replace(FORWARD, outputs=(FORWARD.outputs[0], port("y:0", FLOAT, dims)))
            ),
        )
    yield from _misfits()
    yield from _strange()


def _misfits() -> Iterator[Case]:
    groups = (
        ("misfit", "sizes that do not fit together", MISFITS),
        ("type", "types that do not fit together", TYPES),
        ("count", "a number of inputs or outputs the operator does not have",
         {name: (bad,) for name, bad in COUNTS.items()}),
    )  # fmt: skip
    for group, says, table in groups:
        for name, nodes in table.items():
            op = name.partition("_")[0].replace("Erf", "Exp")
            yield Case(
                name=f"shapes/{group}_{name}",
                says=f"{op}: {says}",
                reason=op,
                make=lambda nodes=nodes: with_nodes(*nodes, constants=CONSTANTS),
            )
    real = {"gradient_of_another_shape": ("p:b", "g:w"), "loss_that_is_no_number": ("p:b", "loss")}
    for name, (value, output) in real.items():
        rest = tuple(n for n in GRADIENT.nodes if block(2, output) not in n)
        yield Case(
            name=f"shapes/{name}",
            says=f"{output} is made with another shape than promised",
            reason=output,
            make=lambda rest=rest, value=value, output=output: spoilt(
                nodes=(*rest, node("Identity", value, output))
            ),
        )
    cast = node("Cast", "slope", "as64", to=11)
    last = node("ReduceSum", "as64 first", "g:b", keepdims=0, noop_with_empty_axes=0)
    yield Case(
        name="shapes/gradient_of_another_type",
        says="a gradient in double precision where the spec says float32",
        reason="g:b",
        make=lambda: spoilt(nodes=(*GRADIENT.nodes[:-1], cast, last)),
    )


def _strange() -> Iterator[Case]:
    both = block(1, number(1, 4) + block(2, "batch")) + block(1, number(1, 3))
    tables = {
        "size_and_name": (both, "neither a number nor a name|p:w"),
        "denotation": (block(1, number(1, 4) + block(3, "H")) + block(1, number(1, 3)), "field 3"),
        "rank_9": (shape((1,) * 9), "more than 8"),
        "rank_100000": (shape((1,) * 100_000), "more than 8"),
    }
    for name, (content, reason) in tables.items():
        kind = block(1, number(1, FLOAT) + block(2, content))
        yield Case(
            name=f"shapes/{name}",
            says="a parameter with a strange description of its shape",
            reason=reason,
            make=lambda kind=kind: spoilt(inputs=(strange_port("p:w", kind), *GRADIENT.inputs[1:])),
        )
