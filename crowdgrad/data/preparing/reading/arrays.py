"""Arrays in files: .npy, .npz (unpacked before) and the idx format of MNIST.

Every array is a field and keeps its type. Its name and its split come from the file's name:
`x_train.npy`, `train-images-idx3-ubyte`, `labels.npy`.
"""

from __future__ import annotations

import math
import re
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from crowdgrad.data.formats.idx import MAX_HEADER_BYTES, read_header
from crowdgrad.data.preparing.columns import Array, BadRows, Block, Dense, finished
from crowdgrad.data.preparing.finding import SPLIT_WORDS
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import (
    PART_BYTES,
    ArrayPlace,
    Known,
    Look,
    Part,
    Reader,
    SourceFile,
)
from crowdgrad.data.preparing.schema import ColumnPlan, Schema, infer
from crowdgrad.data.preparing.tokens import tokens_of
from crowdgrad.data.preparing.values import STORED, check_finite
from crowdgrad.domain.data import Split
from crowdgrad.domain.program import ITEM_BYTES, MAX_RANK
from crowdgrad.errors import DataMalformed

_WORDS = re.compile(r"[A-Za-z0-9]+")
_IDX_WORDS = re.compile(r"idx\d?|ubyte|byte")


def look(files: Sequence[SourceFile], options: Options) -> Look:
    places = _places(files)
    columns = list(dict.fromkeys(place.column for _, place in places))
    _check(places, columns)
    first = {place.column: place for _, place in reversed(places)}
    sample = {name: _sample(first[name]) for name in columns}
    guessed = infer(sample, options, written=False)
    # An array is a field as it is: its owner has decided what its numbers are.
    plans = tuple(
        ColumnPlan(plan.name, plan.kind if plan.kind == "drop" else "number", plan.role,
                   f"{first[plan.name].dtype} {_shape(first[plan.name])}")
        for plan in guessed.columns
    )  # fmt: skip
    known = Known(
        tokens=tokens_of(options.text.tokens),
        shapes={name: first[name].shape[1:] for name in columns},
    )
    return Look(sample=sample, known=known, schema=Schema(plans))


def _shape(place: ArrayPlace) -> str:
    return " × ".join(map(str, place.shape[1:])) or "a number"


def _sample(place: ArrayPlace) -> list[Array]:
    return list(_rows(place, 0, min(100, place.shape[0])))


def _check(places: Sequence[tuple[Split | None, ArrayPlace]], columns: Sequence[str]) -> None:
    for split in dict.fromkeys(split for split, _ in places):
        mine = [place for found, place in places if found == split]
        names = [place.column for place in mine]
        told = ", ".join(f"{place.name} {place.dtype} {place.shape}" for place in mine)[:400]
        if sorted(names) != sorted(columns):
            raise DataMalformed(
                f"{'the arrays' if split is None else split} are {told}; the fields are "
                f"{', '.join(columns)}.",
                advice="Give every split the same arrays: x_train, y_train, x_test, y_test.",
            )
        if len({place.shape[0] for place in mine}) != 1:
            raise DataMalformed(
                f"{told}: these differ in their number of records.",
                advice="Give arrays of equal length, records along the first dimension.",
            )
    for column in columns:
        kinds = {(place.dtype, place.shape[1:]) for _, place in places if place.column == column}
        if len(kinds) != 1:
            raise DataMalformed(
                f"{column} is {' and '.join(f'{d} {s}' for d, s in sorted(kinds))}.",
                advice="Give every split the same types and record shapes.",
            )


def _places(files: Sequence[SourceFile]) -> list[tuple[Split | None, ArrayPlace]]:
    return [(file.split, place_of(file)) for file in files]


def place_of(file: SourceFile) -> ArrayPlace:
    """Raises DataMalformed."""
    with open(file.path, "rb") as opened:
        head = opened.read(6)
        opened.seek(0)
        if head != b"\x93NUMPY":
            dtype, shape, offset = read_header(opened.read(MAX_HEADER_BYTES), file.bytes, file.name)
            fortran = False
        else:
            try:
                shape, fortran, dtype = _npy_header(opened)
            except (ValueError, EOFError, SyntaxError, TypeError, tokenize.TokenError,
                    RecursionError, MemoryError) as error:  # fmt: skip
                raise DataMalformed(
                    f"{file.name} cannot be read: {error}.", advice="Write it with numpy.save."
                ) from None
            offset = opened.tell()
    strange = dtype.kind not in "fiub" or dtype.itemsize > 8 or any(size < 0 for size in shape)
    if strange or not 0 < len(shape) <= MAX_RANK + 1:
        raise DataMalformed(
            f"{file.name} holds {dtype} {shape}.",
            advice="Give arrays of numbers, records along the first dimension.",
        )
    if offset + math.prod(shape) * dtype.itemsize != file.bytes:
        raise DataMalformed(
            f"{file.name} has {file.bytes:,} bytes for {dtype} {shape}.", advice="Write it again."
        )
    return ArrayPlace(
        column_of(file.name), file.path, file.name, dtype.str, tuple(shape), offset, fortran
    )


def _npy_header(opened: object) -> tuple[tuple[int, ...], bool, np.dtype]:
    from numpy.lib import format as npy

    version = npy.read_magic(opened)  # type: ignore[arg-type]
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of versions of numpy that wrote it otherwise
        return read(opened)  # type: ignore[arg-type]


def column_of(name: str) -> str:
    """A file's name without its split and its ending."""
    stem = Path(name).name.split(".")[0] if not name.endswith("ubyte") else Path(name).name
    words = [
        word
        for word in _WORDS.findall(stem)
        if word.lower() not in SPLIT_WORDS and not _IDX_WORDS.fullmatch(word.lower())
    ]
    return "_".join(words) or "x"


def parts(files: Sequence[SourceFile], known: Known) -> Iterator[Part]:
    places = _places(files)
    number = 0
    for split in dict.fromkeys(split for split, _ in places):
        mine = tuple(place for found, place in places if found == split)
        row = sum(math.prod(place.shape[1:]) * np.dtype(place.dtype).itemsize for place in mine)
        records, most = mine[0].shape[0], max(1, PART_BYTES // max(1, row))
        for start in range(0, records, most):
            stop = min(records, start + most)
            yield Part(
                number, mine[0].path, mine[0].name, start, stop, start + 1, split, arrays=mine
            )
            number += 1


def read(part: Part, schema: Schema, known: Known) -> Block:
    records = part.stop - part.start
    bad = BadRows(part.name, records)
    columns = {}
    for plan in schema.used:
        (place,) = (place for place in part.arrays if place.column == plan.name)
        values = _rows(place, part.start, part.stop)
        check_finite(values, plan, bad)
        if np.dtype(place.dtype).kind == "u" and values.dtype == np.int64:
            wrapped = np.asarray((values < 0).any(axis=tuple(range(1, values.ndim))))
            bad.add_mask("too large a number", wrapped, f"{plan.name} is beyond int64")
        columns[plan.name] = Dense(values)
    return finished(columns, records, bad, range(part.line, part.line + records))


def _rows(place: ArrayPlace, start: int, stop: int) -> Array:
    dtype = np.dtype(place.dtype)
    if place.fortran and len(place.shape) > 1:
        whole = np.memmap(place.path, dtype, "r", place.offset, place.shape, order="F")
        values = np.ascontiguousarray(whole[start:stop])
    else:
        row = math.prod(place.shape[1:])
        values = np.fromfile(
            place.path,
            dtype,
            (stop - start) * row,
            offset=place.offset + start * row * dtype.itemsize,
        ).reshape(stop - start, *place.shape[1:])
    name = dtype.newbyteorder("=").name
    return values.astype(name if name in ITEM_BYTES else STORED[name], copy=False)


READER = Reader(look=look, parts=parts, read=read)
