"""Data that is in Python already: a `torch.utils.data.Dataset`, Hugging Face's, arrays, anything.

Nothing of torch or datasets is imported: an object is what it can do. What it holds is read in this
process, some records at a time, and goes on as if it had come from a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from crowdgrad.data.dataset import DataSet
from crowdgrad.data.preparing.columns import BadRows, Block, Dense, finished
from crowdgrad.data.preparing.finding import split_in
from crowdgrad.data.preparing.looking import picture_in, shapes_in
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import PART_BYTES, SAMPLE_RECORDS, Format, Known, Look
from crowdgrad.data.preparing.schema import ColumnPlan, Schema
from crowdgrad.data.preparing.tokens import tokens_of
from crowdgrad.data.preparing.values import check_finite, from_values
from crowdgrad.domain.data import Split
from crowdgrad.errors import DataMalformed

Rows = list[Mapping[str, Any]]
MAX_PART_RECORDS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """Something that can be gone through once, or as often as asked."""

    format: Format
    name: str
    look: Callable[[Options], Look]
    blocks: Callable[[Schema, Known], Iterator[tuple[Split | None, Block]]]
    records: int | None
    """None: nobody knows before they have been gone through."""
    licence: str = ""
    classes: tuple[str, ...] = ()
    """Names for the numbers of the target, from 0 on."""


def objects(source: Any) -> Objects:
    """Raises DataMalformed for what holds no records."""
    if isinstance(source, DataSet):
        return _of_arrays(source)
    name = type(source).__name__ if not isinstance(source, list | tuple) else "records"
    if isinstance(source, Mapping):  # a DatasetDict: a data set for each split
        parts: list[tuple[Split | None, Any]] = [
            (_split_named(key), value) for key, value in source.items()
        ]
    else:
        parts = [(None, source)]
    for _, part in parts:
        if not (hasattr(part, "__getitem__") and hasattr(part, "__len__")) and not isinstance(
            part, Iterable
        ):
            raise DataMalformed(
                f"a {name} holds no records that we can go through.",
                advice="Give a path, arrays, a Dataset with __len__ and __getitem__, or an "
                "iterator.",
            )
    return _of_rows(parts, name)


def _split_named(key: Any) -> Split | None:
    split = split_in([str(key)])
    if split is None:
        raise DataMalformed(
            f"{key!r} is no split.", advice="Name the parts train, validation and test."
        )
    return split


# -- arrays -----------------------------------------------------------------------------------


def _of_arrays(data: DataSet) -> Objects:
    targets = {data.fields[-1].name} if len(data.fields) > 1 else set()

    def look(options: Options) -> Look:
        chosen = set(options.target) if options.target is not None else targets
        plans = tuple(
            ColumnPlan(
                field.name, "number", "target" if field.name in chosen else "input",
                f"{field.dtype} {'×'.join(map(str, field.shape)) or 'a number'}",
            )
            for field in data.fields
        )  # fmt: skip
        known = Known(
            tokens=tokens_of(options.text.tokens),
            shapes={field.name: field.shape for field in data.fields},
        )
        return Look(sample={}, known=known, schema=Schema(plans))

    def blocks(schema: Schema, known: Known) -> Iterator[tuple[Split | None, Block]]:
        whole = set(data.splits) == {"train"}
        each = max(1, PART_BYTES // data.record_bytes)
        for split, arrays in data.splits.items():
            for start in range(0, data.records(split), each):
                rows = {
                    field.name: array[start : start + each]
                    for field, array in zip(data.fields, arrays, strict=True)
                }
                records = len(next(iter(rows.values())))
                bad = BadRows(data.title, records)
                for plan in schema.used:
                    check_finite(rows[plan.name], plan, bad)
                columns = {plan.name: Dense(rows[plan.name]) for plan in schema.used}
                block = finished(columns, records, bad, range(start + 1, start + records + 1))
                yield (None if whole else split), block

    records = sum(data.records(split) for split in data.splits)
    return Objects(
        format="arrays",
        name=data.title,
        look=look,
        blocks=blocks,
        records=records,
        licence=data.licence,
        classes=data.classes,
    )


# -- rows -------------------------------------------------------------------------------------


def _of_rows(parts: Sequence[tuple[Split | None, Any]], name: str) -> Objects:
    held: dict[int, list[Any]] = {}
    """The first records of what can be gone through only once."""

    def rows_of(number: int, source: Any) -> Iterator[Mapping[str, Any]]:
        ahead = held.pop(number, None)
        if ahead is not None:
            return map(as_row, itertools.chain(ahead, source))
        return map(as_row, _items(source))

    def look(options: Options) -> Look:
        rows: Rows = []
        each = max(1, SAMPLE_RECORDS // len(parts))
        for number, (_, source) in enumerate(parts):
            if isinstance(source, Iterator):
                held[number] = list(itertools.islice(source, each))
                rows += map(as_row, held[number])
            else:
                rows += map(as_row, itertools.islice(_items(source), each))
        if not rows:
            raise DataMalformed(f"the {name} has no records.", advice="Give some.")
        names = list(dict.fromkeys(key for row in rows for key in row))
        sample = {key: [row.get(key) for row in rows] for key in names}
        known = Known(
            tokens=tokens_of(options.text.tokens),
            shapes=shapes_in(sample, options),
            picture=picture_in(sample, options),
            labels=_labels(parts),
        )
        return Look(sample=sample, known=known)

    def blocks(schema: Schema, known: Known) -> Iterator[tuple[Split | None, Block]]:
        for number, (split, source) in enumerate(parts):
            rows, start = rows_of(number, source), 1
            while some := list(itertools.islice(rows, _some(known))):
                yield split, block_of(some, schema, known, name, start)
                start += len(some)

    sizes = [len(source) if hasattr(source, "__len__") else None for _, source in parts]
    records = None if None in sizes else sum(cast(list[int], sizes))
    return Objects(format="lines", name=name, look=look, blocks=blocks, records=records)


def _some(known: Known) -> int:
    """Records that are read at a time."""
    sizes = [int(np.prod(shape)) for shape in known.shapes.values()]
    if known.picture is not None:
        sizes.append(int(np.prod(known.picture.shape)))
    return max(1, min(MAX_PART_RECORDS, PART_BYTES // (8 * max(1, *sizes, 1))))


def block_of(rows: Rows, schema: Schema, known: Known, name: str, start: int) -> Block:
    """`start`: the number of the first record, from 1."""
    bad = BadRows(name, len(rows))
    columns = {
        plan.name: from_values(
            [row.get(plan.name) for row in rows], plan, known, bad, written=False
        )
        for plan in schema.used
    }
    return finished(columns, len(rows), bad, range(start, start + len(rows)))


def _items(source: Any) -> Iterator[Any]:
    """A map-style data set may know its length and still raise no IndexError at its end; one to go
    through may know it too, and inherit a `__getitem__` that is of no use."""
    if hasattr(type(source), "__iter__"):
        return iter(source)
    return (source[number] for number in range(len(source)))


def as_row(item: Any) -> Mapping[str, Any]:
    """A record with names: inputs first, the last is the target."""
    if isinstance(item, Mapping):
        return {str(key): _plain(value) for key, value in item.items()}
    if not isinstance(item, tuple | list):
        item = (item,)
    names = ("x",) if len(item) <= 2 else tuple(f"x{n}" for n in range(len(item) - 1))
    return dict(zip((*names, "y"), map(_plain, item), strict=False))


def _plain(value: Any) -> Any:
    """A tensor as numpy's array, without knowing torch."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return value


def _labels(parts: Sequence[tuple[Split | None, Any]]) -> dict[str, tuple[str, ...]]:
    """Hugging Face's ClassLabel: the names of the numbers it stores."""
    found = {}
    for _, source in parts:
        features = getattr(source, "features", None)
        for name, feature in features.items() if isinstance(features, Mapping) else ():
            names = getattr(feature, "names", None)
            if isinstance(names, list) and names and all(isinstance(n, str) for n in names):
                found[str(name)] = tuple(names)
    return found
