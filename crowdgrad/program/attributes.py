"""The operators a program may use, with the attributes and values our capture gives them.

An operator that the capture never emits is not in the table, nor is an attribute or a value: what
nobody needs, nobody has to trust. Numbers have generous ranges, since models differ; what kind of
value an attribute has, and which words it may be, is exact. Attributes that the exporter writes
out with their defaults (`auto_pad`, `storage_order`) may be there, but have only that value.

To add an operator: an entry in `RULES`, one in `shapes`, a case in tests/capture/operators.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.nodes import ELEMENTS, Attribute, Constant, Node

MANY: Final = 4096
"""Inputs of a Concat, outputs of a Split: an unrolled loop has one for each step."""
_FEW: Final = 16
_SIDE: Final = 1 << 16
"""The longest side of a window, its steps and its border."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What an attribute may be: in words, and as a test."""

    words: str
    test: Callable[[Attribute], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a node of an operator may look like."""

    inputs: tuple[int, int]
    """Fewest and most."""
    outputs: tuple[int, int] = (1, 1)
    attributes: Mapping[str, Allowed] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """Attributes that must be there."""
    skips: tuple[int, ...] = ()
    """Inputs that may be left out by an empty name."""


def _one_of(*values: int | bytes) -> Allowed:
    words = " or ".join(v.decode() if isinstance(v, bytes) else str(v) for v in values)
    kinds = {type(v) for v in values}
    return Allowed(words, lambda value: type(value) in kinds and value in values)


def _whole(low: int, high: int) -> Allowed:
    return Allowed(
        f"a whole number from {low} to {high}",
        lambda value: isinstance(value, int) and low <= value <= high,
    )


def _number(low: float = -math.inf) -> Allowed:
    words = "a finite number" if low == -math.inf else f"a finite number of at least {low:g}"
    return Allowed(
        words, lambda value: isinstance(value, float) and math.isfinite(value) and value >= low
    )


def _sides(low: int, *, ends: int = 1) -> Allowed:
    """One number for each of one to three axes, or two for a border that has two ends."""

    def test(value: Attribute) -> bool:
        return (
            isinstance(value, tuple)
            and len(value) in (ends, 2 * ends, 3 * ends)
            and all(isinstance(side, int) and low <= side <= _SIDE for side in value)
        )

    return Allowed(f"{ends} to {3 * ends} whole numbers from {low} to {_SIDE}", test)


def _is_permutation(value: Attribute) -> bool:
    return isinstance(value, tuple) and len(value) <= 8 and sorted(value) == [*range(len(value))]


def _is_single(value: Attribute) -> bool:
    return isinstance(value, Constant) and value.dims == (1,)


_AXIS: Final = _whole(-8, 7)
_EDGE: Final = _whole(-8, 8)
_FLAG: Final = _one_of(0, 1)
_ELEMENT: Final = _one_of(*ELEMENTS)
_NO_AUTO_PAD: Final = {"auto_pad": _one_of(b"NOTSET")}
_WINDOW: Final = _NO_AUTO_PAD | {
    "kernel_shape": _sides(1), "pads": _sides(0, ends=2), "strides": _sides(1),
}  # fmt: skip
_CONVOLUTION: Final = _WINDOW | {"dilations": _sides(1), "group": _whole(1, _SIDE)}
_POOL: Final = _WINDOW | {"ceil_mode": _FLAG}
_BEST: Final = {"axis": _AXIS, "keepdims": _FLAG, "select_last_index": _one_of(0)}
_REDUCTION: Final = {"keepdims": _FLAG, "noop_with_empty_axes": _FLAG}


def _all(ops: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(ops.split(), rule)


RULES: Final[dict[str, Rule]] = {
    **_all(
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Identity IsNaN Log Neg "
        "Not Reciprocal Relu Round Sigmoid Sign Sin Sinh Size Sqrt Tan Tanh",
        Rule(inputs=(1, 1)),
    ),
    **_all(
        "Add And CastLike Div Equal Expand Greater GreaterOrEqual Less LessOrEqual MatMul Mul Or "
        "Pow Sub Tile Unsqueeze Xor",
        Rule(inputs=(2, 2)),
    ),
    **_all("Max Min", Rule(inputs=(1, _FEW))),
    **_all("Range Where", Rule(inputs=(3, 3))),
    **_all("ArgMax ArgMin", Rule(inputs=(1, 1), attributes=_BEST)),
    **_all("Softmax LogSoftmax", Rule(inputs=(1, 1), attributes={"axis": _AXIS})),
    **_all("Gather GatherElements", Rule(inputs=(2, 2), attributes={"axis": _AXIS})),
    **_all("Elu LeakyRelu", Rule(inputs=(1, 1), attributes={"alpha": _number()})),
    **_all(
        "ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum",
        Rule(inputs=(1, 2), attributes=_REDUCTION),
    ),
    "AveragePool": Rule(
        inputs=(1, 1),
        attributes=_POOL | {"count_include_pad": _FLAG},
        needs=("kernel_shape",),
    ),
    "BatchNormalization": Rule(
        inputs=(5, 5),
        attributes={
            "epsilon": _number(0.0), "momentum": _number(), "training_mode": _one_of(0),
        },
    ),
    "Cast": Rule(
        inputs=(1, 1), attributes={"saturate": _one_of(1), "to": _ELEMENT}, needs=("to",)
    ),
    "Clip": Rule(inputs=(1, 3), skips=(1,)),
    "Concat": Rule(inputs=(1, MANY), attributes={"axis": _AXIS}, needs=("axis",)),
    "ConstantOfShape": Rule(
        inputs=(1, 1), attributes={"value": Allowed("a tensor of one number", _is_single)}
    ),
    "Conv": Rule(inputs=(2, 3), attributes=_CONVOLUTION),
    "ConvTranspose": Rule(inputs=(2, 3), attributes=_CONVOLUTION | {"output_padding": _sides(0)}),
    "CumSum": Rule(inputs=(2, 2), attributes={"exclusive": _FLAG, "reverse": _FLAG}),
    "Flatten": Rule(inputs=(1, 1), attributes={"axis": _EDGE}),
    "GatherND": Rule(inputs=(2, 2), attributes={"batch_dims": _one_of(0)}),
    "Gelu": Rule(inputs=(1, 1), attributes={"approximate": _one_of(b"none", b"tanh")}),
    "Gemm": Rule(
        inputs=(2, 3),
        attributes={"alpha": _number(), "beta": _number(), "transA": _FLAG, "transB": _FLAG},
    ),
    "InstanceNormalization": Rule(inputs=(3, 3), attributes={"epsilon": _number(0.0)}),
    "IsInf": Rule(inputs=(1, 1), attributes={"detect_negative": _FLAG, "detect_positive": _FLAG}),
    "LayerNormalization": Rule(
        inputs=(2, 3),
        outputs=(1, 3),
        attributes={"axis": _AXIS, "epsilon": _number(0.0), "stash_type": _one_of(1)},
    ),
    "MaxPool": Rule(
        inputs=(1, 1),
        outputs=(1, 2),
        attributes=_POOL | {"dilations": _sides(1), "storage_order": _one_of(0)},
        needs=("kernel_shape",),
    ),
    "Mod": Rule(inputs=(2, 2), attributes={"fmod": _FLAG}),
    "Pad": Rule(inputs=(2, 3), attributes={"mode": _one_of(b"constant")}),
    "Reshape": Rule(inputs=(2, 2), attributes={"allowzero": _FLAG}),
    "ScatterElements": Rule(
        inputs=(3, 3),
        attributes={
            "axis": _AXIS,
            "reduction": _one_of(b"none", b"add", b"mul", b"min", b"max"),
        },
    ),
    "ScatterND": Rule(inputs=(3, 3), attributes={"reduction": _one_of(b"none", b"add")}),
    "Shape": Rule(inputs=(1, 1), attributes={"end": _EDGE, "start": _EDGE}),
    "Slice": Rule(inputs=(3, 5)),
    "Split": Rule(
        inputs=(1, 2),
        outputs=(1, MANY),
        attributes={"axis": _AXIS, "num_outputs": _whole(1, MANY)},
    ),
    "Squeeze": Rule(inputs=(1, 2)),
    "TopK": Rule(
        inputs=(2, 2),
        outputs=(2, 2),
        attributes={"axis": _AXIS, "largest": _FLAG, "sorted": _FLAG},
    ),
    "Transpose": Rule(
        inputs=(1, 1),
        attributes={"perm": Allowed("a permutation of the axes", _is_permutation)},
        needs=("perm",),
    ),
}  # fmt: skip


def rule_of(node: Node, what: str) -> Rule:
    """The rule of the node's operator, whose attributes obey it; ProgramRefused otherwise."""
    rule = RULES.get(node.op)
    if rule is None:
        raise ProgramRefused(
            f"{what} uses the operator {node.op!r}, which is not on the list.",
            advice="Only plain arithmetic travels; `crowdgrad check` names what a model uses.",
        )
    for name, value in node.attributes.items():
        allowed = rule.attributes.get(name)
        if allowed is None:
            raise ProgramRefused(f"{what}: {node.op} has the unknown attribute {name!r}.")
        if not allowed.test(value):
            raise ProgramRefused(
                f"{what}: {node.op} has {name} = {_shown(value)}, it may be {allowed.words}."
            )
    missing = [name for name in rule.needs if name not in node.attributes]
    if missing:
        raise ProgramRefused(f"{what}: {node.op} lacks the attribute {missing[0]!r}.")
    _refuse_uneven(node, what)
    return rule


def refuse_odd_ports(node: Node, rule: Rule, what: str) -> None:
    """ProgramRefused where the node has more or fewer inputs or outputs than its operator."""
    _, inputs, outputs, _ = node
    fewest, most = rule.inputs
    if not fewest <= len(inputs) <= most:
        raise _odd_count(node.op, len(inputs), rule.inputs, "inputs", what)
    fewest, most = rule.outputs
    if not fewest <= len(outputs) <= most:
        raise _odd_count(node.op, len(outputs), rule.outputs, "outputs", what)
    if "" in outputs:
        raise ProgramRefused(f"{what}: {node.op} has an output without a name.")
    if "" in inputs:
        odd = [index for index, name in enumerate(inputs) if not name and index not in rule.skips]
        if odd:
            raise ProgramRefused(f"{what}: {node.op} leaves out its input {odd[0]}.")


def _odd_count(
    op: str, found: int, allowed: tuple[int, int], kind: str, what: str
) -> ProgramRefused:
    fewest, most = allowed
    wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
    return ProgramRefused(f"{what}: {op} has {found} {kind}, not {wanted}.")


def _refuse_uneven(node: Node, what: str) -> None:
    """All of a window's attributes speak of the same axes."""
    axes = {
        name: len(value) // (2 if name == "pads" else 1)
        for name, value in node.attributes.items()
        if isinstance(value, tuple)
    }
    if len(set(axes.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in axes.items())
        raise ProgramRefused(f"{what}: {node.op} has sizes for different axes: {counts}.")


def _shown(value: Attribute) -> str:
    if isinstance(value, Constant):
        return f"a tensor of shape {value.dims}"
    return repr(value)[:80]
