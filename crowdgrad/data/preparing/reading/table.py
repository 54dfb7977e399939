"""Tables as text: CSV, TSV and their relatives.

A part is a range of bytes that begins and ends with a record: a line break counts as an end where
an even number of quotes stands before it. pyarrow parses; a part in which it finds anything wrong
is gone through once more, record by record, so that everything wrong is named with its line.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pacsv

from crowdgrad.data.preparing.columns import BadRows, Block, Coded, Column, Dense, finished
from crowdgrad.data.preparing.columns import narrowed as narrow
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import (
    SAMPLE_RECORDS,
    Known,
    Look,
    Part,
    Reader,
    SourceFile,
)
from crowdgrad.data.preparing.reading.ranges import BOM, bytes_of, line_ranges
from crowdgrad.data.preparing.schema import MISSING, ColumnPlan, Schema, is_number
from crowdgrad.data.preparing.tokens import tokens_of
from crowdgrad.data.preparing.values import (
    LARGEST,
    category_name,
    check_finite,
    from_values,
    missing,
    usable,
)
from crowdgrad.errors import DataMalformed

DELIMITERS = (",", "\t", ";", "|")
HEAD_BYTES = 1 << 20
"""Of every file, to guess from."""
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


def look(files: Sequence[SourceFile], options: Options) -> Look:
    wish = options.table
    _check_encoding(wish.encoding)
    first = _head(files[0], wish.encoding)
    delimiter = wish.delimiter or guess_delimiter(first)
    rows = _rows(first, delimiter, SAMPLE_RECORDS)
    if not rows:
        raise DataMalformed(f"{files[0].name} has no line.", advice="Give a table with records.")
    header = wish.header if wish.header is not None else guess_header(rows)
    width = Counter(map(len, rows)).most_common(1)[0][0]
    names = _names(rows[0] if header else [f"c{n}" for n in range(width)], files[0].name)
    for file in files[1:] if header else ():
        there = _rows(_head(file, wish.encoding), delimiter, 1)
        if there and tuple(_names(there[0], file.name)) != names:
            raise DataMalformed(
                f"{file.name} has the columns {', '.join(there[0])[:200]}; {files[0].name} has "
                f"{', '.join(names)[:200]}.",
                advice="Prepare tables of different columns one by one.",
            )
    body = [row for row in rows[header:] if len(row) == len(names)]
    for file in files[1:8]:  # later files may hold other words
        more = _rows(_head(file, wish.encoding), delimiter, SAMPLE_RECORDS // 8)[header:]
        body += [row for row in more if len(row) == len(names)]
    known = Known(
        tokens=tokens_of(options.text.tokens),
        names=names,
        delimiter=delimiter,
        header=header,
        encoding=wish.encoding,
    )
    columns = zip(*body, strict=True) if body else ([] for _ in names)
    sample = {name: list(column) for name, column in zip(names, columns, strict=True)}
    kind = {"\t": "tabs", ",": "commas", ";": "semicolons"}.get(delimiter, delimiter)
    note = f"separated by {kind}, {'with' if header else 'without'} a heading"
    return Look(sample=sample, known=known, written=True, notes=(note,))


def _head(file: SourceFile, encoding: str) -> str:
    with open(file.path, "rb") as opened:
        data = opened.read(HEAD_BYTES).removeprefix(BOM)
    if len(data) >= HEAD_BYTES:
        data = data[: data.rfind(b"\n") + 1]
    return data.decode(encoding, errors="replace")


def _check_encoding(encoding: str) -> None:
    """Records are found by the bytes of line breaks and quotes. Raises DataMalformed."""
    marks = '\n\r"'
    try:
        plain = marks.encode(encoding).endswith(marks.encode()) and marks == marks.encode().decode(
            encoding, errors="surrogateescape"
        )
    except (LookupError, UnicodeError):
        plain = False
    if not plain:
        raise DataMalformed(
            f"a table in the encoding {encoding!r} cannot be read.",
            advice="Try utf-8, latin-1 or cp1252, or write the table as UTF-8.",
        )


def _rows(text: str, delimiter: str, most: int) -> list[list[str]]:
    rows: list[list[str]] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for row in reader:
            if row:
                rows.append(row)
            if len(rows) > most:
                break
    except csv.Error:
        return rows
    return rows


def guess_delimiter(text: str) -> str:
    """The one that cuts the first lines into the same number of cells, more than one."""
    best, most = ",", 0.0
    for delimiter in DELIMITERS:
        widths = [len(row) for row in _rows(text, delimiter, 50)]
        if widths:
            width, times = Counter(widths).most_common(1)[0]
            score = (width > 1) * times / len(widths) * min(width, 100)
            if score > most:
                best, most = delimiter, score
    return best


def guess_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: it has no number, and is like none below."""
    head = [cell.strip() for cell in rows[0]]
    if any(is_number(cell) for cell in head) or len(set(head)) != len(head) or "" in head:
        return False
    below = rows[1:200]
    if any(is_number(cell) for row in below for cell in row):
        return True
    seen = [set(column) for column in zip(*below, strict=False)]
    return bool(below) and not any(
        cell in column for cell, column in zip(rows[0], seen, strict=False)
    )


def _names(cells: Sequence[str], file: str) -> tuple[str, ...]:
    names = tuple(cell.strip() for cell in cells)
    if len(set(names)) != len(names) or "" in names or not all(n.isprintable() for n in names):
        raise DataMalformed(
            f"the heading of {file} is {', '.join(names)[:200]!r}.",
            advice="Give every column a name of its own, or say --no-header.",
        )
    return names


# -- parts ------------------------------------------------------------------------------------


def parts(files: Sequence[SourceFile], known: Known) -> Iterator[Part]:
    number = 0
    for file in files:
        for start, stop, line in line_ranges(
            file.path, quotes=True, heading=known.header, delimiter=known.delimiter
        ):
            yield Part(number, file.path, file.name, start, stop, line, file.split)
            number += 1


# -- reading ----------------------------------------------------------------------------------


def read(part: Part, schema: Schema, known: Known) -> Block:
    data = bytes_of(part)
    if known.encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        # Byte for byte where it can be: what cannot be decoded is found as bad below.
        data = data.decode(known.encoding, errors="surrogateescape").encode(
            "utf-8", errors="surrogateescape"
        )
    block = _quickly(data, part, schema, known)
    return block if block is not None else _carefully(data, part, schema, known)


def _quickly(data: bytes, part: Part, schema: Schema, known: Known) -> Block | None:
    """None where anything at all is wrong."""
    types = {c.name: pa.float64() if c.kind == "number" else pa.string() for c in schema.used}
    try:
        table = _parse(data, known, types, skip=None)
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None
    bad = BadRows(part.name, table.num_rows)
    columns = {plan.name: _column(table, plan, known, bad) for plan in schema.used}
    if bad.counts:
        return None
    quoted = b'"' in data  # then a record may have several lines
    lines = () if quoted else range(part.line, part.line + table.num_rows)
    return Block(columns=columns, records=table.num_rows, file=part.name, lines=lines)


def _carefully(data: bytes, part: Part, schema: Schema, known: Known) -> Block:
    try:
        return _record_by_record(data, part, schema, known, quotes=True)
    except _OutOfStep:  # a quote that quotes nothing: 5" of rain
        return _record_by_record(data, part, schema, known, quotes=False)


class _OutOfStep(Exception):
    """The parser sees other records than we do."""


def _record_by_record(
    data: bytes, part: Part, schema: Schema, known: Known, *, quotes: bool
) -> Block:
    records, lines = _records(data, part.line, quotes=quotes)
    wrong: list[tuple[str, int, str]] = []
    kept: list[bytes] = []
    kept_lines: list[int] = []
    for record, line in zip(records, lines, strict=True):
        try:
            record.decode("utf-8")
        except UnicodeDecodeError:
            wrong.append(("bad encoding", line, record.decode("utf-8", errors="replace")))
            continue
        kept.append(record)
        kept_lines.append(line)
    ragged: set[int] = set()

    def skip(row: Any) -> str:
        at = row.number - 1
        if at >= len(kept_lines):
            return "skip"
        ragged.add(at)
        told = f"{row.actual_columns} instead of {row.expected_columns}: {row.text}"
        wrong.append(("wrong number of columns", kept_lines[at], told))
        return "skip"

    types = {c.name: pa.string() for c in schema.used}
    table = _parse(b"".join(kept), known, types, skip=skip)
    kept_lines = [line for at, line in enumerate(kept_lines) if at not in ragged]
    if len(kept_lines) != table.num_rows:
        if quotes:
            raise _OutOfStep
        kept_lines = [part.line] * table.num_rows  # somewhere from there on
    bad = BadRows(part.name, table.num_rows)
    for kind, line, detail in wrong:
        bad.add_line(kind, line, detail)
    columns = {plan.name: _column(table, plan, known, bad) for plan in schema.used}
    return finished(columns, table.num_rows, bad, kept_lines)


def _parse(data: bytes, known: Known, types: dict[str, Any], skip: Any) -> pa.Table:
    if not data:
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})
    return pacsv.read_csv(
        pa.BufferReader(data),
        read_options=pacsv.ReadOptions(
            column_names=list(known.names), use_threads=False, block_size=max(len(data) + 1, 1024)
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=known.delimiter,
            newlines_in_values=b'"' in data,
            invalid_row_handler=skip,
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=list(MISSING),
            strings_can_be_null=True,
        ),
    )


def _column(table: pa.Table, plan: ColumnPlan, known: Known, bad: BadRows) -> Column:
    cells = table.column(plan.name).combine_chunks()
    if isinstance(cells, pa.ChunkedArray):
        cells = pa.concat_arrays(cells.chunks) if cells.num_chunks else pa.array([], cells.type)
    if plan.kind == "number":
        return _numbers(cells, plan, bad)
    if plan.kind == "category":
        return _categories(cells, plan, bad)
    return from_values(cells.to_pylist(), plan, known, bad, written=True)


def _numbers(cells: pa.Array, plan: ColumnPlan, bad: BadRows) -> Dense:
    if pa.types.is_string(cells.type):
        fine = pc.match_substring_regex(cells, NUMBER)
        wrong = pc.fill_null(pc.invert(fine), False)
        if pc.any(wrong).as_py():
            mask = wrong.to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(mask).tolist():
                bad.add("not a number", row, f"{plan.name} is {cells[row].as_py()!r}")
        numbers = pc.utf8_trim_whitespace(pc.if_else(fine, cells, None))
        cells = pc.cast(numbers, pa.float64())
        cells = pc.if_else(wrong, 0.0, cells)
    cells = _filled(cells, plan, bad)
    values = cells.to_numpy(zero_copy_only=False)
    check_finite(values, plan, bad, most=LARGEST)
    return Dense(narrow(usable(values)))


def _categories(cells: pa.Array, plan: ColumnPlan, bad: BadRows) -> Coded:
    cells = _filled(cells, plan, bad)
    encoded = pc.dictionary_encode(cells)
    names = [tidy_name(name) for name in encoded.dictionary.to_pylist()]
    codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False).astype(np.int32)
    return merged_names(codes, names)


def tidy_name(name: str) -> str:
    """Without white space around it; 3.0 and 3 are the same class."""
    name = name.strip()
    whole = name.removesuffix("0").removesuffix(".") if name.endswith(".0") else name
    found = category_name(float(whole)) if whole != name and is_number(name) else name
    return found if found is not None else name


def merged_names(codes: Any, names: Sequence[str]) -> Coded:
    """Names that have become the same are one."""
    if not names:
        names = [""] if len(codes) else []
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    if len(places) != len(names):
        codes = np.array([places[name] for name in names], np.int32)[codes]
    return Coded(codes.astype(np.int32, copy=False), tuple(places))


def _filled(cells: pa.Array, plan: ColumnPlan, bad: BadRows) -> pa.Array:
    if not cells.null_count:
        return cells
    if plan.fill is not None:
        return pc.fill_null(cells, pa.scalar(plan.fill).cast(cells.type))
    gone = cells.is_null().to_numpy(zero_copy_only=False)
    bad.add_mask(missing(plan), gone, f"{plan.name} has no value")
    return pc.fill_null(cells, 0.0) if pa.types.is_floating(cells.type) else cells


def _records(data: bytes, line: int, *, quotes: bool) -> tuple[list[bytes], list[int]]:
    """Every record with its line break, and the line it begins in; empty lines left out."""
    records: list[bytes] = []
    lines: list[int] = []
    pending: list[bytes] = []
    began, open_quote = line, False
    for raw in data.splitlines(keepends=True):
        if not pending:
            began = line
        pending.append(raw)
        open_quote ^= bool(quotes and raw.count(b'"') % 2)
        line += 1
        if not open_quote:
            record = b"".join(pending)
            pending = []
            if record.strip(b"\r\n"):
                records.append(record if record.endswith((b"\n", b"\r")) else record + b"\n")
                lines.append(began)
    if pending:
        records.append(b"".join(pending))
        lines.append(began)
    return records, lines


READER = Reader(look=look, parts=parts, read=read)
