"""Python's values as columns: what JSON, a `Dataset` or an iterator brings, record by record.

A value that does not fit its column makes its record a bad one, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crowdgrad.data.preparing.columns import (
    Array,
    BadRows,
    Coded,
    Column,
    Dense,
    Ragged,
    beyond_whole,
    narrowed,
)
from crowdgrad.data.preparing.parts import Known
from crowdgrad.data.preparing.pictures import PicturePlan, decoded
from crowdgrad.data.preparing.schema import ColumnPlan, as_number, is_missing
from crowdgrad.data.preparing.tokens import encode
from crowdgrad.domain.program import ITEM_BYTES

LARGEST = float(np.finfo(np.float32).max)
"""Numbers with fractions that come one by one are stored as float32."""
STORED = {"float16": "float32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""Types we do not store → what holds their numbers."""


def from_values(
    values: Sequence[Any], plan: ColumnPlan, known: Known, bad: BadRows, *, written: bool
) -> Column:
    """A value for each record; those of bad records are of no matter."""
    gone = [is_missing(value, written=written) for value in values]
    if any(gone):
        if plan.fill is not None:
            values = [plan.fill if out else value for value, out in zip(values, gone, strict=True)]
        else:
            bad.add_mask(missing(plan), np.array(gone), f"{plan.name} has no value")
    return _MAKERS[plan.kind](values, plan, known, bad)


def missing(plan: ColumnPlan) -> str:
    """What a bad record is called that has no value there."""
    return "missing label" if plan.role == "target" else "missing value"


def _numbers(values: Sequence[Any], plan: ColumnPlan, known: Known, bad: BadRows) -> Column:
    shape = known.shapes.get(plan.name, ())
    array = _at_once(values, shape)
    if array is None:
        array = np.zeros((len(values), *shape), _best_type(values, shape))
        for row, value in enumerate(values):
            _place(array, row, value, plan, bad)
    else:
        check_finite(array, plan, bad, most=LARGEST)
    return Dense(stored(usable(array)))


def _at_once(values: Sequence[Any], shape: tuple[int, ...]) -> Array | None:
    """The quick way, where nothing is wrong."""
    if any(value is None or isinstance(value, str | bytes) for value in values):
        return None
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        return None
    if array.shape != (len(values), *shape) or array.dtype.kind not in "fiub":
        return None
    return array


def _best_type(values: Sequence[Any], shape: tuple[int, ...]) -> Any:
    kinds = {np.asarray(v).dtype for v in values if shape and hasattr(v, "dtype")}
    kinds = {kind for kind in kinds if kind.kind in "fiub"}
    return np.result_type(*kinds) if kinds else np.float64


def _place(array: Array, row: int, value: Any, plan: ColumnPlan, bad: BadRows) -> None:
    shape = array.shape[1:]
    if not shape:
        number = as_number(value)
        if number is None:
            bad.add("not a number", row, f"{plan.name} is {value!r}")
        elif abs(number) > LARGEST:
            bad.add("too large a number", row, f"{plan.name} is {value!r}")
        else:
            array[row] = number
        return
    try:
        found = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        found = np.zeros(0, object)
    if found.shape != shape or found.dtype.kind not in "fiub":
        bad.add("wrong shape", row, f"{plan.name} is {value!r}")
    elif (fault := _fault(found)) is not None:
        bad.add(fault, row, f"{plan.name} is {value!r}")
    else:
        array[row] = found


def _fault(numbers: Array) -> str | None:
    """What a bad record is called that has these."""
    if not np.isfinite(numbers).all():
        return "not a number"
    return "too large a number" if numbers.size and np.abs(numbers).max() > LARGEST else None


def usable(values: Array) -> Array:
    """Zero in place of what no type we store can hold: those records are bad ones already."""
    if values.dtype.kind != "f":
        return values
    with np.errstate(invalid="ignore"):
        most = min(LARGEST, float(np.finfo(values.dtype).max))  # half precision holds less
        return np.where(np.abs(values) <= most, values, 0)  # NaN is not less than anything


def check_finite(array: Array, plan: ColumnPlan, bad: BadRows, *, most: float = np.inf) -> None:
    """`most`: what the type can hold in which they are stored."""
    if array.dtype.kind != "f" or not array.size:
        return
    each = tuple(range(1, array.ndim))
    wrong = np.asarray(~np.isfinite(array).all(axis=each))
    if wrong.any():
        bad.add_mask("not a number", wrong, f"{plan.name} is not a finite number")
    if most < float(np.finfo(array.dtype).max):  # half precision holds less
        with np.errstate(invalid="ignore"):
            large = np.asarray((np.abs(array) > most).any(axis=each) & ~wrong)
        if large.any():
            bad.add_mask("too large a number", large, f"{plan.name} is beyond float32")


def stored(array: Array) -> Array:
    """In a type we store: single numbers as narrow as they can be, arrays as they came."""
    if array.ndim == 1:
        return narrowed(array)
    name = array.dtype.name
    if name in ITEM_BYTES:
        return array
    return array.astype(np.float64 if beyond_whole(array) else STORED[name])


def _categories(values: Sequence[Any], plan: ColumnPlan, known: Known, bad: BadRows) -> Column:
    places: dict[str, int] = {}
    codes = np.zeros(len(values), np.int32)
    words = known.labels.get(plan.name)
    for row, value in enumerate(values):
        name = category_name(value) if words is None else _word(value, words)
        if name is None:
            bad.add("not a category", row, f"{plan.name} is {value!r}")
        else:
            codes[row] = places.setdefault(name, len(places))
    return Coded(codes, tuple(places))


def _word(value: Any, words: tuple[str, ...]) -> str | None:
    """What a number stands for; Hugging Face writes −1 where there is no label."""
    if isinstance(value, str):
        return value if value in words else None
    inside = isinstance(value, int) and 0 <= value < len(words)
    return words[value] if inside else None


def category_name(value: Any) -> str | None:
    """One name for one thing: 3, 3.0 and numpy's 3 are the same class."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    number = as_number(value)
    if number is None or getattr(value, "size", 1) != 1:
        return None
    return str(int(number)) if number.is_integer() else repr(number)


def _texts(values: Sequence[Any], plan: ColumnPlan, known: Known, bad: BadRows) -> Column:
    found: list[Array] = []
    for row, value in enumerate(values):
        ids = np.zeros(0, np.uint8)
        if isinstance(value, str):
            try:
                ids = encode(value, known.tokens)
            except ValueError as error:
                bad.add("not in the vocabulary", row, str(error))
        elif value is not None:
            bad.add("not a text", row, f"{plan.name} is {value!r}")
        found.append(ids)
    return _ragged(found, np.uint8)


def _sequences(values: Sequence[Any], plan: ColumnPlan, known: Known, bad: BadRows) -> Column:
    step = known.shapes.get(plan.name, ())
    found: list[Array] = []
    for row, value in enumerate(values):
        try:
            array = np.asarray(value if value is not None else [])
        except (ValueError, TypeError, RuntimeError):
            array = np.zeros(0, object)
        if array.size == 0:
            array = np.zeros((0, *step))
        if array.dtype.kind not in "fiub" or array.shape[1:] != step or array.ndim == 0:
            bad.add("wrong shape", row, f"{plan.name} is {value!r}")
            array = np.zeros((0, *step))
        elif (fault := _fault(array)) is not None:
            bad.add(fault, row, f"{plan.name} is {value!r}")
            array = np.zeros((0, *step))
        found.append(array)
    return _ragged(found, np.float64, step)


def _ragged(found: list[Array], empty: Any, step: tuple[int, ...] = ()) -> Ragged:
    ends = np.cumsum([len(array) for array in found], dtype=np.int64)
    held = [array for array in found if len(array)]
    values = np.concatenate(held) if held else np.zeros((0, *step), empty)
    return Ragged(values, ends)


def _pictures(values: Sequence[Any], plan: ColumnPlan, known: Known, bad: BadRows) -> Column:
    plan_of = known.picture or PicturePlan(1, 1, "grey", "crop")  # none could be opened
    out = np.zeros((len(values), *plan_of.shape), np.uint8)
    for row, value in enumerate(values):
        try:
            out[row] = decoded(value, plan_of)
        except ValueError as error:
            bad.add("broken image", row, f"{plan.name}: {error}")
    return Dense(out)


_MAKERS: dict[str, Callable[[Sequence[Any], ColumnPlan, Known, BadRows], Column]] = {
    "number": _numbers,
    "category": _categories,
    "text": _texts,
    "sequence": _sequences,
    "image": _pictures,
}
