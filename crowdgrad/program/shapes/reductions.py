"""Operators that take axes away or work along one: sums, largest, running sums, sorting."""

from __future__ import annotations

from typing import Final

from crowdgrad.program.shapes.base import INT64, Call, Dims, Value
from crowdgrad.program.shapes.known import fits
from crowdgrad.program.sizes import least, never_negative, product

Values = tuple[Value, ...]
_NEEDS_ONE: Final = ("ReduceMax", "ReduceMean", "ReduceMin")


def reduction(call: Call) -> Values:
    """Axes come as an input; none means all of them, or by request no reduction at all."""
    x = call.input(0)
    given = call.known(1, "its axes") if call.has(1) else ()
    axes = call.axes(given, len(x.dims)) or tuple(range(len(x.dims)))
    if call.flag("noop_with_empty_axes") and not given:
        axes = ()
    if call.op in _NEEDS_ONE and any(least(x.dims[axis]) == 0 for axis in axes):
        raise call.refusal("there is no largest, smallest or mean of nothing")
    dims = _without(x.dims, axes, call.flag("keepdims", default=True))
    return (call.make(x.element, dims, _folded(call.op, x, axes)),)


def _without(dims: Dims, axes: tuple[int, ...], keep: bool) -> Dims:
    if keep:
        return tuple(1 if axis in axes else size for axis, size in enumerate(dims))
    return tuple(size for axis, size in enumerate(dims) if axis not in axes)


def _folded(op: str, x: Value, axes: tuple[int, ...]) -> Dims | None:
    """The product of a known list, which is how a number of elements is computed."""
    if op != "ReduceProd" or x.short is None or len(axes) != len(x.dims):
        return None
    try:
        result = product(x.short)
    except OverflowError:
        return None
    return (result,) if fits(result, x.element) else None


def arg(call: Call) -> Values:
    """The place of the largest or smallest along an axis."""
    x = call.input(0)
    axis = call.axis(call.number("axis", 0), len(x.dims))
    if any(least(size) == 0 for size in x.dims):  # onnxruntime then forgets to reduce
        raise call.refusal("there is no largest or smallest of nothing")
    call.flag("select_last_index")
    return (call.make(INT64, _without(x.dims, (axis,), call.flag("keepdims", default=True))),)


def top(call: Call) -> Values:
    """The k largest or smallest along an axis, and their places."""
    x, k = call.input(0), call.known_one(1, "its k", (1,))
    axis = call.axis(call.number("axis", -1), len(x.dims))
    call.flag("largest", default=True)
    call.flag("sorted", default=True)
    if not never_negative(k):
        raise call.refusal(f"its k is {k}")
    call.no_longer(k, x.dims[axis], "its k")
    if call.outputs != 2:
        raise call.refusal("it makes values and their places, two outputs")
    dims = (*x.dims[:axis], k, *x.dims[axis + 1 :])
    return (call.make(x.element, dims), call.make(INT64, dims))


def running(call: Call) -> Values:
    """CumSum."""
    x = call.input(0)
    call.axis(call.known_one(1, "its axis"), len(x.dims))
    call.flag("exclusive")
    call.flag("reverse")
    return (Value(x.element, x.dims),)
