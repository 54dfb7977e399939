"""Arithmetic on known contents: what the exporter emits to compute shapes from shapes.

Contents are followed only while they are certain for every batch; None means no longer known. That
is never wrong, only less: a tensor that decides about sizes and is not known is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Final

from crowdgrad.program.shapes.base import BOOL, INT64, MAX_KNOWN, WHOLE, Dims, Value
from crowdgrad.program.sizes import (
    Size,
    add,
    at_most,
    divide,
    multiply,
    negative,
    subtract,
)


def fits(size: Size | None, element: int) -> bool:
    """Whether a runtime has this very number too, without wrapping around."""
    if not isinstance(size, int):  # polynomials are bounded when they are made
        return size is not None and element == INT64
    least, most = WHOLE[element]
    return least <= size <= most


def stretch(value: Value, dims: Dims) -> Dims | None:
    """Contents broadcast to a shape, where that only repeats one number or adds axes of size 1."""
    known = value.known
    if known is None or any(not isinstance(size, int) for size in dims):
        return None
    count = 1
    for size in dims:
        count *= size if isinstance(size, int) else 0
    if count > MAX_KNOWN:
        return None
    if len(known) == 1:
        return known * count
    aligned = zip_longest(reversed(value.dims), reversed(dims), fillvalue=1)
    return known if all(a == b for a, b in aligned) else None


def zipped(
    rule: Callable[[Size, Size], Size | None], first: Value, second: Value, element: int, dims: Dims
) -> Dims | None:
    """The contents of an operator on two values, broadcast to `dims`."""
    if first.known is None or second.known is None or element not in WHOLE:
        return None
    left, right = stretch(first, dims), stretch(second, dims)
    if left is None or right is None:
        return None
    return mapped(rule, left, right, element)


def mapped(
    rule: Callable[[Size, Size], Size | None], left: Dims, right: Dims, element: int
) -> Dims | None:
    results = []
    for a, b in zip(left, right, strict=True):
        try:
            result = rule(a, b)
        except OverflowError:
            return None
        if result is None or not fits(result, element):
            return None
        results.append(result)
    return tuple(results)


def quotient(a: Size, b: Size) -> Size | None:
    """Division as runtimes do it, towards zero."""
    if b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return divide(a, b)


def smaller(a: Size, b: Size) -> Size | None:
    return a if at_most(a, b) else b if at_most(b, a) else None


def larger(a: Size, b: Size) -> Size | None:
    return b if at_most(a, b) else a if at_most(b, a) else None


def equal(a: Size, b: Size) -> int | None:
    if a == b:
        return 1
    below, above = at_most(a, b), at_most(b, a)
    return 0 if below is False or above is False else None


def _differ(a: Size, b: Size) -> Size | None:
    return {0: 1, 1: 0, None: None}[equal(a, b)]


ARITHMETIC: Final[dict[str, Callable[[Size, Size], Size | None]]] = {
    "Add": add,
    "Div": quotient,
    "Max": larger,
    "Min": smaller,
    "Mul": multiply,
    "Sub": subtract,
}


def opposite(value: Value) -> Dims | None:
    if value.short is None:
        return None
    numbers = tuple(negative(number) for number in value.short)
    return numbers if all(fits(number, value.element) for number in numbers) else None


def cast(value: Value, element: int) -> Dims | None:
    """Contents after a cast; to bool only where it is certain whether a number is zero."""
    known = value.short
    if known is None or element not in WHOLE:
        return None
    if element == BOOL:
        return mapped(_differ, known, (0,) * len(known), BOOL)
    return known if all(fits(number, element) for number in known) else None


def chosen(condition: Value, yes: Value, no: Value, dims: Dims) -> Dims | None:
    """Contents of Where."""
    parts = [stretch(value, dims) for value in (condition, yes, no)]
    if yes.element not in WHOLE or any(part is None for part in parts):
        return None
    flags, left, right = (part or () for part in parts)
    return tuple(a if flag else b for flag, a, b in zip(flags, left, right, strict=True))
