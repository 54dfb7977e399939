"""Sums over time steps as one operation on what is summed.

A recurrent model uses its weights at every step, so their gradient is a sum of small products:

    Σₜ Aₜᵀ·Bₜ = Aᵀ·B        Σₜ 1ᵀ·Aₜ = 1ᵀ·A        with A, B the Aₜ, Bₜ stacked

One product of long matrices keeps the processor busy where many short ones mostly start and end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import NodeProto

from crowdgrad.capture.tidy.net import Edits, Net, Sizes, attribute, node

FEWEST = 3
"""Terms that are worth stacking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    """Aᵀ·B, or where there is no B the sum of A's rows."""

    value: str
    a: str
    b: str | None
    kind: tuple[object, ...]
    """Terms of one kind can be stacked."""


def with_stacked_sums(net: Net) -> Net:
    edits = Edits()
    for root in net.nodes:
        name = root.output[0]
        if root.op_type == "Add" and not _is_inner(net, name):
            leaves = list(_leaves(net, root, net.sizes.get(name)))
            if nodes := _stacked(net, edits, name, leaves):
                edits.instead[name] = nodes
    return edits.apply(net)


def _is_inner(net: Net, name: str) -> bool:
    """Whether it is but a term of a larger sum."""
    reader = net.reader(name)
    if reader is None or reader.op_type != "Add":
        return False
    return net.sizes.get(reader.output[0]) == net.sizes.get(name)


def _leaves(net: Net, root: NodeProto, sizes: Sizes | None) -> Iterator[str]:
    """The terms of a sum of equally large values, in order."""
    for name in root.input:
        inner = net.maker(name, "Add")
        if inner is None or net.reader(name) is None or net.sizes.get(name) != sizes:
            yield name
        else:
            yield from _leaves(net, inner, sizes)


def _stacked(net: Net, edits: Edits, name: str, leaves: list[str]) -> list[NodeProto]:
    """The nodes that make the sum, or none where nothing can be stacked."""
    kinds: dict[tuple[object, ...], list[_Term]] = {}
    for leaf in leaves:
        if (term := _term(net, leaf)) is not None:
            kinds.setdefault(term.kind, []).append(term)
    groups = [terms for terms in kinds.values() if len(terms) >= FEWEST]
    if not groups:
        return []
    taken = {term.value for terms in groups for term in terms}
    rest = [leaf for leaf in leaves if leaf not in taken]
    nodes: list[NodeProto] = []
    for index, terms in enumerate(groups):
        total = name if len(groups) == 1 and not rest else _fresh(net, f"{name}.sum{index}")
        nodes += _one(net, edits, total, terms)
        rest.append(total)
        edits.sizes[total] = net.sizes[terms[0].value]
    while len(rest) > 1:
        # In between, the sizes are not known: terms may be smaller than the whole sum.
        total = name if len(rest) == 2 else _fresh(net, f"{name}.add{len(rest)}")
        nodes.append(node("Add", rest[:2], total))
        rest = [*rest[2:], total]
    return nodes


def _fresh(net: Net, name: str) -> str:
    """A name that no value has or had: a sum may be stacked again in a later round."""
    while name in net.makers or name in net.sizes:
        name += "+"
    return name


def _term(net: Net, leaf: str) -> _Term | None:
    sizes = net.sizes.get(leaf)
    if sizes is None or net.reader(leaf) is None:
        return None
    product, rows = net.maker(leaf, "MatMul"), net.maker(leaf, "ReduceSum")
    if product is not None and len(sizes) == 2:
        turned = net.maker(product.input[0], "Transpose")
        if turned is not None and len(net.sizes.get(turned.input[0], ())) == 2:
            return _Term(
                value=leaf, a=turned.input[0], b=product.input[1], kind=("product", *sizes)
            )
    if rows is not None and len(rows.input) > 1 and net.integers(rows.input[1]) == (0,):
        a, keep = rows.input[0], bool(attribute(rows, "keepdims", 1))
        if len(net.sizes.get(a, ())) == 2:
            return _Term(value=leaf, a=a, b=None, kind=("rows", keep, *sizes))
    return None


def _one(net: Net, edits: Edits, name: str, terms: list[_Term]) -> list[NodeProto]:
    """All terms of a kind as one."""
    a = f"{name}.a"
    nodes = [node("Concat", [term.a for term in terms], a, axis=0)]
    edits.sizes[a] = (f"{a}.rows", *net.sizes[terms[0].a][1:])
    if terms[0].b is None:
        axes, keep = edits.integers(f"{name}.axes", (0,)), bool(terms[0].kind[1])
        return [*nodes, node("ReduceSum", [a, axes], name, keepdims=int(keep))]
    b, turned = f"{name}.b", f"{name}.t"
    nodes.append(node("Concat", [term.b or "" for term in terms], b, axis=0))
    nodes.append(node("Transpose", [a], turned, perm=[1, 0]))
    return [*nodes, node("MatMul", [turned, b], name)]
