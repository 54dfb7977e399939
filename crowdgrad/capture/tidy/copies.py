"""Nodes that move nothing: values that are another's equal, and shapes given twice."""

from __future__ import annotations

from onnx import NodeProto

from crowdgrad.capture.tidy.net import Edits, Net, Sizes, attribute, node

_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
_SHAPERS = (*_RESHAPES, "Expand", "Identity")
_TALKATIVE = ("MaxPool", "LayerNormalization")
"""Operators whose further results may be left out; the indices of a pooling cost most of it."""
_SUMS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")


def without_copies(net: Net) -> Net:
    """Whoever reads a value that equals another reads that one."""
    edits = Edits()
    for made in net.nodes:
        if made.output[0] not in net.outputs and _is_copy(net, made):
            edits.equal[made.output[0]] = made.input[0]
    return edits.apply(net)


def _is_copy(net: Net, made: NodeProto) -> bool:
    before, after = net.sizes.get(made.input[0]), net.sizes.get(made.output[0])
    if made.op_type == "Identity":
        return True
    if before is None or before != after:
        return False
    if made.op_type == "Transpose":
        return list(attribute(made, "perm", [])) == list(range(len(before)))
    if made.op_type in _SUMS and attribute(made, "keepdims", 1):
        axes = net.integers(made.input[1]) if len(made.input) > 1 else None
        return axes is not None and len(axes) > 0 and all(before[axis] == 1 for axis in axes)
    return made.op_type in _SHAPERS


def with_single_reshapes(net: Net) -> Net:
    """A reshape of a reshape is one of the first value; squeezes are reshapes too."""
    edits = Edits()
    for made in net.nodes:
        target = _target(net.sizes.get(made.output[0]))
        if made.op_type not in _RESHAPES or target is None:
            continue
        source = made.input[0]
        while (inner := net.maker(source, *_RESHAPES)) is not None:
            source = inner.input[0]
        if source == made.input[0]:
            continue
        name = made.output[0]
        shape = edits.integers(f"{name}.shape", target)
        edits.instead[name] = [node("Reshape", [source, shape], name)]
    return edits.apply(net)


def _target(sizes: Sizes | None) -> list[int] | None:
    """What a Reshape is told to make these sizes, if that can be said."""
    if sizes is None or 0 in sizes or sum(isinstance(size, str) for size in sizes) > 1:
        return None
    return [-1 if isinstance(size, str) else size for size in sizes]


def with_sums_in_place(net: Net) -> Net:
    """A sum that keeps its axes only for a reshape to drop them need not keep them."""
    edits = Edits()
    for made in net.nodes:
        inner = net.maker(made.input[0], "ReduceSum") if made.op_type == "Reshape" else None
        if inner is None or net.reader(inner.output[0]) is None:
            continue
        axes = net.integers(inner.input[1]) if len(inner.input) > 1 else None
        before = net.sizes.get(inner.input[0])
        if not axes or before is None or not attribute(inner, "keepdims", 1):
            continue
        dropped = {axis % len(before) for axis in axes}
        left = tuple(size for axis, size in enumerate(before) if axis not in dropped)
        if left == net.sizes.get(made.output[0]):
            name = made.output[0]
            edits.instead[name] = [node("ReduceSum", inner.input, name, keepdims=0)]
    return edits.apply(net)


def without_twins(net: Net) -> Net:
    """Of nodes that compute the same from the same, the first remains."""
    edits = Edits()
    seen: dict[object, str] = {}
    for name, value in net.constants.items():
        first = seen.setdefault((value.dtype.str, value.shape, value.tobytes()), name)
        if first != name:
            edits.equal[name] = first
    for made in net.nodes:
        if len(made.output) != 1 or made.output[0] in net.outputs:
            continue
        inputs = tuple(edits.equal.get(name, name) for name in made.input)
        attributes = sorted(a.SerializeToString(deterministic=True) for a in made.attribute)
        first = seen.setdefault((made.op_type, inputs, *attributes), made.output[0])
        if first != made.output[0]:
            edits.equal[made.output[0]] = first
    return edits.apply(net)


def without_unread_results(net: Net) -> Net:
    """An operator that has more to say than anybody reads says the first only."""
    edits = Edits()
    for made in net.nodes:
        extra = made.output[1:]
        if made.op_type in _TALKATIVE and extra and not any(net.is_read(name) for name in extra):
            less = NodeProto()
            less.CopyFrom(made)
            del less.output[1:]
            edits.instead[made.output[0]] = [less]
    return edits.apply(net)


def without_unread(net: Net) -> Net:
    """Only nodes that an output needs."""
    needed, kept = set(net.outputs), []
    for made in reversed(net.nodes):
        if needed.intersection(made.output):
            needed.update(made.input)
            kept.append(made)
    edits = Edits(instead={made.output[0]: [] for made in net.nodes})
    edits.instead |= {made.output[0]: [made] for made in kept}
    return edits.apply(net)
