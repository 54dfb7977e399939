"""Records from a file of numbers: .npy, .npz or .csv, checked against what a model takes.

A number that the model stores as an integer must be one: pixels scaled to 0…1 where it wants bytes
would give answers, only wrong ones.
"""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdgrad.data.formats.npz import INPUTS
from crowdgrad.errors import DataMalformed, DataMissing

KINDS = (".npy", ".npz", ".csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One input of a model, as its records are stored."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Of one record."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        sizes = " × ".join(map(str, self.shape)) or "one number"
        return f"{self.name} ({self.dtype.name}, {sizes} a record)"


def read_records(file: Path, inputs: Sequence[Wanted]) -> list[NDArray[Any]]:
    """A column for each input. Raises DataMissing, DataMalformed."""
    if not file.is_file():
        raise DataMissing(f"There is no file {file}.", advice="Check the name.")
    if file.suffix not in KINDS:
        raise DataMalformed(
            f"{file.name} is not one of {', '.join(KINDS)}.", advice=_advice(inputs)
        )
    if file.suffix == ".csv":
        columns = _from_csv(file, inputs)
    else:
        columns = _chosen(_arrays(file), inputs, file)
    fitted = [_fit(c, wanted, file) for c, wanted in zip(columns, inputs, strict=True)]
    counts = {len(column) for column in fitted}
    if len(counts) != 1 or 0 in counts:
        raise DataMalformed(
            f"{file.name} holds {' and '.join(map(str, sorted(counts)))} records.",
            advice="Every input needs the same number of records, at least one.",
        )
    return fitted


def _arrays(file: Path) -> dict[str, NDArray[Any]]:
    try:
        if file.suffix == ".npy":
            return {"": np.load(file, mmap_mode="r", allow_pickle=False)}
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DataMalformed(
            f"{file.name} cannot be read: {str(error) or type(error).__name__}.",
            advice="Write it with numpy.save or numpy.savez.",
        ) from error


def _chosen(
    arrays: Mapping[str, NDArray[Any]], inputs: Sequence[Wanted], file: Path
) -> list[NDArray[Any]]:
    """By name; where the model has one input, also the only array or one called x and the like."""
    names = [wanted.name for wanted in inputs]
    if all(name in arrays for name in names):
        return [arrays[name] for name in names]
    if len(inputs) == 1:
        usual = [name for name in arrays if name in INPUTS]
        if len(arrays) == 1 or len(usual) == 1:
            return [arrays[usual[0] if usual else next(iter(arrays))]]
    held = f"one array, but the model has {len(inputs)} inputs" if "" in arrays else (
        f"the arrays {', '.join(arrays) or 'none'}"
    )  # fmt: skip
    raise DataMalformed(f"{file.name} holds {held}.", advice=_advice(inputs, "an .npz file with "))


def _from_csv(file: Path, inputs: Sequence[Wanted]) -> list[NDArray[Any]]:
    """A row for each record, the numbers of every input one after the other; a heading may be.

    A gap is no record that could be left out: answers are numbered as the records are.
    """
    wanted = sum(one.elements for one in inputs)
    try:
        lines = file.read_text(encoding="utf-8-sig").rstrip().splitlines()
        records = lines[_is_heading(lines[0]) :] if lines else []
        if not all(map(str.strip, records)):
            raise ValueError("a line in its middle is empty")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty file is said below
            table = np.loadtxt(records, delimiter=",", ndmin=2)
    except (ValueError, UnicodeDecodeError) as error:
        raise DataMalformed(
            f"{file.name} is not a table of numbers: {error}.",
            advice="Separate numbers by commas, one record a line.",
        ) from error
    if table.size == 0 or table.shape[1] != wanted:
        raise DataMalformed(
            f"{file.name} has {table.shape[1] if table.size else 0} columns, the model takes "
            f"{wanted}.",
            advice=_advice(inputs),
        )
    ends = np.cumsum([one.elements for one in inputs])
    return np.split(table, ends[:-1], axis=1)


def _is_heading(line: str) -> bool:
    """Whether it has words and no number: with one, it is a record with a mistake in it."""
    cells = [cell for cell in line.split(",") if cell.strip()]
    return bool(cells) and not any(map(_is_number, cells))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _fit(column: NDArray[Any], wanted: Wanted, file: Path) -> NDArray[Any]:
    """In the shape and type the model takes, where that loses nothing."""
    if column.dtype.kind not in "fiub":
        raise DataMalformed(
            f"{wanted.name} in {file.name} is of the type {column.dtype}.",
            advice=f"It is {wanted}.",
        )
    if column.shape == wanted.shape:
        column = column[None]  # a single record
    flat = column.shape[1:] == (wanted.elements,)
    if column.shape[1:] != wanted.shape and not flat:
        raise DataMalformed(
            f"{wanted.name} in {file.name} has the shape {column.shape}.",
            advice=f"The run takes {wanted}.",
        )
    column = column.reshape(len(column), *wanted.shape)
    return column if column.dtype == wanted.dtype else _cast(column, wanted, file)


def _cast(column: NDArray[Any], wanted: Wanted, file: Path) -> NDArray[Any]:
    if wanted.dtype.kind == "f":
        return column.astype(wanted.dtype)
    with np.errstate(invalid="ignore"):
        whole = column.astype(wanted.dtype)
    wrong = np.flatnonzero((whole != column).reshape(-1))
    if len(wrong):
        raise DataMalformed(
            f"{wanted.name} in {file.name} holds {column.reshape(-1)[wrong[0]]:g}, which is not "
            f"{wanted.dtype.name}.",
            advice="Give records as they are stored: scaling and normalising are in the model.",
        )
    return whole


def _advice(inputs: Sequence[Wanted], what: str = "") -> str:
    return f"The run takes {what}{'; '.join(map(str, inputs))}."
