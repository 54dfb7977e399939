"""Attributes of another type, twice, unknown, out of range or without end."""

from __future__ import annotations

import math
from collections.abc import Iterator

from crowdgrad.domain.program import Program
from tests.program.hostile.draft import Case, with_nodes
from tests.program.hostile.proto import (
    FLOAT,
    Attribute,
    Tensor,
    attribute,
    block,
    blocks,
    fixed32,
    int64s,
    node,
    number,
    tensor,
)

VALUES: dict[str, Attribute] = {
    "float": 1.0, "text": "1", "ints": (1, 0), "floats": (1.0, 0.0),
    "tensor": tensor("", FLOAT, (1,), bytes(4)),
}  # fmt: skip
WRONG: dict[str, tuple[bytes, str]] = {
    # An operator with one value it must not have; the word its refusal must hold.
    "cast_to_a_text": (node("Cast", "loss", "out", to="1"), "has to ="),
    "cast_to_nothing": (node("Cast", "loss", "out"), "lacks the attribute 'to'"),
    "transpose_by_one_number": (node("Transpose", "p:w", "out", perm=1), "has perm ="),
    "transpose_twice_the_same": (node("Transpose", "p:w", "out", perm=(0, 0)), "perm|Transpose"),
    "transpose_negative": (node("Transpose", "p:w", "out", perm=(-1, 0)), "perm|Transpose"),
    "transpose_beyond": (node("Transpose", "p:w", "out", perm=(1, 2)), "perm|Transpose"),
    "transpose_too_few": (node("Transpose", "p:w", "out", perm=(0,)), "perm|Transpose"),
    "transpose_huge": (node("Transpose", "p:w", "out", perm=(0, 1 << 62)), "perm|Transpose"),
    "concat_beyond": (node("Concat", "p:w p:w", "out", axis=2), "axis"),
    "concat_far_below": (node("Concat", "p:w p:w", "out", axis=-(1 << 63)), "axis"),
    "concat_without_axis": (node("Concat", "p:w p:w", "out"), "axis"),
    "softmax_beyond": (node("Softmax", "p:w", "out", axis=1 << 62), "axis"),
    "softmax_below": (node("Softmax", "p:w", "out", axis=-3), "axis"),
    "gather_beyond": (node("Gather", "p:w first", "out", axis=7), "axis"),
    "gather_elements_beyond": (node("GatherElements", "p:w first", "out", axis=7), "axis"),
    "flatten_beyond": (node("Flatten", "p:w", "out", axis=9), "axis"),
    "argmax_beyond": (node("ArgMax", "p:w", "out", axis=5), "axis"),
    "layer_norm_beyond": (node("LayerNormalization", "p:w p:b p:b", "out", axis=5), "axis"),
    "layer_norm_stash": (
        node("LayerNormalization", "p:w p:b p:b", "out", axis=-1, stash_type=99), "stash_type"
    ),
    "keepdims_two": (node("ReduceSum", "p:w first", "out", keepdims=2), "keepdims"),
    "keepdims_negative": (node("ReduceSum", "p:w first", "out", keepdims=-1), "keepdims"),
    "noop_float": (node("ReduceSum", "p:w first", "out", noop_with_empty_axes=1.0), "noop"),
    "gemm_alpha_nan": (node("Gemm", "x:x p:w p:b", "out", alpha=math.nan), "alpha"),
    "gemm_beta_infinite": (node("Gemm", "x:x p:w p:b", "out", beta=math.inf), "beta"),
    "gemm_alpha_int": (node("Gemm", "x:x p:w p:b", "out", alpha=1), "alpha"),
    "gemm_trans_two": (node("Gemm", "x:x p:w p:b", "out", transA=2), "transA"),
    "elu_nan": (node("Elu", "loss", "out", alpha=math.nan), "alpha"),
    "leaky_infinite": (node("LeakyRelu", "loss", "out", alpha=-math.inf), "alpha"),
    "gelu_unknown": (node("Gelu", "loss", "out", approximate="rm -rf"), "approximate"),
    "gelu_number": (node("Gelu", "loss", "out", approximate=1), "approximate"),
    "pad_unknown_mode": (
        node("Pad", "p:b pads", "out", mode="edges"), "mode"
    ),
    "pad_long_mode": (node("Pad", "p:b pads", "out", mode="c" * 5000), "mode|256|bytes"),
    "pad_mode_not_text": (node("Pad", "p:b pads", "out", mode=b"\xff\xfe"), "mode"),
    "scatter_reduction": (
        node("ScatterElements", "p:b first first", "out", reduction="steal"), "reduction"
    ),
    "mod_fmod_two": (node("Mod", "first first", "out", fmod=2), "fmod"),
    "top_k_sorted_two": (node("TopK", "p:b pads", "v i", sorted=2), "sorted|TopK"),
    "shape_start_huge": (node("Shape", "p:w", "out", start=1 << 62), "start|Shape"),
    "reshape_allowzero_nine": (node("Reshape", "p:w pads", "out", allowzero=9), "allowzero"),
    "batch_norm_training": (
        node("BatchNormalization", "p:w p:b p:b p:b p:b", "out", training_mode=1), "training"
    ),
    "batch_norm_epsilon_nan": (
        node("BatchNormalization", "p:w p:b p:b p:b p:b", "out", epsilon=math.nan), "epsilon"
    ),
    "is_inf_five": (node("IsInf", "loss", "out", detect_negative=5), "detect_negative"),
    "cumsum_reverse_text": (node("CumSum", "p:b first", "out", reverse="yes"), "reverse"),
    "split_zero_outputs": (node("Split", "p:w", "out", num_outputs=0), "num_outputs|Split"),
    "split_many_outputs": (node("Split", "p:w", "out", num_outputs=1 << 40), "num_outputs|Split"),
    "gather_nd_batch_dims": (node("GatherND", "p:w first", "out", batch_dims=9), "batch_dims"),
}  # fmt: skip
WINDOW: dict[str, dict[str, Attribute]] = {
    "kernel_of_zero": {"kernel_shape": (0, 0)},
    "kernel_negative": {"kernel_shape": (-1, 2)},
    "kernel_of_one_size": {"kernel_shape": (2,)},
    "kernel_huge": {"kernel_shape": (1 << 62, 1 << 62)},
    "strides_of_zero": {"kernel_shape": (1, 1), "strides": (0, 0)},
    "strides_negative": {"kernel_shape": (1, 1), "strides": (-1, -1)},
    "strides_too_many": {"kernel_shape": (1, 1), "strides": (1, 1, 1)},
    "dilations_of_zero": {"kernel_shape": (1, 1), "dilations": (0, 0)},
    "dilations_huge": {"kernel_shape": (2, 2), "dilations": (1 << 62, 1)},
    "pads_negative": {"kernel_shape": (1, 1), "pads": (-1, -1, -1, -1)},
    "pads_odd": {"kernel_shape": (1, 1), "pads": (1, 1, 1)},
    "pads_overflowing": {"kernel_shape": (1, 1), "pads": ((1 << 63) - 1,) * 4},
    "auto_pad_unknown": {"kernel_shape": (1, 1), "auto_pad": "SAME_SIDEWAYS"},
    "auto_pad_number": {"kernel_shape": (1, 1), "auto_pad": 1},
    "kernel_floats": {"kernel_shape": (1.0, 1.0)},
}


def cases() -> Iterator[Case]:
    for name, value in VALUES.items():
        yield _case(f"axis_is_{name}", "an axis of another type", "axis|has field 7",
                    node("Softmax", "p:w", "out", axis=value))  # fmt: skip
    for name, (bad, word) in WRONG.items():
        yield _case(name, "a value no capture of ours writes", word, bad)
    for op in ("MaxPool", "AveragePool", "Conv", "ConvTranspose"):
        for name, values in WINDOW.items():
            word = next(reversed(values))
            yield _case(f"{op}_{name}", f"{op} with {word} that make no sense",
                        f"{word}|{op}", *_window(op, values))  # fmt: skip
    yield from _encodings()


def _case(name: str, says: str, reason: str, *nodes: bytes) -> Case:
    constants = (int64s("pads", 1, 1), int64s("image", 1, 1, 4, 3), int64s("one", 1, 1, 1, 1))
    return Case(
        name=f"attributes/{name}",
        says=says,
        reason=reason,
        make=lambda: with_nodes(*nodes, constants=constants),
    )


def _window(op: str, values: dict[str, Attribute]) -> tuple[bytes, ...]:
    reshaped = node("Reshape", "p:w image", "picture", allowzero=1)
    if "Conv" not in op:
        return reshaped, node(op, "picture", "out", **values)
    kernel = node("Expand", "two one", "kernel")
    return reshaped, kernel, node(op, "picture kernel", "out", **values)


def _softmax(*attributes: bytes) -> Program:
    return with_nodes(node("Softmax", "p:w", "out", more=blocks(5, attributes)))


def _encodings() -> Iterator[Case]:
    axis = attribute("axis", 1)
    name = block(1, "axis")
    table: dict[str, tuple[str, str, tuple[bytes, ...]]] = {
        "twice": ("the same attribute twice", "twice", (axis, axis)),
        "twice_differently": ("two values", "twice", (axis, attribute("axis", 0))),
        "unknown": ("an attribute of another operator", "'perm'", (attribute("perm", (0, 1)),)),
        "empty_name": ("an attribute without a name", "''|name", (attribute("", 1),)),
        "long_name": ("a name of 10 kB", "10000 bytes", (attribute("a" * 10_000, 1),)),
        "name_with_zero": ("a zero byte in the name", "cannot be shown",
                           (attribute("axis\0", 1),)),
        "name_in_capitals": ("a name in capitals", "'AXIS'", (attribute("AXIS", 1),)),
        "name_not_utf8": ("a name that is not UTF-8", "not UTF-8",
                          (block(1, b"\xff\xfe") + number(3, 1),)),
        "name_twice": ("two names", "twice", (name + axis,)),
        "value_twice": ("two numbers in one", "twice",
                        (name + number(3, 1) + number(3, 0) + number(20, 2),)),
        "type_twice": ("two types", "twice", (axis + number(20, 2),)),
        "two_values": ("a number and a float", "'axis'",
                       (name + fixed32(2, 1.0) + number(3, 1) + number(20, 2),)),
        "two_kinds": ("a number and a list", "'axis'",
                      (name + number(3, 1) + number(8, 1) + number(20, 2),)),
        "number_and_tensor": ("a number and a tensor", "'axis'",
                              (name + number(3, 1) + block(5, VALUES["tensor"]) + number(20, 2),)),
        "says_float": ("a number that is said to be a float", "axis|type",
                       (name + number(3, 1) + number(20, 1),)),
        "says_graph": ("a number that is said to be a graph", "axis|type",
                       (name + number(3, 1) + number(20, 5),)),
        "says_unheard_of": ("a type of which no standard knows", "axis|type",
                            (name + number(3, 1) + number(20, 77),)),
        "says_undefined": ("type 0 with a value", "axis|type",
                           (name + number(3, 1) + number(20, 0),)),
        "says_nothing": ("a value without a type", "axis|type", (name + number(3, 1),)),
        "only_a_type": ("a type without a value: lists may be empty, an axis not", "axis|value",
                        (name + number(20, 7),)),
        "empty": ("an attribute of no bytes", "''|name", (b"",)),
        "float_as_varint": ("a float that is written as a number", "encoded in a wrong way",
                            (name + number(2, 1) + number(20, 1),)),
        "number_as_float": ("a number that is written as a float", "encoded in a wrong way",
                            (name + fixed32(3, 1.0) + number(20, 2),)),
        "a_million_ints": ("a list of a million numbers", "more than",
                           (name + block(8, b"\x01" * 1_000_000) + number(20, 7),)),
        "a_million_floats": ("a list of 250000 floats", "more than",
                             (name + block(7, bytes(1_000_000)) + number(20, 6),)),
        "unpacked_ints": ("a long list, number by number", "more than",
                          (name + number(8, 1) * 300_000 + number(20, 7),)),
        "floats_cut": ("a list of floats of seven bytes", "has field 7",
                       (name + block(7, bytes(7)) + number(20, 6),)),
        "ints_cut": ("a list of numbers that ends in the middle", "wrong way",
                     (name + block(8, b"\x80\x80") + number(20, 7),)),
        "a_hundred": ("a hundred attributes", "more than 8 of 'attributes'",
                      tuple(attribute(f"axis{index}", 1) for index in range(100))),
    }  # fmt: skip
    for slug, (says, reason, attributes) in table.items():
        yield Case(
            name=f"attributes/{slug}",
            says=says,
            reason=reason,
            make=lambda attributes=attributes: _softmax(*attributes),
        )
    fill = Tensor(tensor("", FLOAT, (3,), bytes(12)))
    yield Case(
        name="attributes/fill_with_three_numbers",
        says="a ConstantOfShape that fills with three numbers at once",
        reason="value|ConstantOfShape",
        make=lambda: with_nodes(node("ConstantOfShape", "first", "out", value=fill)),
    )
    yield Case(
        name="attributes/constant_without_a_value",
        says="a Constant of nothing",
        reason="Constant",
        make=lambda: with_nodes(node("Constant", "", "out")),
    )
    yield Case(
        name="attributes/constant_with_two_values",
        says="a Constant of two values",
        reason="Constant",
        make=lambda: with_nodes(node("Constant", "", "out", value_int=1, value_float=2.0)),
    )
