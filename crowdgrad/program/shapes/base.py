"""What a rule sees and gives: values, a call of an operator, and what rules share.

A rule takes a `Call` (one node with the values it reads) and gives the values it makes. Rules are
pure, so two alike calls give the same values. Whatever a rule cannot tell, or the standard or
onnxruntime would refuse, it refuses by `call.refusal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from crowdgrad.domain.program import MAX_RANK
from crowdgrad.errors import ProgramRefused
from crowdgrad.program.graph import ELEMENTS, Attribute
from crowdgrad.program.sizes import MAX_SIZE, Poly, Size, at_most, least, never_negative, show

FLOAT: Final = 1
UINT8: Final = 2
INT8: Final = 3
INT16: Final = 5
INT32: Final = 6
INT64: Final = 7
BOOL: Final = 9
DOUBLE: Final = 11
WHOLE: Final = {
    UINT8: (0, (1 << 8) - 1), INT8: (-1 << 7, (1 << 7) - 1), INT16: (-1 << 15, (1 << 15) - 1),
    INT32: (-1 << 31, (1 << 31) - 1), INT64: (-1 << 63, (1 << 63) - 1), BOOL: (0, 1),
}  # fmt: skip
"""The element types whose contents are followed, with what they hold."""

MAX_KNOWN: Final = 32
"""Longer contents are not followed through the graph: twice the highest rank, and some room."""
MAX_LISTED: Final = 4096
"""Contents of constants are read up to here: a Split may have that many parts."""
Dims = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor, but for its numbers: element type, sizes, and contents where they can be told."""

    element: int
    dims: Dims
    known: Dims | None = None
    """In C order; only of small tensors of whole numbers or bool (0 and 1)."""

    @property
    def short(self) -> Dims | None:
        """Contents that are few enough to compute with."""
        return self.known if self.known is not None and len(self.known) <= MAX_KNOWN else None


@dataclass(frozen=True, slots=True)
class Call:
    """One use of an operator."""

    op: str
    attributes: Mapping[str, Attribute]
    inputs: tuple[Value | None, ...]
    outputs: int
    """How many outputs the node names."""
    name: str = ""
    """Its first output, for messages."""

    def refusal(self, reason: str) -> ProgramRefused:
        return ProgramRefused(f"{self.op} that makes {self.name[:64]!r}: {reason}.")

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> Value:
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise self.refusal(f"its input {index} is missing")
        return value

    def every(self) -> list[Value]:
        return [self.input(index) for index in range(len(self.inputs))]

    def number(self, name: str, default: int | None = None) -> int:
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise self.refusal(f"its attribute {name!r} must be a whole number")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.number(name, int(default))
        if value not in (0, 1):
            raise self.refusal(f"its attribute {name!r} must be 0 or 1, not {value}")
        return value == 1

    def numbers(self, name: str) -> tuple[int, ...] | None:
        value = self.attributes.get(name)
        if value is None:
            return None
        whole = tuple(v for v in value if isinstance(v, int)) if isinstance(value, tuple) else ()
        if not isinstance(value, tuple) or len(whole) != len(value):
            raise self.refusal(f"its attribute {name!r} must be a list of whole numbers")
        return whole

    def text(self, name: str, default: bytes) -> bytes:
        value = self.attributes.get(name, default)
        if not isinstance(value, bytes):
            raise self.refusal(f"its attribute {name!r} must be a text")
        return value

    def axis(self, axis: Size, rank: int, what: str = "its axis") -> int:
        """An axis of a tensor of this rank, counted from the front."""
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise self.refusal(f"{what} is {axis}, of a tensor with {rank} dimensions")
        return axis % rank

    def axes(self, axes: Dims, rank: int) -> tuple[int, ...]:
        found = tuple(self.axis(axis, rank, "one of its axes") for axis in axes)
        if len(set(found)) != len(found):
            raise self.refusal(f"its axes {show(axes)} name one twice")
        return found

    def known(
        self, index: int, what: str, ranks: tuple[int, ...] = (1,), most: int = 2 * MAX_RANK
    ) -> Dims:
        """The contents of an input that decides about sizes."""
        value = self.input(index)
        if value.element != INT64 or len(value.dims) not in ranks:
            raise self.refusal(f"{what} must be {'a list' if 1 in ranks else 'one'} of int64")
        if value.known is None:
            raise self.refusal(f"{what} must not depend on data: every size but the batch is fixed")
        if len(value.known) > most:
            raise self.refusal(f"{what} are {len(value.known)} numbers, more than {most}")
        return value.known

    def known_one(self, index: int, what: str, ranks: tuple[int, ...] = (0, 1)) -> Size:
        numbers = self.known(index, what, ranks)
        if len(numbers) != 1:
            raise self.refusal(f"{what} must be one number, not {len(numbers)}")
        return numbers[0]

    def no_longer(self, a: Size, b: Size, what: str) -> None:
        """Refuse unless a ≤ b for every batch."""
        if not at_most(a, b):
            raise self.refusal(f"{what}: {a} does not fit into {b}")

    def alike(self, *values: Value) -> int:
        """The one element type of values that must share it."""
        element = values[0].element
        for value in values:
            if value.element != element:
                names = " and ".join(ELEMENTS[v.element] for v in (values[0], value))
                raise self.refusal(f"it mixes {names}")
        return element

    def make(self, element: int, dims: Dims, known: Dims | None = None) -> Value:
        """A value of acceptable size at the smallest batch; `bounds` looks at the largest."""
        if len(dims) > MAX_RANK:
            raise self.refusal(f"{len(dims)} dimensions are more than {MAX_RANK}")
        count = 1
        for size in dims:
            top = size if isinstance(size, int) else max(size.terms)
            if not never_negative(size) or top >= MAX_SIZE:
                raise self.refusal(f"{show(dims)} is no shape: a size must be between 0 and 2⁴⁰")
            count *= least(size) or 1
        if count >= MAX_SIZE:
            raise self.refusal(f"a tensor of shape {show(dims)} is too large")
        return Value(element, dims, known)

    def broadcast(self, first: Dims, second: Dims) -> Dims:
        """The shape both stretch to, by the standard's rule, whatever the batch."""
        if first == second:
            return first
        longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
        offset = len(longer) - len(shorter)
        dims = list(longer)
        for k, size in enumerate(shorter):
            other = longer[offset + k]
            if other == 1:
                dims[offset + k] = size
            elif size not in (1, other):
                raise self.refusal(
                    f"shapes {show(first)} and {show(second)} do not fit together"
                    + _for_every_batch(size, other)
                )
        return tuple(dims)


def _for_every_batch(*sizes: Size) -> str:
    return " for every batch" if any(isinstance(size, Poly) for size in sizes) else ""
