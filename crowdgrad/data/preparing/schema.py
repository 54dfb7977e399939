"""What the columns of a source are, guessed from some of its records; every guess with its reason.

    number     numbers, of any shape: a cell, a list of one length, an array
    category   words out of a short list: becomes a code, or a place for each word (onehot)
    text       words without end: becomes tokens, padded, with its length beside it
    sequence   lists of different lengths: padded, with their lengths
    image      a picture: decoded, resized
    drop       left out

Inputs that are single numbers (and onehot categories) together become one field `x`, so that a
table is one matrix; everything else is a field of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from crowdgrad.data.preparing.options import ColumnWish, Encode, Kind, Options
from crowdgrad.errors import DataMalformed

Role = Literal["input", "target", "drop"]
TARGETS = (
    "y", "label", "labels", "target", "targets", "class", "classes", "category", "output",
    "species", "sentiment", "fine_label",
)  # fmt: skip
"""What people call what is to be learned."""
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?", "-")
"""What people write where there is no value."""
MAX_ONEHOT = 64
"""Categories of more words are codes unless told otherwise: an embedding serves them better."""
MAX_CLASSES_GUESSED = 100
MAX_NAMES = 1 << 16
TEXT_CHARACTERS = 32
"""Words longer than this, on average, are a text."""
MIN_REPEATS = 2
"""How often each word of a category stands in the sample, on average, at least."""


class ColumnPlan(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    role: Role
    reason: str
    encode: Encode = "code"
    fill: float | str | None = None
    order: tuple[str, ...] = ()
    """Of the words of a category, where somebody says so: the first is 0."""


class Schema(msgspec.Struct, frozen=True):
    columns: tuple[ColumnPlan, ...]

    @property
    def used(self) -> tuple[ColumnPlan, ...]:
        return tuple(column for column in self.columns if column.role != "drop")

    def of(self, role: Role) -> tuple[ColumnPlan, ...]:
        return tuple(column for column in self.columns if column.role == role)


IDENTIFIERS = ("id", "index", "idx", "uuid", "guid", "key", "row", "unnamed: 0")
"""What people call the number of a record."""


def infer(sample: Mapping[str, Sequence[Any]], options: Options, *, written: bool) -> Schema:
    """`sample`: some values of every column. `written`: numbers may come as text.

    Raises DataMalformed.
    """
    unknown = [n for n in (*(options.target or ()), *options.input, *options.columns)
               if n not in sample]  # fmt: skip
    if unknown:
        raise DataMalformed(
            f"there is no column {', '.join(map(repr, unknown))}.",
            advice=f"The columns are {', '.join(map(repr, sample))[:500]}.",
        )
    targets, why = _targets(tuple(sample), options)
    columns = []
    for name, values in sample.items():
        wish = options.columns.get(name, ColumnWish())
        target = name in targets
        kind, reason = guess(values, written=written)
        if not target and _identifies(name, values, written=written):
            kind, reason = "drop", "it only numbers the records"
        if target:
            kind, reason = _as_target(kind, reason, values, written=written)
            reason = f"{reason}; {why}"
        if wish.kind is not None:
            kind, reason = wish.kind, "as you say"
        wanted = target or not options.input or name in options.input
        role: Role = "target" if target else "input" if wanted else "drop"
        if not wanted:
            reason = "not asked for"
        if kind == "drop":
            role = "drop"
        encode = wish.encode or _encoding(values, target=target)
        columns.append(ColumnPlan(name, kind, role, reason, encode, wish.fill, wish.order))
    if not any(column.role == "input" for column in columns):
        raise DataMalformed(
            "there is no column to learn from.", advice="Name some with --input, or give more."
        )
    return Schema(tuple(columns))


def _identifies(name: str, values: Sequence[Any], *, written: bool) -> bool:
    """Whether a column is called like one, and no value stands there twice."""
    called = name.strip().lower()
    if called not in IDENTIFIERS and not called.endswith("_id"):
        return False
    held = [str(value) for value in values if not is_missing(value, written=written)]
    return len(held) > 1 and len(set(held)) == len(held)


def _targets(names: tuple[str, ...], options: Options) -> tuple[tuple[str, ...], str]:
    """Which columns are to be learned, and why."""
    if options.target is not None:
        return options.target, "as you say"
    if len(names) < 2:
        return (), ""
    by_name = {name.strip().lower(): name for name in names}
    for usual in TARGETS:
        if usual in by_name:
            return (by_name[usual],), f"the target, as it is called {by_name[usual]}"
    left = [n for n in names if options.columns.get(n, ColumnWish()).kind != "drop"]
    return (left[-1],), "the target, as it is the last column"


def guess(values: Sequence[Any], *, written: bool) -> tuple[Kind, str]:
    """What a column is, and why."""
    held = [value for value in values if not is_missing(value, written=written)]
    if not held:
        return "drop", "it is empty"
    if all(isinstance(value, str) for value in held):
        return _guess_words(held, written=written)
    if all(is_picture(value) for value in held):
        return "image", "pictures"
    if any(isinstance(value, str | bytes | Mapping) for value in held):
        return "drop", "its values are of different kinds"
    shapes = {_shape(value) for value in held}
    if None in shapes:
        return "drop", "its values are not numbers, words, pictures or lists of numbers"
    if all(shape is not None and 0 in shape for shape in shapes):
        return "drop", "its lists are empty"
    lengths = len(shapes)
    shapes = {shape for shape in shapes if shape is not None and 0 not in shape}  # [] fits any
    if lengths == 1:
        (shape,) = shapes
        return "number", "numbers" if not shape else f"lists of {_times(shape)} numbers"
    if len({shape[1:] for shape in shapes if shape}) == 1 and () not in shapes:
        return "sequence", "lists of different lengths"
    return "drop", "its lists differ in shape"


def _guess_words(held: list[str], *, written: bool) -> tuple[Kind, str]:
    if written:
        numbers = sum(map(is_number, held))
        if 2 * numbers > len(held):
            return "number", "numbers" if numbers == len(held) else "mostly numbers"
    different = len(set(held))
    average = sum(map(len, held)) / len(held)
    if average > TEXT_CHARACTERS:
        return "text", f"{average:.0f} characters on average"
    if different * MIN_REPEATS <= len(held) or different <= 2:
        return "category", f"{different} different words"
    if any(" " in value.strip() for value in held):
        return "text", f"words, {different} of {len(held)} different"
    return "drop", f"looks like a name or number of each record: {different} of {len(held)} differ"


def _as_target(
    kind: Kind, reason: str, values: Sequence[Any], *, written: bool
) -> tuple[Kind, str]:
    """Few different whole numbers are classes."""
    held = [value for value in values if not is_missing(value, written=written)]
    if kind == "drop" and held and all(isinstance(value, str) for value in held):
        return "category", f"{len(set(held))} different words"
    if kind != "number" or any(_shape(value) != () for value in held if not isinstance(value, str)):
        return kind, reason
    numbers = [number for value in held if (number := as_number(value)) is not None]
    different = set(numbers)
    few = len(different) <= min(MAX_CLASSES_GUESSED, max(2, len(numbers) // MIN_REPEATS))
    if few and all(number.is_integer() for number in different):
        return "category", f"{len(different)} different whole numbers"
    return kind, reason


def _encoding(values: Sequence[Any], *, target: bool) -> Encode:
    if target:
        return "code"
    different = {value for value in values if isinstance(value, str | int | float)}
    return "onehot" if len(different) <= MAX_ONEHOT else "code"


def is_missing(value: Any, *, written: bool) -> bool:
    if value is None:
        return True
    return isinstance(value, str) and written and value.strip() in MISSING


def is_number(text: str) -> bool:
    return as_number(text) is not None


def as_number(value: Any) -> float | None:
    """The number a value is, or that is written there; `nan` and the like are none."""
    if isinstance(value, str) and ("_" in value or not value.strip()):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if np.isfinite(number) else None


def is_picture(value: Any) -> bool:
    if isinstance(value, bytes):
        return True
    if isinstance(value, Mapping):
        return "bytes" in value and set(value) <= {"bytes", "path"}
    return hasattr(value, "convert") and hasattr(value, "getbands")  # Pillow's, without loading it


def _shape(value: Any) -> tuple[int, ...] | None:
    """Of numbers; None for anything else."""
    if isinstance(value, bool | int | float):
        return ()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    return array.shape if array.dtype.kind in "fiub" else None


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
