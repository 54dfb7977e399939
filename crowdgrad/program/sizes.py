"""Sizes that depend on the batch: whole numbers, or polynomials in the batch size.

Every size in a program is fixed but for the batch, so a size is an int or a polynomial in B. A
bound must hold for every batch up to the largest, so whatever is used as a dimension has to be
non-negative and to grow with B. Both can be read off at once when the polynomial is written in
t = B − the smallest batch there is: with no negative coefficient it is non-negative at t = 0 and
never falls. So that is how it is kept; it may still be negative (B − 3, say) while it is only a
number in shape arithmetic.

Runtimes compute in 64 bits and wrap around. A polynomial is given up (`OverflowError`) where that
could happen for any batch up to `MAX_BATCH`, so what is computed here is what they compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from crowdgrad.domain.work import MAX_BATCH_SIZE

BATCH: Final = "batch"
"""The name of the one size that may be free."""
MAX_BATCH: Final = MAX_BATCH_SIZE
"""The largest batch the polynomials hold for."""
MAX_DEGREE: Final = 3
MAX_SIZE: Final = 1 << 40
"""No dimension, and no coefficient of one, reaches this."""
_WORD: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Poly:
    """Σ terms[k]·tᵏ, t = B − smallest; at least two terms, the last not zero. Made by `poly`."""

    terms: tuple[int, ...]
    smallest: int = 1

    def __str__(self) -> str:
        parts = [
            f"{'' if abs(c) == 1 and k else abs(c)}{('', 'B', 'B²', 'B³')[k]}"
            for k, c in enumerate(in_batch(self))
        ]
        signs = ["−" if c < 0 else "+" for c in in_batch(self)]
        shown = [(s, p) for s, p, c in zip(signs, parts, in_batch(self), strict=True) if c][::-1]
        first = shown[0][1] if shown[0][0] == "+" else "−" + shown[0][1]
        return " ".join([first, *(f"{sign} {part}" for sign, part in shown[1:])])


Size = int | Poly
B: Final = Poly((1, 1))
"""The batch size itself, where it may be 1."""


def batch_from(smallest: int) -> Poly:
    """The batch size, where batches have at least so many samples."""
    return Poly((smallest, 1), smallest)


def poly(terms: list[int], smallest: int = 1) -> Size:
    """The size with these terms; an int where it does not depend on the batch."""
    while len(terms) > 1 and not terms[-1]:
        terms.pop()
    if len(terms) == 1:
        return terms[0]
    reach = sum(abs(c) * MAX_BATCH**k for k, c in enumerate(terms))
    if len(terms) > MAX_DEGREE + 1 or reach >= _WORD:
        raise OverflowError("a size beyond all bounds")
    return Poly(tuple(terms), smallest)


def add(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    left, right = _terms(a), _terms(b)
    if len(left) < len(right):
        left, right = right, left
    terms = [c + (right[k] if k < len(right) else 0) for k, c in enumerate(left)]
    return poly(terms, _smallest(a, b))


def negative(a: Size) -> Size:
    return -a if isinstance(a, int) else Poly(tuple(-c for c in a.terms), a.smallest)


def subtract(a: Size, b: Size) -> Size:
    return add(a, negative(b))


def multiply(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    left, right = _terms(a), _terms(b)
    terms = [0] * (len(left) + len(right) - 1)
    for i, c in enumerate(left):
        for j, d in enumerate(right):
            terms[i + j] += c * d
    return poly(terms, _smallest(a, b))


def product(sizes: tuple[Size, ...]) -> Size:
    whole, result = 1, cast("Size", 1)
    for size in sizes:
        if isinstance(size, int):  # most are, and polynomials are slow
            whole *= size
        else:
            result = size if result == 1 else multiply(result, size)
    return multiply(result, whole)


def divide(a: Size, b: Size) -> Size | None:
    """a / b where that is exact for every batch, else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    if b == 0:
        return None
    rest, divisor = list(_terms(a)), _terms(b)
    quotient = [0] * max(1, len(rest) - len(divisor) + 1)
    while len(rest) >= len(divisor) and any(rest):
        factor, left_over = divmod(rest[-1], divisor[-1])
        if left_over:
            return None
        shift = len(rest) - len(divisor)
        quotient[shift] = factor
        for k, c in enumerate(divisor):
            rest[shift + k] -= factor * c
        rest.pop()
    return None if any(rest) else poly(quotient, _smallest(a, b))


def at(size: Size, batch: int) -> int:
    """The number a size is at a batch."""
    if isinstance(size, int):
        return size
    t, value = batch - size.smallest, 0
    for c in reversed(size.terms):
        value = value * t + c
    return value


def least(size: Size) -> int:
    """The number a dimension is at the smallest batch."""
    return size if isinstance(size, int) else size.terms[0]


def never_negative(size: Size) -> bool:
    """Whether it is at least 0 and does not fall, whatever the batch: what a dimension must be."""
    return size >= 0 if isinstance(size, int) else min(size.terms) >= 0


def at_most(a: Size, b: Size) -> bool | None:
    """Whether a ≤ b: True or False for every batch alike, None where it depends on the batch."""
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    least, most = _range(subtract(b, a))
    return True if least >= 0 else False if most < 0 else None


def _range(size: Size) -> tuple[int, int]:
    """Bounds of what a size can be for any batch up to the largest; not always the tightest."""
    first, *rest = _terms(size)
    reach = [c * (MAX_BATCH - 1) ** k for k, c in enumerate(rest, 1)]
    return first + sum(min(0, r) for r in reach), first + sum(max(0, r) for r in reach)


def in_batch(size: Size) -> tuple[int, ...]:
    """The coefficients of B⁰, B¹, …: how people write it."""
    terms = _terms(size)
    result = [0] * len(terms)
    smallest = _smallest(size, size)
    for c in reversed(terms):  # Horner's scheme with t = B − smallest
        result = [(result[k - 1] if k else c) - smallest * result[k] for k in range(len(terms))]
    return tuple(result)


def show(dims: tuple[Size, ...]) -> str:
    """A shape as people write it."""
    return f"({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"


def _terms(size: Size) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else size.terms


def _smallest(a: Size, b: Size) -> int:
    """The smallest batch of two sizes of one graph."""
    return a.smallest if isinstance(a, Poly) else b.smallest if isinstance(b, Poly) else 1
