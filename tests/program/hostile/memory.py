"""Small files that would fill any memory: each shape is harmless to write, its effect is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crowdgrad.domain.program import Program, TensorSpec
from tests.program.hostile.draft import FORWARD, GRADIENT, SPEC, Case, program, with_nodes
from tests.program.hostile.proto import FLOAT, int64, int64s, node, port, tag

TOO_MUCH = "is too large|would take .* of memory|a size must be between"
"""What a refusal because of size speaks of."""
LARGE = (1 << 20, 1 << 20)
BOMBS: dict[str, tuple[bytes, ...]] = {
    "expand": (node("Expand", "loss large", "out"),),
    "expand_of_a_row": (node("Expand", "p:b rows", "out"),),
    "expand_rank_8": (node("Expand", "loss cube", "out"),),
    "tile": (node("Tile", "p:w large", "out"),),
    "tile_tiles": (node("Tile", "p:w wide", "a"), node("Tile", "a wide", "b"),
                   node("Tile", "b wide", "c")),
    "constant_of_shape": (node("ConstantOfShape", "large", "out"),),
    "constant_of_shape_overflowing": (node("ConstantOfShape", "overflow", "out"),),
    "constant_of_shape_eight_sizes": (node("ConstantOfShape", "cube", "out"),),
    "range": (node("Range", "zero huge one", "out"),),
    "range_backwards": (node("Range", "huge zero minus", "out"),),
    "pad": (node("Pad", "p:w pads", "out", mode="constant"),),
    "pad_one_side": (node("Pad", "p:b pad1", "out", mode="constant"),),
    "pad_overflowing": (node("Pad", "p:b overflow1", "out", mode="constant"),),
    "gather": (node("ConstantOfShape", "rows1", "many"),
               node("Cast", "many", "index", to=7),
               node("Gather", "p:w index", "a", axis=0),
               node("Gather", "a index", "b", axis=1)),
    "matmul_outer": (node("Expand", "two tall", "t"), node("Expand", "two flat", "f"),
                     node("MatMul", "t f", "out")),
    "broadcast_add": (node("Expand", "two tall", "t"), node("Expand", "two flat", "f"),
                      node("Add", "t f", "out")),
    "broadcast_where": (node("Expand", "two tall", "t"), node("Expand", "two flat", "f"),
                        node("Equal", "t two", "is"), node("Where", "is f two", "out")),
    "broadcast_max": (node("Expand", "two tall", "t"), node("Expand", "two flat", "f"),
                      node("Max", "t f two", "out")),
    "one_reshape_then_expand": (node("Reshape", "p:w twelve", "r", allowzero=1),
                                node("Expand", "r long", "out")),
    "unsqueeze_then_expand": (node("Unsqueeze", "p:b first", "u"), node("Expand", "u rows", "out")),
    "cast_to_double": (node("Expand", "two ten_gib", "e"), node("Cast", "e", "d", to=11),
                       node("Concat", "d d d d d d d d", "out", axis=0)),
    "conv_pads": (node("Expand", "two image", "i"), node("Expand", "two kernels64", "window"),
                  node("Conv", "i window", "out", kernel_shape=(1, 1), pads=(1 << 16,) * 4)),
    "conv_transpose_strides": (node("Expand", "two image32", "i"),
                               node("Expand", "two kernel", "window"),
                               node("ConvTranspose", "i window", "out", kernel_shape=(1, 1),
                                    strides=(1 << 16, 1 << 16))),
    "conv_transpose_dilations": (node("Expand", "two image", "i"),
                                 node("Expand", "two wide64", "window"),
                                 node("ConvTranspose", "i window", "out", kernel_shape=(2, 2),
                                      dilations=(1 << 16, 1 << 16))),
    "conv_transpose_output_padding": (
        node("Expand", "two image", "i"), node("Expand", "two wide1", "window"),
        node("ConvTranspose", "i window", "out", kernel_shape=(1, 1), strides=(1 << 16, 1 << 16),
             output_padding=(65535, 65535))),
    "pool_pads": (node("Expand", "two image256", "i"),
                  node("AveragePool", "i", "out", kernel_shape=(1 << 16, 1 << 16),
                       pads=((1 << 16) - 1,) * 4, count_include_pad=1)),
    "conv_many_channels": (node("Expand", "two picture", "i"),
                           node("Expand", "two kernels", "window"),
                           node("Conv", "i window", "out", kernel_shape=(1, 1))),
    "conv_columns": (node("Expand", "two picture64", "i"), node("Expand", "two kernel99", "window"),
                     node("Conv", "i window", "out", kernel_shape=(99, 99), pads=(49,) * 4)),
    "gather_nd": (node("ConstantOfShape", "nd", "f"), node("Cast", "f", "i", to=7),
                  node("GatherND", "p:w i", "a"), node("Expand", "a nd_large", "out")),
    "scatter_into_huge": (node("ConstantOfShape", "large", "big"),
                          node("ScatterND", "big origin two", "out")),
    "one_by_one_until_full": (*(node("Expand", "two gib", f"e{index}") for index in range(500)),
                              node("Concat", " ".join(f"e{i}" for i in range(500)), "out", axis=0)),
    "split_and_keep": (node("ConstantOfShape", "large", "big"),
                       node("Split", "big", "a b", axis=0, num_outputs=2)),
    "cumsum": (node("ConstantOfShape", "large", "big"), node("CumSum", "big axis0", "out")),
    "top_k": (node("ConstantOfShape", "large", "big"), node("TopK", "big k", "v i")),
    "one_hot_by_equal": (node("Range", "zero million one", "r"),
                         node("Unsqueeze", "r first", "row"), node("Unsqueeze", "r last", "col"),
                         node("Equal", "row col", "out")),
    "distances": (node("Range", "zero million one", "r"), node("Unsqueeze", "r first", "row"),
                  node("Unsqueeze", "r last", "col"), node("Sub", "row col", "out")),
    "shape_times_shape": (node("Shape", "p:w", "s"), node("Mul", "s s", "s2"),
                          node("Mul", "s2 s2", "s4"), node("Mul", "s4 s4", "s8"),
                          node("Mul", "s8 s8", "s16"), node("ConstantOfShape", "s16", "out")),
    "hidden_in_concat": (node("Shape", "x:x", "s", start=0, end=1),
                         node("Concat", "s rows1", "n", axis=0),
                         node("ConstantOfShape", "n", "a"), node("Tile", "a wide", "out")),
}  # fmt: skip
BATCH_BOMBS: dict[str, tuple[bytes, ...]] = {
    # For 32 samples harmless; for 2^16 they are a square or a cube of that.
    "batch_squared": (node("Transpose", "x:x", "t", perm=(1, 0)), node("MatMul", "x:x t", "out")),
    "batch_distances": (node("Unsqueeze", "x:x first", "u"), node("Unsqueeze", "x:x at1", "v"),
                        node("Sub", "u v", "out")),
    "batch_expanded": (node("Shape", "x:x", "s", start=0, end=1),
                       node("Concat", "s s", "n", axis=0), node("ConstantOfShape", "n", "out")),
    "batch_cubed": (node("Shape", "x:x", "s", start=0, end=1),
                    node("Concat", "s s s", "n", axis=0), node("ConstantOfShape", "n", "out")),
    "batch_range_outer": (node("Shape", "x:x", "s", start=0, end=1),
                          node("Squeeze", "s first", "n"),
                          node("Range", "zero n one", "r"), node("Unsqueeze", "r first", "row"),
                          node("Unsqueeze", "r last", "col"), node("Sub", "row col", "out")),
    "batch_tiled": (node("Shape", "x:x", "s", start=0, end=1), node("Concat", "s at1", "n", axis=0),
                    node("Tile", "x:x n", "out")),
    "batch_gathered": (node("Shape", "x:x", "s", start=0, end=1),
                       node("Concat", "s s", "n", axis=0), node("ConstantOfShape", "n", "f"),
                       node("Cast", "f", "i", to=7), node("Gather", "p:w i", "out", axis=0)),
    "batch_times_a_million": (node("Shape", "x:x", "s", start=0, end=1),
                              node("Mul", "s rows1", "n"), node("ConstantOfShape", "n", "out")),
    "batch_multiplied": (node("Shape", "x:x", "n", start=0, end=1), node("Mul", "n n", "n2"),
                         node("ConstantOfShape", "n2", "out")),
}  # fmt: skip
CONSTANTS = (
    int64s("large", *LARGE), int64s("rows", 1 << 40, 3), int64s("rows1", 1 << 20),
    int64s("cube", *(1 << 7,) * 8), int64s("wide", 1 << 14, 1),
    int64s("overflow", 1 << 32, 1 << 32), int64s("overflow1", 1 << 62, 1 << 62),
    int64s("pads", *(1 << 20,) * 4), int64s("pad1", 0, 1 << 42), int64s("tall", 1 << 21, 1),
    int64s("flat", 1, 1 << 21), int64s("twelve", 1, 12), int64s("long", 1 << 40, 12),
    int64s("ten_gib", 5, 1 << 29), int64s("image", 1, 1, 2, 2), int64s("kernel", 1, 1, 1, 1),
    int64s("image32", 1, 1, 32, 32), int64s("image256", 1, 256, 2, 2),
    int64s("wide64", 1, 64, 2, 2), int64s("wide1", 1, 64, 1, 1), int64s("kernels64", 64, 1, 1, 1),
    int64s("picture", 1, 1, 4096, 4096),
    int64s("kernels", 1 << 17, 1, 1, 1), int64s("picture64", 1, 256, 2048, 2048),
    int64s("kernel99", 1, 256, 99, 99), int64s("nd", 1 << 10, 2),
    int64s("nd_large", 1 << 32, 1 << 10),
    int64s("origin", 0, 0),
    int64s("gib", 1 << 28), int64s("k", 1 << 19), int64s("last", 1), int64s("at1", 1),
    int64("zero", 0), int64("huge", 1 << 45), int64("one", 1), int64("minus", -1),
    int64("million", 1 << 21), int64("axis0", 0),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for name, nodes in BOMBS.items():
        yield Case(
            name=f"memory/{name}",
            says="values of a terabyte or more, in a file of one kilobyte",
            reason=TOO_MUCH,
            make=lambda nodes=nodes: with_nodes(*nodes, constants=_needed(nodes)),
        )
    for name, nodes in BATCH_BOMBS.items():
        yield Case(
            name=f"memory/{name}",
            says="harmless for one sample, a terabyte for a large batch",
            reason=TOO_MUCH,
            make=lambda nodes=nodes: with_nodes(*nodes, constants=_needed(nodes)),
            samples=1 << 16,
        )
    yield from _doublings()
    for name, dims in (("huge", (1 << 20, 1 << 19)), ("wide", (1 << 39,))):
        yield Case(
            name=f"memory/{name}_parameter",
            says=f"a parameter of shape {dims}, in the spec too",
            reason=TOO_MUCH,
            make=lambda dims=dims: huge_parameter(dims),
        )
    yield Case(
        name="memory/in_the_forward_graph",
        says="a bomb that goes off in evaluation only",
        reason=f"forward graph.*({TOO_MUCH})",
        make=lambda: program(
            forward=FORWARD.plus(
                node("ConstantOfShape", "large", "out"), constants=[int64s("large", *LARGE)]
            )
        ),
    )


def _needed(nodes: tuple[bytes, ...]) -> list[bytes]:
    """Only the constants these nodes name: nothing else is to be found wrong with them."""
    text = b"".join(nodes)
    return [constant for constant in CONSTANTS if _name(constant) in text]


def _name(constant: bytes) -> bytes:
    """Tag, length and text of its name, as it stands in a node that reads it."""
    at = constant.index(tag(8, 2))
    return tag(1, 2) + constant[at + 1 : at + 2 + constant[at + 1]]


def _doublings() -> Iterator[Case]:
    for name in ("concat", "concat_both_axes", "tile"):
        yield Case(
            name=f"memory/doubling_by_{name}",
            says="a value that doubles forty times",
            reason=TOO_MUCH,
            make=lambda name=name: _doubled(name),
        )


def _doubled(way: str) -> Program:
    nodes: list[bytes] = []
    value = "p:w"
    for index in range(40):
        made = f"d{index}"
        if way == "tile":
            nodes.append(node("Tile", f"{value} twice", made))
        else:
            nodes.append(node("Concat", f"{value} {value}", made, axis=0))
        if way == "concat_both_axes":
            nodes.append(node("Concat", f"{made} {made}", f"{made}b", axis=1))
            made += "b"
        value = made
    constants = [int64s("twice", 2, 1)] if way == "tile" else []
    return with_nodes(*nodes, constants=constants)


def huge_parameter(dims: tuple[int, ...]) -> Program:
    """Sound in every way but the size of its parameter."""
    first = TensorSpec(name="w", dtype="float32", shape=dims)
    nodes = (
        node("Mul", "p:w p:w", "squares"),
        node("ReduceSum", "squares all", "loss", keepdims=0, noop_with_empty_axes=0),
    )
    gradients = (node("Mul", "p:w two", "g:w"), node("Mul", "p:b two", "g:b"))
    inputs = (port("p:w", FLOAT, dims), *GRADIENT.inputs[1:])
    gradient = replace(
        GRADIENT,
        nodes=nodes + gradients,
        inputs=inputs,
        outputs=(GRADIENT.outputs[0], port("g:w", FLOAT, dims), GRADIENT.outputs[2]),
    )
    forward = replace(FORWARD, nodes=(*nodes, node("Identity", "x:y", "y:0")), inputs=inputs)
    return program(gradient, forward, replace(SPEC, parameters=(first, SPEC.parameters[1])))
