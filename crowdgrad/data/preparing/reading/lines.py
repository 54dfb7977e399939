"""JSON lines: an object a line."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from crowdgrad.data.preparing.columns import BadRows, Block, finished
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
from crowdgrad.data.preparing.reading.ranges import BOM, line_ranges
from crowdgrad.data.preparing.schema import Schema
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
    )
    return Look(sample=sample, known=known)


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
    with open(part.file, "rb") as file:
        file.seek(part.start)
        data = file.read(part.stop - part.start)
    return read_lines(data, part, schema, known)


def read_lines(data: bytes, part: Part, schema: Schema, known: Known) -> Block:
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
