"""What one part holds, in a few numbers, and what all parts hold together."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from crowdgrad.data.preparing.columns import Array, Bad, Block, Coded, Column, Ragged
from crowdgrad.data.preparing.parts import Known
from crowdgrad.data.preparing.schema import MAX_NAMES, Schema
from crowdgrad.errors import DataMalformed

MAX_BAD_SHOWN = 200


class ColumnTally(msgspec.Struct):
    dtype: str = ""
    shape: tuple[int, ...] = ()
    """Of a record; of a step where lengths differ."""
    least: float = np.inf
    most: float = -np.inf
    whole: bool = True
    names: dict[str, int] = {}
    """Words, and whole numbers to be learned → how often."""
    countless: bool = False
    """Whether there are too many different numbers for `names` to have them."""
    longest: int = 0
    points: list[int] = []
    """Every code point that occurs."""


class Tally(msgspec.Struct):
    records: int
    columns: dict[str, ColumnTally]
    bad: list[Bad]
    bad_counts: dict[str, int]


def tally(block: Block, schema: Schema, known: Known) -> Tally:
    targets = {plan.name for plan in schema.of("target")}
    texts = {plan.name for plan in schema.used if plan.kind == "text"}
    columns = {
        name: _column(column, known, target=name in targets, text=name in texts)
        for name, column in block.columns.items()
    }
    return Tally(block.records, columns, list(block.bad), dict(block.bad_counts))


def _column(column: Column, known: Known, *, target: bool, text: bool) -> ColumnTally:
    if isinstance(column, Coded):
        times = np.bincount(column.codes, minlength=len(column.names)).tolist()
        names = {name: n for name, n in zip(column.names, times, strict=True) if n}
        return ColumnTally(names=names)
    values = column.values
    found = _numbers(values)
    if isinstance(column, Ragged):
        found.longest = int(column.lengths.max(initial=0))
    elif target and values.ndim == 1 and values.dtype.kind in "iub":
        different, times = np.unique(values, return_counts=True)
        found.countless = len(different) > MAX_NAMES
        if not found.countless:
            found.names = {str(int(v)): int(n) for v, n in zip(different, times, strict=True)}
    if text and known.tokens.by == "char":
        found.points = _points(values)
    return found


def _numbers(values: Array) -> ColumnTally:
    found = ColumnTally(dtype=values.dtype.name, shape=values.shape[1:])
    if values.size and values.dtype.kind in "fiub":
        found.least, found.most = float(values.min()), float(values.max())
        found.whole = values.dtype.kind != "f"
    return found


def _points(values: Array) -> list[int]:
    """np.unique sorts; most text needs a table of 64 thousand at the most."""
    seen = np.zeros(int(values.max(initial=0)) + 1, bool)
    seen[values] = True
    return np.flatnonzero(seen).tolist()


def together(tallies: Iterable[Tally]) -> Tally:
    """All parts, in order. Raises DataMalformed."""
    whole = Tally(0, {}, [], {})
    points: dict[str, set[int]] = {}
    for one in tallies:
        whole.records += one.records
        whole.bad += one.bad[: MAX_BAD_SHOWN - len(whole.bad)]
        for kind, count in one.bad_counts.items():
            whole.bad_counts[kind] = whole.bad_counts.get(kind, 0) + count
        if not one.records:
            continue
        for name, column in one.columns.items():
            points.setdefault(name, set()).update(column.points)
            known = whole.columns.get(name)
            whole.columns[name] = column if known is None else _joined(name, known, column)
    for name, found in points.items():
        whole.columns[name].points = sorted(found)
    return whole


def _joined(name: str, one: ColumnTally, other: ColumnTally) -> ColumnTally:
    if one.shape != other.shape:
        raise DataMalformed(
            f"{name} has records of the shapes {one.shape} and {other.shape}.",
            advice=f"Give all records of {name} one shape, or leave it out: --column {name}=drop.",
        )
    names = dict(one.names)
    for word, times in other.names.items():
        names[word] = names.get(word, 0) + times
    countless = one.countless or other.countless
    if one.dtype and (countless or len(names) > MAX_NAMES):  # numbers, not words
        names, countless = {}, True
    if len(names) > MAX_NAMES:
        raise DataMalformed(
            f"{name} has more than {MAX_NAMES:,} different words.",
            advice=f"Leave it out (--column {name}=drop) or take it as --column {name}=text.",
        )
    dtype = one.dtype
    if one.dtype and other.dtype and one.dtype != other.dtype:
        dtype = np.promote_types(one.dtype, other.dtype).name
    return ColumnTally(
        dtype=dtype,
        shape=one.shape,
        least=min(one.least, other.least),
        most=max(one.most, other.most),
        whole=one.whole and other.whole,
        names=names,
        countless=countless,
        longest=max(one.longest, other.longest),
    )
