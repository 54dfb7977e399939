"""JSON lines: an object a line."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import json as pajson

from crowdgrad.data.preparing.columns import (
    BadRows,
    Block,
    Column,
    Dense,
    Ragged,
    finished,
    narrowed,
)
from crowdgrad.data.preparing.looking import picture_in, shapes_in
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import (
    SAMPLE_RECORDS,
    Known,
    Look,
    Part,
    Reader,
    SourceFile,
)
from crowdgrad.data.preparing.reading.arrow import read_table
from crowdgrad.data.preparing.reading.ranges import BOM, bytes_of, line_ranges
from crowdgrad.data.preparing.schema import ColumnPlan, Schema
from crowdgrad.data.preparing.tokens import tokens_of
from crowdgrad.data.preparing.values import from_values
from crowdgrad.errors import DataMalformed

HEAD_BYTES = 4 << 20
_decoder = msgspec.json.Decoder()


def look(files: Sequence[SourceFile], options: Options) -> Look:
    rows: list[dict[str, Any]] = []
    each = max(50, SAMPLE_RECORDS // len(files))
    for file in files:
        with open(file.path, "rb") as opened:
            data = opened.read(HEAD_BYTES)
        whole, data = len(data) < HEAD_BYTES, data.removeprefix(BOM)
        _check_lines(data, file)
        lines = data.split(b"\n")
        lines = lines if whole else lines[:-1]
        rows += [row for line in lines[:each] if isinstance(row := _row(line), dict)]
        if len(rows) >= SAMPLE_RECORDS:
            break
    if not rows:
        raise DataMalformed(
            f"{files[0].name} has no line with a JSON object.",
            advice='Write one object a line: {"text": "…", "label": 1}.',
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    sample = {name: [row.get(name) for row in rows] for name in names}
    known = Known(
        tokens=tokens_of(options.text.tokens),
        shapes=shapes_in(sample, options),
        picture=picture_in(sample, options),
        types=_types(sample),
    )
    return Look(sample=sample, known=known)


def _types(sample: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    found = {}
    for name, values in sample.items():
        kinds = {type(value) for value in values}
        if kinds == {str}:
            found[name] = "string"
        elif kinds == {int}:
            found[name] = "int64"
    return found


def _check_lines(data: bytes, file: SourceFile) -> None:
    if data.lstrip()[:1] == b"[":
        raise DataMalformed(
            f"{file.name} is one JSON list, not an object a line.",
            advice="Write JSON lines, e.g. with `jq -c '.[]'`.",
        )


def _row(line: bytes) -> Any:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def parts(files: Sequence[SourceFile], known: Known) -> Iterator[Part]:
    number = 0
    for file in files:
        for start, stop, line in line_ranges(file.path, quotes=False, heading=False):
            yield Part(number, file.path, file.name, start, stop, line, file.split)
            number += 1


def read(part: Part, schema: Schema, known: Known) -> Block:
    data = bytes_of(part)
    block = _quickly(data, part, schema, known)
    if block is None:
        block = _carefully(data, part, schema, known)
    # JSON knows no types: a list of whole numbers is one whoever has parsed it.
    numbers = {plan.name for plan in schema.used if plan.kind in ("number", "sequence")}
    columns = {n: _narrow(c) if n in numbers else c for n, c in block.columns.items()}
    return replace(block, columns=columns)


def _narrow(column: Column) -> Column:
    if isinstance(column, Ragged):
        return Ragged(narrowed(column.values), column.ends)
    return Dense(narrowed(column.values)) if isinstance(column, Dense) else column


def _quickly(data: bytes, part: Part, schema: Schema, known: Known) -> Block | None:
    """By pyarrow; None where it does not serve, or anything at all is wrong."""
    types = [(plan.name, _arrow_type(plan, known)) for plan in schema.used]
    if any(kind is None for _, kind in types) or b"\n\n" in data:
        return None
    try:
        data.decode("utf-8")  # the parser takes any bytes
        table = pajson.read_json(
            pa.BufferReader(data),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pajson.ParseOptions(
                explicit_schema=pa.schema(types), unexpected_field_behavior="ignore"
            ),
        )
    except (UnicodeDecodeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if any(table.column(name).null_count for name, _ in types):
        return None
    block = read_table(table, part, schema, known)
    return None if block.bad_counts else block


def _arrow_type(plan: ColumnPlan, known: Known) -> Any:
    shape = known.shapes.get(plan.name, ())
    if plan.kind in ("category", "text"):
        name = known.types.get(plan.name, "" if plan.kind == "category" else "string")
        return {"string": pa.string(), "int64": pa.int64()}.get(name)
    if plan.kind not in ("number", "sequence") or plan.fill is not None:
        return None
    depth = len(shape) + (plan.kind == "sequence")
    kind = pa.float64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def _carefully(data: bytes, part: Part, schema: Schema, known: Known) -> Block:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    wrong: list[tuple[str, int, bytes]] = []
    gc.disable()  # many small objects, none of them in a circle
    try:
        for number, line in enumerate(data.split(b"\n"), part.line):
            if not line.strip():
                continue
            try:
                row = _decoder.decode(line)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                wrong.append((_fault(line), number, line))
                continue
            if isinstance(row, dict):
                rows.append(row)
                lines.append(number)
            else:
                wrong.append(("not an object", number, line))
        bad = BadRows(part.name, len(rows))
        for kind, number, line in wrong:
            bad.add_line(kind, number, line.decode("utf-8", errors="replace"))
        columns = {
            plan.name: from_values(
                [row.get(plan.name) for row in rows], plan, known, bad, written=False
            )
            for plan in schema.used
        }
        return finished(columns, len(rows), bad, lines)
    finally:
        gc.enable()


def _fault(line: bytes) -> str:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "bad encoding"
    return "not JSON"


READER = Reader(look=look, parts=parts, read=read)
