"""Operators that take parts of a tensor or write into them: slices, gathers, scatters, padding.

Where they look is data, and onnxruntime checks each index when it runs. Only indices known
beforehand to lie outside are refused here.
"""

from __future__ import annotations

from typing import Final

from crowdgrad.program.graph import ELEMENTS
from crowdgrad.program.shapes.base import BOOL, INT32, INT64, Call, Dims, Value
from crowdgrad.program.shapes.known import larger, smaller
from crowdgrad.program.shapes.shaping import steps
from crowdgrad.program.sizes import (
    MAX_SIZE,
    Size,
    add,
    at_most,
    least,
    negative,
    never_negative,
    show,
    subtract,
)

Values = tuple[Value, ...]
_REDUCTIONS: Final = frozenset({b"none", b"add", b"mul", b"max", b"min"})


def cut(call: Call) -> Values:
    """Slice: axes that are not named stay whole."""
    x = call.input(0)
    starts, ends = call.known(1, "its starts"), call.known(2, "its ends")
    axes = call.known(3, "its axes") if call.has(3) else tuple(range(len(starts)))
    jumps = call.known(4, "its steps") if call.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(jumps):
        raise call.refusal("its starts, ends, axes and steps are not equally many")
    dims, known = list(x.dims), x.known
    for axis, start, end, step in zip(call.axes(axes, len(dims)), starts, ends, jumps, strict=True):
        if not isinstance(step, int) or not 0 < abs(step) < 1 << 31:
            raise call.refusal(f"a step of {step}")
        first, last = _bounds(call, x.dims[axis], start, end, step)
        dims[axis] = steps(call, first, last, step)
        known = _picked(x, first, last, step)
    return (call.make(x.element, tuple(dims), known if len(dims) == 1 or not starts else None),)


def _bounds(call: Call, whole: Size, start: Size, end: Size, step: int) -> tuple[Size, Size]:
    """Where a slice begins and ends, counted from the front and held inside the axis."""
    if step < 0 and not at_most(end, MAX_SIZE):  # onnxruntime then reads it as "to the front"
        raise call.refusal(f"steps of {step} to {end}")
    least: Size = 0 if step > 0 else -1
    most = whole if step > 0 else subtract(whole, 1)
    first = _held(call, _from_front(call, start, whole), 0, most)
    return first, _held(call, _from_front(call, end, whole), least, most)


def _from_front(call: Call, place: Size, whole: Size) -> Size:
    if isinstance(place, int):
        place = max(-MAX_SIZE, min(MAX_SIZE, place))  # "to the end" is the largest there is
    below = at_most(place, -1)
    if below is None:
        raise call.refusal(f"whether {place} counts from the end depends on the batch")
    return add(place, whole) if below else place


def _held(call: Call, place: Size, least: Size, most: Size) -> Size:
    above = larger(place, least)
    held = None if above is None else smaller(above, most)
    if held is None:
        raise call.refusal(f"whether {place} lies within {most} depends on the batch")
    return held


def _picked(x: Value, first: Size, last: Size, step: int) -> Dims | None:
    if x.short is None or not isinstance(first, int) or not isinstance(last, int):
        return None
    return tuple(x.short[k] for k in range(first, last, step))


def pad(call: Call) -> Values:
    """By a constant; a negative number of places cuts off."""
    x, pads = call.input(0), call.known(1, "its padding")
    rank = len(x.dims)
    if call.text("mode", b"constant") != b"constant":
        raise call.refusal("it may pad by a constant only")
    if call.has(2):
        filler = call.input(2)
        call.alike(x, filler)
        if filler.dims not in ((), (1,)):
            raise call.refusal("it may pad by one number only")
    if not rank or len(pads) != 2 * rank:
        raise call.refusal(f"{len(pads)} paddings for {rank} axes")
    ends = zip(x.dims, pads[:rank], pads[rank:], strict=True)
    return (call.make(x.element, tuple(_padded(call, *end) for end in ends)),)


def _padded(call: Call, whole: Size, before: Size, after: Size) -> Size:
    kept = whole
    for places in (before, after):
        if at_most(places, 0):
            kept = add(kept, places)
        elif not at_most(0, places):
            raise call.refusal(f"whether {places} pads or cuts depends on the batch")
    if not never_negative(kept):
        raise call.refusal(f"it cuts more than there is of {whole}")
    return add(add(whole, before), after)


def _indices(call: Call, value: Value, types: tuple[int, ...] = (INT64, INT32)) -> None:
    if value.element not in types:
        raise call.refusal(f"indices must be int64, not {ELEMENTS[value.element]}")


def _inside(call: Call, indices: Value, whole: Size) -> None:
    """Refuse indices that are outside whatever the batch; others are left to the runtime."""
    if least(whole) == 0:
        raise call.refusal("it looks into an axis without anything")
    for index in indices.short or ():
        if at_most(index, subtract(whole, 1)) is False or at_most(negative(whole), index) is False:
            raise call.refusal(f"index {index} lies outside {whole}")


def gather(call: Call) -> Values:
    x, indices = call.input(0), call.input(1)
    _indices(call, indices)
    axis = call.axis(call.number("axis", 0), len(x.dims))
    _inside(call, indices, x.dims[axis])
    dims = (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :])
    return (call.make(x.element, dims, _looked_up(x, indices)),)


def _looked_up(x: Value, indices: Value) -> Dims | None:
    if x.known is None or indices.short is None or len(x.dims) != 1:
        return None
    places = [index for index in indices.short if isinstance(index, int)]
    return tuple(x.known[k] for k in places) if len(places) == len(indices.short) else None


def _within(call: Call, indices: Value, x: Value) -> int:
    """The axis of an operator whose indices lie in a part of its data, and that they do."""
    _indices(call, indices)
    axis = call.axis(call.number("axis", 0), len(x.dims))
    if len(indices.dims) != len(x.dims):
        raise call.refusal(f"indices {show(indices.dims)} for {show(x.dims)}")
    for k, size in enumerate(indices.dims):
        if k != axis:
            call.no_longer(size, x.dims[k], "its indices")
    _inside(call, indices, x.dims[axis])
    return axis


def gather_elements(call: Call) -> Values:
    x, indices = call.input(0), call.input(1)
    _within(call, indices, x)
    return (call.make(x.element, indices.dims),)


def scatter_elements(call: Call) -> Values:
    x, indices, updates = call.input(0), call.input(1), call.input(2)
    _reduces(call, call.alike(x, updates))
    _within(call, indices, x)
    if updates.dims != indices.dims:
        raise call.refusal(f"{show(updates.dims)} to write at {show(indices.dims)} places")
    return (Value(x.element, x.dims),)


def _reduces(call: Call, element: int) -> None:
    how = call.text("reduction", b"none")
    if how not in _REDUCTIONS or (element == BOOL and how != b"none"):
        raise call.refusal(f"it cannot combine {ELEMENTS[element]} by {how[:16]!r}")


def _depth(call: Call, indices: Value, x: Value) -> int:
    """How many axes each index of the ND operators names: the size of its last axis."""
    _indices(call, indices, (INT64,))
    depth = indices.dims[-1] if indices.dims else 0
    if not isinstance(depth, int) or not 1 <= depth <= len(x.dims):
        raise call.refusal(f"indices of shape {show(indices.dims)} for {show(x.dims)}")
    if any(least(size) == 0 for size in x.dims[:depth]):
        raise call.refusal("it looks into an axis without anything")
    return depth


def gather_nd(call: Call) -> Values:
    x, indices = call.input(0), call.input(1)
    if call.number("batch_dims", 0) != 0:
        raise call.refusal("its batch_dims must be 0")
    depth = _depth(call, indices, x)
    return (call.make(x.element, (*indices.dims[:-1], *x.dims[depth:])),)


def scatter_nd(call: Call) -> Values:
    x, indices, updates = call.input(0), call.input(1), call.input(2)
    _reduces(call, call.alike(x, updates))
    depth = _depth(call, indices, x)
    if updates.dims != (*indices.dims[:-1], *x.dims[depth:]):
        raise call.refusal(
            f"{show(updates.dims)} to write at {show(indices.dims)} places of {show(x.dims)}"
        )
    return (Value(x.element, x.dims),)
