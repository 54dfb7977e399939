"""Parquet and Arrow files: a part is a row group, or some of its rows where it is large."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crowdgrad.data.preparing.columns import (
    BadRows,
    Block,
    Column,
    Dense,
    Ragged,
    finished,
)
from crowdgrad.data.preparing.looking import picture_in, shapes_in
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import (
    PART_BYTES,
    SAMPLE_RECORDS,
    Known,
    Look,
    Part,
    Reader,
    SourceFile,
)
from crowdgrad.data.preparing.reading.table import merged_names
from crowdgrad.data.preparing.schema import ColumnPlan, Schema
from crowdgrad.data.preparing.tokens import tokens_of
from crowdgrad.data.preparing.values import LARGEST, check_finite, from_values, stored, usable
from crowdgrad.errors import DataMalformed

MAX_PART_RECORDS = 1 << 20
READ_BYTES = 256 << 10
"""Of each column of a Parquet file at a time."""


def look(files: Sequence[SourceFile], options: Options) -> Look:
    schema = _schema(files[0])
    for file in files[1:]:
        if _schema(file).names != schema.names:
            raise DataMalformed(
                f"{file.name} has the columns {', '.join(_schema(file).names)[:200]}; "
                f"{files[0].name} has {', '.join(schema.names)[:200]}.",
                advice="Prepare files of different columns one by one.",
            )
    with _readable(files[0].name):
        return look_at(_first(files[0], SAMPLE_RECORDS), options)


def look_at(table: pa.Table, options: Options) -> Look:
    sample = {name: table.column(name).to_pylist() for name in table.column_names}
    known = Known(
        tokens=tokens_of(options.text.tokens),
        shapes=shapes_in(sample, options),
        picture=picture_in(sample, options),
    )
    return Look(sample=sample, known=known)


def _is_parquet(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def _parquet(path: str) -> pq.ParquetFile:
    """Read through small buffers: a row group may be larger than our memory."""
    return pq.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False)


def _schema(file: SourceFile) -> pa.Schema:
    with _readable(file.name):
        if _is_parquet(file.path):
            return pq.read_schema(file.path)
        with _arrow(file.path) as opened:
            return opened.schema


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Raises DataMalformed where pyarrow finds that a file is not what it should be."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        words = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataMalformed(f"{name} cannot be read: {words}.", advice="Write it again.") from None


class _Stream:
    """An Arrow file of either kind as numbered batches."""

    def __init__(self, path: str) -> None:
        self._source = pa.memory_map(path)
        try:
            self._file: Any = pa.ipc.open_file(self._source)
            self.batches = self._file.num_record_batches
        except pa.ArrowInvalid:
            self._source.seek(0)
            self._file = None
            stream = pa.ipc.open_stream(self._source)
            self._read, self.schema = list(stream), stream.schema
            self.batches = len(self._read)
        else:
            self.schema = self._file.schema

    def batch(self, number: int) -> pa.RecordBatch:
        batch = self._file.get_batch(number) if self._file is not None else self._read[number]
        batch.validate(full=True)  # offsets that lead nowhere would end the process
        return batch

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()


def _arrow(path: str) -> _Stream:
    return _Stream(path)


def _first(file: SourceFile, records: int) -> pa.Table:
    if _is_parquet(file.path):
        with _parquet(file.path) as opened:
            batch = next(opened.iter_batches(batch_size=records, use_threads=False), None)
            schema = opened.schema_arrow
    else:
        with _arrow(file.path) as stream:
            batch = stream.batch(0).slice(0, records) if stream.batches else None
            schema = stream.schema
    return pa.Table.from_batches([batch] if batch is not None else [], schema)


def parts(files: Sequence[SourceFile], known: Known) -> Iterator[Part]:
    """`start` and `stop` are records of the file."""
    number = 0
    for file in files:
        with _readable(file.name):
            ranges = list(_ranges(file))
        for start, stop in ranges:
            yield Part(number, file.path, file.name, start, stop, start + 1, file.split)
            number += 1


def _ranges(file: SourceFile) -> Iterator[tuple[int, int]]:
    at = 0
    for records, size in _groups(file):
        pieces = max(1, -(-size // PART_BYTES), -(-records // MAX_PART_RECORDS))
        each = -(-records // pieces)
        for start in range(0, records, max(1, each)):
            yield at + start, at + min(records, start + each)
        at += records


def _groups(file: SourceFile) -> list[tuple[int, int]]:
    """Records and bytes of every row group."""
    if _is_parquet(file.path):
        with _parquet(file.path) as opened:
            groups = [opened.metadata.row_group(n) for n in range(opened.metadata.num_row_groups)]
            return [(group.num_rows, group.total_byte_size) for group in groups]
    with _arrow(file.path) as stream:
        batches = (stream.batch(n) for n in range(stream.batches))
        return [(batch.num_rows, batch.nbytes) for batch in batches]


def read(part: Part, schema: Schema, known: Known) -> Block:
    names = [plan.name for plan in schema.used]
    with _readable(part.name):
        return read_table(_rows(part, names), part, schema, known)


def _rows(part: Part, names: list[str]) -> pa.Table:
    found, at = [], 0
    if not _is_parquet(part.file):
        with _arrow(part.file) as stream:
            for number, records in enumerate(_sizes(part.file, os.stat(part.file).st_mtime_ns)):
                if at < part.stop and at + records > part.start:
                    found += _overlap(stream.batch(number).select(names), at, part)
                at += records
            return pa.Table.from_batches(found).combine_chunks()
    with _parquet(part.file) as opened:
        for number in range(opened.metadata.num_row_groups):
            records = opened.metadata.row_group(number).num_rows
            if at < part.stop and at + records > part.start:
                inside = at
                for batch in opened.iter_batches(
                    batch_size=max(1, part.stop - part.start), row_groups=[number],
                    columns=names, use_threads=False,
                ):  # fmt: skip
                    found += _overlap(batch, inside, part)
                    inside += batch.num_rows
                    if inside >= part.stop:
                        break
            at += records
        return pa.Table.from_batches(found, opened.schema_arrow if not found else None)


@lru_cache(maxsize=64)
def _sizes(path: str, stamp: int) -> tuple[int, ...]:
    """Records of every batch, remembered: to count those of a packed batch is to unpack it."""
    with _arrow(path) as stream:
        return tuple(stream.batch(number).num_rows for number in range(stream.batches))


def _overlap(batch: pa.RecordBatch, at: int, part: Part) -> list[pa.RecordBatch]:
    first, stop = max(part.start, at), min(part.stop, at + batch.num_rows)
    return [batch.slice(first - at, stop - first)] if first < stop else []


def read_table(table: pa.Table, part: Part, schema: Schema, known: Known) -> Block:
    bad = BadRows(part.name, table.num_rows)
    columns = {
        plan.name: from_arrow(_whole(table.column(plan.name)), plan, known, bad)
        for plan in schema.used
    }
    lines = range(part.line, part.line + table.num_rows)
    return finished(columns, table.num_rows, bad, lines)


def _whole(cells: pa.ChunkedArray) -> pa.Array:
    if cells.num_chunks == 1:
        return cells.chunk(0)
    return pa.concat_arrays(cells.chunks) if cells.num_chunks else pa.array([], cells.type)


def from_arrow(cells: pa.Array, plan: ColumnPlan, known: Known, bad: BadRows) -> Column:
    """The quick ways; what they do not serve goes value by value."""
    if cells.null_count == 0:
        found = _quickly(cells, plan, known, bad)
        if found is not None:
            return found
    return from_values(cells.to_pylist(), plan, known, bad, written=False)


def _quickly(cells: pa.Array, plan: ColumnPlan, known: Known, bad: BadRows) -> Column | None:
    kind = cells.type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    shape = known.shapes.get(plan.name, ())
    if plan.kind == "number" and plain and not shape:
        values = cells.to_numpy(zero_copy_only=False)
        check_finite(values, plan, bad, most=LARGEST)
        return Dense(stored(usable(values)))
    if plan.kind == "category" and pa.types.is_dictionary(kind):
        cells, kind = cells.cast(kind.value_type), kind.value_type
    if plan.kind == "category" and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        encoded = pc.dictionary_encode(cells)
        names = [name.strip() for name in encoded.dictionary.to_pylist()]
        return merged_names(encoded.indices.to_numpy(zero_copy_only=False), names)
    if plan.kind == "category" and pa.types.is_integer(kind):
        encoded = pc.dictionary_encode(cells)
        names = [str(number) for number in encoded.dictionary.to_pylist()]
        return merged_names(encoded.indices.to_numpy(zero_copy_only=False), names)
    if plan.kind in ("number", "sequence"):
        return _lists(cells, plan, shape, bad)
    return None


def _lists(
    cells: pa.Array, plan: ColumnPlan, shape: tuple[int, ...], bad: BadRows
) -> Column | None:
    """Lists of plain numbers, however deep, where all but the first dimension are of one size."""
    flat, depth, ends = cells, 0, None
    while pa.types.is_list(flat.type) or pa.types.is_large_list(flat.type) or (
        pa.types.is_fixed_size_list(flat.type)
    ):  # fmt: skip
        if flat.null_count:
            return None
        if depth == 0:
            ends = np.cumsum(
                pc.list_value_length(flat).to_numpy(zero_copy_only=False), dtype=np.int64
            )
        flat, depth = flat.flatten(), depth + 1
    plain = pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type)
    inner = shape if plan.kind == "sequence" else shape[1:]
    if not plain or flat.null_count or ends is None or depth != len(inner) + 1:
        return None
    values = flat.to_numpy(zero_copy_only=False)
    steps = int(ends[-1]) if len(ends) else 0
    fine = bool(np.array_equal(usable(values), values))
    if len(values) != steps * int(np.prod(inner)) or not fine:
        return None
    values = values.reshape(steps, *inner)
    if plan.kind == "sequence":
        return Ragged(values, ends)
    if (np.diff(ends, prepend=0) != shape[0]).any():
        return None
    return Dense(stored(values.reshape(len(cells), *shape)))


READER = Reader(look=look, parts=parts, read=read)
