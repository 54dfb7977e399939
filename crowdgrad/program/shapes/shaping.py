"""Operators that give the same numbers another shape, or make shapes and numbers from nothing."""

from __future__ import annotations

import math
import struct
from collections import Counter
from typing import Final

from crowdgrad.program.graph import ELEMENTS, Constant
from crowdgrad.program.shapes.base import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    MAX_KNOWN,
    MAX_LISTED,
    UINT8,
    Call,
    Dims,
    Value,
)
from crowdgrad.program.shapes.known import fits
from crowdgrad.program.sizes import (
    Size,
    add,
    at_most,
    divide,
    least,
    multiply,
    never_negative,
    product,
    show,
    subtract,
)

Values = tuple[Value, ...]


def reshape(call: Call) -> Values:
    x, wanted = call.input(0), call.known(1, "its shape")
    copies = not call.flag("allowzero")
    dims = [_copied(call, x, k, size) if copies else size for k, size in enumerate(wanted)]
    total = product(x.dims)
    if -1 in dims:
        if dims.count(-1) > 1 or (not copies and 0 in dims):
            raise call.refusal(f"its shape {show(wanted)} leaves more than one size open")
        place = dims.index(-1)
        rest = product((*dims[:place], *dims[place + 1 :]))
        size = divide(total, rest) if least(rest) else None
        dims[place] = -1 if size is None else size
    made = call.make(x.element, tuple(dims), x.known) if all(map(never_negative, dims)) else None
    if made is None or product(made.dims) != total:
        raise call.refusal(f"{show(x.dims)} cannot take the shape {show(wanted)}")
    return (made,)


def _copied(call: Call, x: Value, place: int, size: Size) -> Size:
    """0 means the size that is there. A size that may become 0 would mean it at times."""
    if size == 0 and place < len(x.dims):
        return x.dims[place]
    if size == 0 or (not isinstance(size, int) and least(size) <= 0):
        raise call.refusal(f"a size of {size} in its shape")
    return size


def flatten(call: Call) -> Values:
    x, axis = call.input(0), call.number("axis", 1)
    rank = len(x.dims)
    if not -rank <= axis <= rank:
        raise call.refusal(f"its axis is {axis}, of a tensor with {rank} dimensions")
    axis += rank if axis < 0 else 0
    return (call.make(x.element, (product(x.dims[:axis]), product(x.dims[axis:])), x.known),)


def squeeze(call: Call) -> Values:
    x = call.input(0)
    given = call.known(1, "its axes") if call.has(1) else ()
    axes = call.axes(given, len(x.dims)) or tuple(k for k, n in enumerate(x.dims) if n == 1)
    if any(x.dims[axis] != 1 for axis in axes):
        raise call.refusal(f"an axis of {show(x.dims)} that it takes away is not 1")
    if not given and any(not isinstance(n, int) and least(n) < 2 for n in x.dims):
        raise call.refusal("what it takes away would depend on the batch")
    dims = tuple(size for k, size in enumerate(x.dims) if k not in axes)
    return (call.make(x.element, dims, x.known),)


def unsqueeze(call: Call) -> Values:
    x, given = call.input(0), call.known(1, "its axes")
    rank = len(x.dims) + len(given)
    axes = call.axes(given, rank)
    left = iter(x.dims)
    dims = tuple(1 if k in axes else next(left) for k in range(rank))
    return (call.make(x.element, dims, x.known),)


def transpose(call: Call) -> Values:
    x, perm = call.input(0), call.numbers("perm")
    perm = tuple(range(len(x.dims)))[::-1] if perm is None else perm
    if sorted(perm) != list(range(len(x.dims))):
        raise call.refusal(f"{perm} is no order of {len(x.dims)} axes")
    known = x.known if len(x.dims) < 2 else None
    return (call.make(x.element, tuple(x.dims[k] for k in perm), known),)


def concat(call: Call) -> Values:
    parts = call.every()
    element, first = call.alike(*parts), parts[0].dims
    axis = call.axis(call.number("axis"), len(first))
    length: Size = 0
    for dims, times in Counter(part.dims for part in parts).items():
        around = dims[:axis] + dims[axis + 1 :]
        if len(dims) != len(first) or around != first[:axis] + first[axis + 1 :]:
            raise call.refusal(f"{show(first)} and {show(dims)} do not fit together")
        length = add(length, multiply(dims[axis], times))
    known: Dims | None = None
    if len(first) == 1 and isinstance(length, int) and length <= MAX_KNOWN:
        contents = [part.known for part in parts]
        known = sum((c for c in contents if c is not None), ()) if None not in contents else None
    return (call.make(element, (*first[:axis], length, *first[axis + 1 :]), known),)


def split(call: Call) -> Values:
    x = call.input(0)
    axis = call.axis(call.number("axis", 0), len(x.dims))
    whole = x.dims[axis]
    sizes = call.known(1, "its sizes", most=call.outputs) if call.has(1) else _even(call, whole)
    total: Size = 0
    for size in sizes:
        total = add(total, size)
    if len(sizes) != call.outputs or total != whole or not all(map(never_negative, sizes)):
        raise call.refusal(f"{show(sizes)} are not {call.outputs} parts of {whole}")
    made = {
        size: call.make(x.element, (*x.dims[:axis], size, *x.dims[axis + 1 :]))
        for size in set(sizes)
    }
    return tuple(made[size] for size in sizes)


def _even(call: Call, whole: Size) -> Dims:
    """Equal parts; the last may be smaller."""
    count = call.number("num_outputs")
    if count != call.outputs or count < 1:
        raise call.refusal(f"it makes {call.outputs} parts, not {count}")
    part = -(-whole // count) if isinstance(whole, int) else divide(whole, count)
    if part is None:
        raise call.refusal(f"{whole} cannot be cut into {count} equal parts for every batch")
    last = subtract(whole, multiply(part, count - 1))
    if not at_most(1, last):
        raise call.refusal(f"{whole} cannot be cut into {count} parts")
    return (*[part] * (count - 1), last)


def tile(call: Call) -> Values:
    x, times = call.input(0), call.known(1, "its repeats")
    if len(times) != len(x.dims) or not all(map(never_negative, times)):
        raise call.refusal(f"its repeats {show(times)} do not fit {show(x.dims)}")
    dims = tuple(multiply(size, n) for size, n in zip(x.dims, times, strict=True))
    return (call.make(x.element, dims),)


def shape(call: Call) -> Values:
    dims = call.input(0).dims
    dims = dims[call.number("start", 0) : call.number("end", len(dims))]
    return (Value(INT64, (len(dims),), dims),)


def size(call: Call) -> Values:
    try:
        total = product(call.input(0).dims)
    except OverflowError:
        return (Value(INT64, ()),)
    return (Value(INT64, (), (total,) if fits(total, INT64) else None),)


def span(call: Call) -> Values:
    """Range: from a start up to a limit, in steps."""
    ranks = (0,)
    start = call.known_one(0, "its start", ranks)
    limit = call.known_one(1, "its limit", ranks)
    step = call.known_one(2, "its step", ranks)
    count = steps(call, start, limit, step)
    known: Dims | None = None
    if isinstance(count, int) and count <= MAX_KNOWN:
        known = tuple(add(start, multiply(step, k)) for k in range(count))
    return (call.make(INT64, (count,), known),)


def steps(call: Call, start: Size, limit: Size, step: Size) -> Size:
    """How many steps lead from a start to just before a limit; none where they lead away."""
    if not isinstance(step, int) or step == 0:
        raise call.refusal(f"steps of {step} lead nowhere")
    way = subtract(limit, start) if step > 0 else subtract(start, limit)
    if isinstance(way, int):
        return max(0, -(-way // abs(step)))
    if at_most(way, 0):
        return 0
    count = divide(way, abs(step))
    if count is None or not never_negative(count):
        raise call.refusal(f"the number of steps of {step} from {start} to {limit} is not certain")
    return count


def constant_of_shape(call: Call) -> Values:
    dims = call.known(0, "its shape")
    value = call.attributes.get("value")
    if value is None:
        return (call.make(FLOAT, dims),)
    if not isinstance(value, Constant) or value.dims != (1,):
        raise call.refusal("its value must be a list of one number")
    filler = constant(call, value)
    made = call.make(filler.element, dims)
    fixed = [size for size in dims if isinstance(size, int)]
    if filler.known is None or len(fixed) != len(dims) or math.prod(fixed) > MAX_KNOWN:
        return (made,)
    return (Value(made.element, dims, filler.known * math.prod(fixed)),)


_BYTES: Final = {
    FLOAT: 4, UINT8: 1, INT8: 1, INT16: 2, INT32: 4, INT64: 8, BOOL: 1, DOUBLE: 8,
}  # fmt: skip
_LETTERS: Final = {UINT8: "B", INT8: "b", INT16: "h", INT32: "i", INT64: "q", BOOL: "?"}


def constant(call: Call, tensor: Constant) -> Value:
    """A tensor inside the file."""
    if tensor.element not in ELEMENTS:
        raise call.refusal(f"a constant of element type {tensor.element}")
    value = call.make(tensor.element, tensor.dims)
    count = math.prod(tensor.dims)
    if len(tensor.data) != count * _BYTES[tensor.element]:
        raise call.refusal(f"a constant of shape {tensor.dims} holds {len(tensor.data)} bytes")
    letter = _LETTERS.get(tensor.element)
    if count > MAX_LISTED or letter is None:
        return value
    return Value(value.element, value.dims, struct.unpack(f"<{count}{letter}", tensor.data))
