"""Values that are spread out only to meet others of full size, which spread them anyway."""

from __future__ import annotations

from typing import Final

from onnx import NodeProto

from crowdgrad.capture.tidy.net import Edits, Net, node

_BROADCASTING: Final = (
    "Add", "Sub", "Mul", "Div", "Where", "Equal", "Less", "LessOrEqual", "Greater",
    "GreaterOrEqual",
)  # fmt: skip


def without_expands(net: Net) -> Net:
    """An operator reads what was spread out, where another input has the full size."""
    edits = Edits()
    for made in net.nodes:
        sizes = net.sizes.get(made.output[0])
        if made.op_type not in _BROADCASTING or sizes is None:
            continue
        inputs = list(made.input)
        for index, name in enumerate(made.input):
            spread = net.maker(name, "Expand")
            others = inputs[:index] + inputs[index + 1 :]
            if spread is not None and any(net.sizes.get(other) == sizes for other in others):
                inputs[index] = spread.input[0]
        if inputs != list(made.input):
            edits.instead[made.output[0]] = [_reading(made, inputs)]
    return edits.apply(net)


def with_late_expands(net: Net) -> Net:
    """A single number meets what is to be spread out before, not after."""
    edits = Edits()
    for made in net.nodes:
        if made.op_type not in ("Mul", "Div") or len(net.sizes.get(made.input[1], (0,))) > 0:
            continue
        spread = net.maker(made.input[0], "Expand")
        small = net.sizes.get(spread.input[0]) if spread is not None else None
        if spread is None or small is None or net.reader(made.input[0]) is None:
            continue
        name = made.output[0]
        early = f"{name}.small"
        edits.sizes[early] = small
        edits.instead[name] = [
            node(made.op_type, [spread.input[0], made.input[1]], early),
            node("Expand", [early, spread.input[1]], name),
        ]
    return edits.apply(net)


def _reading(made: NodeProto, inputs: list[str]) -> NodeProto:
    changed = NodeProto()
    changed.CopyFrom(made)
    del changed.input[:]
    changed.input.extend(inputs)
    return changed
