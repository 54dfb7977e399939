"""Plain text: one long row of tokens, from which windows are cut.

A part is a range of whole lines; a line that is not valid UTF-8 is a bad record. Windows run across
parts: they are cut when all tokens have been counted (`records`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np

from crowdgrad.data.preparing.columns import BadRows, Block, Dense
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import Known, Look, Part, Reader, SourceFile
from crowdgrad.data.preparing.reading.ranges import bytes_of, line_ranges
from crowdgrad.data.preparing.schema import ColumnPlan, Schema
from crowdgrad.data.preparing.tokens import encode, tokens_of

TOKENS = "text"


def look(files: Sequence[SourceFile], options: Options) -> Look:
    known = Known(tokens=tokens_of(options.text.tokens))
    with open(files[0].path, "rb") as opened:
        head = opened.read(4096).decode("utf-8", errors="replace")
    plan = ColumnPlan(TOKENS, "text", "input", f"{len(files)} files of text")
    return Look(sample={TOKENS: head.splitlines()[:20]}, known=known, schema=Schema((plan,)))


def parts(files: Sequence[SourceFile], known: Known) -> Iterator[Part]:
    """Those of one split one after the other: no window leads from one split into another."""
    number = 0
    for file in sorted(files, key=lambda file: file.split or ""):
        for start, stop, line in line_ranges(file.path, quotes=False, heading=False, anywhere=True):
            yield Part(number, file.path, file.name, start, stop, line, file.split)
            number += 1


def read(part: Part, schema: Schema, known: Known) -> Block:
    data = bytes_of(part)
    bad = BadRows(part.name, 0)
    try:
        found = [encode(data.decode("utf-8"), known.tokens)]
    except ValueError:  # not UTF-8, or not in the vocabulary
        found = []
        for number, line in enumerate(io.BytesIO(data), part.line):
            try:
                found.append(encode(line.decode("utf-8"), known.tokens))
            except UnicodeDecodeError:
                bad.add_line("bad encoding", number, line.decode("utf-8", errors="replace"))
            except ValueError as error:
                bad.add_line("not in the vocabulary", number, str(error))
    tokens = np.concatenate(found) if found else np.zeros(0, np.uint8)
    return Block(
        columns={TOKENS: Dense(tokens)},
        records=len(tokens),
        bad=bad.found([]),
        bad_counts=dict(bad.counts),
    )


READER = Reader(look=look, parts=parts, read=read)
