"""Chains of per-channel arithmetic as one pass over memory.

Normalising a batch of images subtracts a number for each channel, multiplies by another, by a third
and adds a fourth, and the backward pass does the like: four passes over the largest values there
are. The operator BatchNormalization, which in inference mode is (x − m)·s + b, does it in one. It
knows float32 only; whole numbers it would refuse, and others it would meet with our constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from onnx import NodeProto, TensorProto

from crowdgrad.capture.tidy.net import Edits, Net, Sizes, node

FEWEST: Final = 2
"""Passes that a map must save to be worth its own small arithmetic."""
_OPS: Final = ("Add", "Sub", "Mul", "Div")


@dataclass(frozen=True, slots=True)
class _Link:
    """One step of a chain: `x op number`, a number for each channel."""

    op: str
    x: str
    number: str


def with_channel_maps(net: Net) -> Net:
    edits = Edits()
    inner: set[str] = set()
    for made in reversed(net.nodes):
        name = made.output[0]
        if name in inner or (first := _link(net, made)) is None:
            continue
        chain = [first]
        while (before := net.maker(chain[-1].x, *_OPS)) is not None:
            link = _link(net, before)
            if link is None:
                break
            chain.append(link)
        # What others read as well stays; going on behind it costs nothing, but saves nothing.
        saved = 1 + sum(net.reader(link.x) is not None for link in chain[:-1])
        if saved >= FEWEST:
            inner.update(link.x for link in chain[:-1])
            edits.instead[name] = _Map(net, edits, name).nodes(chain[::-1])
    return edits.apply(net)


def _link(net: Net, made: NodeProto) -> _Link | None:
    """The node as a step of a chain, if it is one."""
    name = made.output[0]
    sizes = net.sizes.get(name)
    if made.op_type not in _OPS or sizes is None or len(sizes) < 3 or name in net.outputs:
        return None
    if net.elements.get(name) != TensorProto.FLOAT:
        return None
    left, right = made.input
    if _per_channel(net.sizes.get(right), sizes) and net.sizes.get(left) == sizes:
        return _Link(made.op_type, left, right)
    if made.op_type in ("Add", "Mul") and _per_channel(net.sizes.get(left), sizes):
        return _Link(made.op_type, right, left) if net.sizes.get(right) == sizes else None
    return None


def _per_channel(sizes: Sizes | None, whole: Sizes) -> bool:
    """Whether a value has one number for each channel, the axis after the samples."""
    channels = whole[1]
    if sizes is None or not isinstance(channels, int) or channels < 2:
        return False
    wanted: Sizes = (channels, *(1 for _ in whole[2:]))
    return sizes in (wanted, (1, *wanted))


class _Map:
    """The nodes of one map: small arithmetic on the numbers, then the pass."""

    def __init__(self, net: Net, edits: Edits, name: str) -> None:
        self._edits = edits
        self._name = name
        self._channels = int(net.sizes[name][1])
        self._small: list[NodeProto] = []

    def nodes(self, chain: list[_Link]) -> list[NodeProto]:
        """(x − m)·s + b, composed step by step."""
        mean: str | None = None
        scale: str | None = None
        shift: str | None = None
        for link in chain:
            number = self._vector(link.number)
            if link.op in ("Mul", "Div"):
                scale = self._join(link.op, scale or self._constant(1.0), number)
                shift = None if shift is None else self._join(link.op, shift, number)
            elif link.op == "Sub" and mean is None and scale is None and shift is None:
                mean = number
            else:
                shift = self._join(link.op, shift or self._constant(0.0), number)
        zero, one = self._constant(0.0), self._constant(1.0)
        inputs = [chain[0].x, scale or one, shift or zero, mean or zero, one]
        return [*self._small, node("BatchNormalization", inputs, self._name, epsilon=0.0)]

    def _vector(self, number: str) -> str:
        shape = self._edits.integers(f"{self._name}.channels", (self._channels,))
        return self._add("Reshape", [number, shape])

    def _join(self, op: str, left: str, right: str) -> str:
        neutral = f"{self._name}.one" if op in ("Mul", "Div") else f"{self._name}.zero"
        if left == neutral and op in ("Mul", "Add"):
            return right
        return self._add(op, [left, right])

    def _constant(self, value: float) -> str:
        name = f"{self._name}.{'one' if value else 'zero'}"
        self._edits.constants[name] = np.full(self._channels, value, np.float32)
        self._edits.sizes[name] = (self._channels,)
        return name

    def _add(self, op: str, inputs: list[str]) -> str:
        name = f"{self._name}.{len(self._small)}"
        self._small.append(node(op, inputs, name))
        self._edits.sizes[name] = (self._channels,)
        return name
