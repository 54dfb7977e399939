"""Products of matrices."""

from __future__ import annotations

from crowdgrad.program.shapes.base import Call, Value
from crowdgrad.program.sizes import least, show

Values = tuple[Value, ...]


def matmul(call: Call) -> Values:
    """numpy's rule: stacks of matrices broadcast, a vector is a row or a column and drops out."""
    x, y = call.input(0), call.input(1)
    element = call.alike(x, y)
    if not x.dims or not y.dims:
        raise call.refusal("it multiplies a single number")
    left = x.dims if len(x.dims) > 1 else (1, *x.dims)
    right = y.dims if len(y.dims) > 1 else (*y.dims, 1)
    if left[-1] != right[-2]:
        raise call.refusal(f"shapes {show(x.dims)} and {show(y.dims)} do not multiply")
    stack = call.broadcast(left[:-2], right[:-2])
    if any(least(size) == 0 for size in stack):
        raise call.refusal("it multiplies no matrices at all")
    row = left[-2:-1] if len(x.dims) > 1 else ()
    column = right[-1:] if len(y.dims) > 1 else ()
    return (call.make(element, (*stack, *row, *column)),)


def gemm(call: Call) -> Values:
    a, b = call.input(0), call.input(1)
    element = call.alike(a, b)
    if len(a.dims) != 2 or len(b.dims) != 2:
        raise call.refusal(f"shapes {show(a.dims)} and {show(b.dims)} are no matrices")
    rows, inner = a.dims[::-1] if call.flag("transA") else a.dims
    other, columns = b.dims[::-1] if call.flag("transB") else b.dims
    if inner != other:
        raise call.refusal(f"shapes {show(a.dims)} and {show(b.dims)} do not multiply")
    if call.has(2):
        c = call.input(2)
        call.alike(a, c)
        if call.broadcast((rows, columns), c.dims) != (rows, columns):
            raise call.refusal(f"what it adds, {show(c.dims)}, does not fit the product")
    return (call.make(element, (rows, columns)),)
