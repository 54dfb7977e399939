"""Operators that work number by number, and those that keep their input's shape along an axis."""

from __future__ import annotations

from typing import Final

from crowdgrad.program.graph import ELEMENTS
from crowdgrad.program.shapes.base import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    Call,
    Value,
)
from crowdgrad.program.shapes.known import (
    ARITHMETIC,
    cast,
    chosen,
    equal,
    opposite,
    stretch,
    zipped,
)
from crowdgrad.program.sizes import at_most

Values = tuple[Value, ...]
_EXPONENTS: Final = frozenset({FLOAT, INT32, INT64, DOUBLE})


def one(call: Call) -> Values:
    """f(x): the shape and type of x."""
    x = call.input(0)
    known = opposite(x) if call.op == "Neg" else x.known if call.op == "Identity" else None
    return (Value(x.element, x.dims, known),)


def one_to_bool(call: Call) -> Values:
    return (Value(BOOL, call.input(0).dims),)


def along_axis(call: Call) -> Values:
    """Softmax and its kind."""
    x = call.input(0)
    call.axis(call.number("axis", -1), len(x.dims))
    return (Value(x.element, x.dims),)


def two(call: Call) -> Values:
    """f(x, y) of one type, broadcast."""
    x, y = call.input(0), call.input(1)
    element = call.alike(x, y)
    if call.op in ("Div", "Mod"):
        _refuse_traps(call, y)
    dims = call.broadcast(x.dims, y.dims)
    rule = ARITHMETIC.get(call.op)
    return (call.make(element, dims, zipped(rule, x, y, element, dims) if rule else None),)


def _refuse_traps(call: Call, divisor: Value) -> None:
    """Whole numbers divided by 0, or the smallest by −1, can end a process: only known divisors."""
    if divisor.element in (FLOAT, DOUBLE):
        if call.op == "Mod" and not call.flag("fmod"):
            raise call.refusal("the remainder of floating-point numbers needs fmod = 1")
        return
    if divisor.short is None or not all(at_most(1, number) for number in divisor.short):
        raise call.refusal("whole numbers may only be divided by known numbers above zero")


def compare(call: Call) -> Values:
    x, y = call.input(0), call.input(1)
    call.alike(x, y)
    dims = call.broadcast(x.dims, y.dims)
    known = zipped(equal, x, y, BOOL, dims) if call.op == "Equal" else None
    return (call.make(BOOL, dims, known),)


def many(call: Call) -> Values:
    """Max and Min of any number of tensors."""
    first, *others = call.every()
    call.alike(first, *others)
    rule, result = ARITHMETIC[call.op], first
    for other in others:
        dims = call.broadcast(result.dims, other.dims)
        result = Value(first.element, dims, zipped(rule, result, other, first.element, dims))
    return (call.make(first.element, result.dims, result.known),)


def power(call: Call) -> Values:
    x, exponent = call.input(0), call.input(1)
    if exponent.element not in _EXPONENTS:
        raise call.refusal(f"exponents of {ELEMENTS[exponent.element]} do not exist")
    return (call.make(x.element, call.broadcast(x.dims, exponent.dims)),)


def where(call: Call) -> Values:
    condition, yes, no = call.input(0), call.input(1), call.input(2)
    if condition.element != BOOL:
        raise call.refusal(f"its condition must be bool, not {ELEMENTS[condition.element]}")
    element = call.alike(yes, no)
    dims = call.broadcast(call.broadcast(condition.dims, yes.dims), no.dims)
    return (call.make(element, dims, chosen(condition, yes, no, dims)),)


def clip(call: Call) -> Values:
    x = call.input(0)
    for index in (1, 2):
        if call.has(index):
            bound = call.input(index)
            call.alike(x, bound)
            if bound.dims:
                raise call.refusal("its bounds must be single numbers")
    return (Value(x.element, x.dims),)


def cast_to(call: Call) -> Values:
    x = call.input(0)
    element = call.input(1).element if call.op == "CastLike" else call.number("to")
    if element not in ELEMENTS:
        raise call.refusal(f"it casts to element type {element}")
    return (Value(element, x.dims, cast(x, element)),)


def expand(call: Call) -> Values:
    """Expand: broadcast with a shape."""
    x, shape = call.input(0), call.known(1, "its shape")
    dims = call.broadcast(x.dims, shape)
    return (call.make(x.element, dims, stretch(x, dims)),)
