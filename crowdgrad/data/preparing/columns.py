"""Columns as they are read, before anybody knows what all of them hold.

    Dense    an array of records of one shape: numbers, pictures
    Coded    words, each record a place in a list of names
    Ragged   sequences of different lengths: all values one after the other, and where each ends

A block is the good records of one part, a column for each name, with the records that could not be
used beside it. It is kept in a file of its own: what has been read need not be read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MAX_SHOWN = 20
"""Bad records of one part that are kept with their words; all are counted."""
MAX_EXCERPT = 120


class Bad(msgspec.Struct, frozen=True):
    """A record that cannot be used."""

    kind: str
    file: str
    line: int
    """From 1: a line of a text, a record of a file of arrays, 0 where it is a file of its own."""
    detail: str

    @property
    def where(self) -> str:
        return f"{self.file}, line {self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Dense:
    values: Array

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Array) -> Dense:
        return Dense(self.values[rows])


@dataclass(frozen=True, slots=True)
class Coded:
    codes: NDArray[np.int32]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Array) -> Coded:
        return Coded(self.codes[rows], self.names)


@dataclass(frozen=True, slots=True)
class Ragged:
    values: Array
    """(all steps, …)"""
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.ends, prepend=0)

    def take(self, rows: Array) -> Ragged:
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        return Ragged(self.values[np.repeat(self.ends[rows] - lengths, lengths) + within], ends)


Column = Dense | Coded | Ragged


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    columns: Mapping[str, Column]
    records: int
    bad: tuple[Bad, ...] = ()
    """The first ones."""
    bad_counts: Mapping[str, int] = field(default_factory=dict)
    file: str = ""
    lines: Sequence[int] = ()
    """Where each good record was, where somebody may still ask."""


def excerpt(text: object) -> str:
    """A stranger's words on one line, shortened."""
    line = " ".join(str(text).split())
    line = "".join(c if c.isprintable() else "�" for c in line)
    return line if len(line) <= MAX_EXCERPT else f"{line[: MAX_EXCERPT - 1]}…"


class BadRows:
    """Collects what is wrong with the records of a part: the first fault of each."""

    def __init__(self, file: str, records: int, files: Sequence[str] = ()) -> None:
        """`files`: a name for each record, where each is a file of its own."""
        self.file = file
        self._files = files
        self._wrong = np.zeros(records, bool)
        self._found: list[tuple[int, str, str]] = []
        self.counts: dict[str, int] = {}
        self._outside: list[Bad] = []

    def add(self, kind: str, row: int, detail: str) -> None:
        if not self._wrong[row]:
            self._wrong[row] = True
            self._count(kind)
            self._found.append((row, kind, excerpt(detail)))

    def add_mask(self, kind: str, mask: Array, details: Sequence[str] | str) -> None:
        for row in np.flatnonzero(mask & ~self._wrong).tolist():
            self.add(kind, row, details if isinstance(details, str) else details[row])

    def add_line(self, kind: str, line: int, detail: str) -> None:
        """A record that has not even become a row."""
        self._count(kind)
        self._outside.append(Bad(kind, self.file, line, excerpt(detail)))

    def _count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    @property
    def good(self) -> Array | None:
        """The rows to keep; None: all."""
        return np.flatnonzero(~self._wrong) if self._wrong.any() else None

    def found(self, line_of: Mapping[int, int] | Sequence[int]) -> tuple[Bad, ...]:
        """`line_of[row]`: the line a row begins in."""
        rows = [
            Bad(kind, self._files[row] if self._files else self.file, line_of[row], text)
            for row, kind, text in self._found
        ]
        return tuple(sorted((*self._outside, *rows), key=lambda bad: bad.line)[:MAX_SHOWN])


def finished(
    columns: Mapping[str, Column], records: int, bad: BadRows, lines: Sequence[int]
) -> Block:
    """The block of the good rows; `lines[row]`: where each of them was."""
    good, found = bad.good, bad.found(lines)
    if good is not None:
        columns = {name: column.take(good) for name, column in columns.items()}
        records = len(good)
        lines = [lines[row] for row in good.tolist()]
    return Block(
        columns=columns,
        records=records,
        bad=found,
        bad_counts=dict(bad.counts),
        file=bad.file,
        lines=lines,
    )


def narrowed(values: Array) -> Array:
    """The same numbers in the smallest type that holds them all; those with fractions stay."""
    if values.dtype.kind == "f":
        if values.size == 0:
            return values.astype(np.uint8)
        with np.errstate(invalid="ignore"):
            whole = values.astype(np.int64)
        if not np.array_equal(whole, values):
            return values + 0.0  # zero has one sign, as among whole numbers
        values = whole
    if beyond_whole(values):
        return values.astype(np.float64)
    if values.dtype.kind == "b" or values.size == 0:
        return values.astype(np.uint8)
    return values.astype(whole_type(int(values.min()), int(values.max())), copy=False)


def beyond_whole(values: Array) -> bool:
    """Whether there are whole numbers that no type we store can hold."""
    return bool(values.dtype.name == "uint64" and values.size and values.max() > 2**63 - 1)


def whole_type(least: int, most: int) -> np.dtype[Any]:
    """The smallest type we store that holds every whole number from `least` to `most`."""
    for name in ("uint8", "int8", "int16", "int32"):
        limits = np.iinfo(name)
        if limits.min <= least and most <= limits.max:
            return np.dtype(name)
    return np.dtype(np.int64)
