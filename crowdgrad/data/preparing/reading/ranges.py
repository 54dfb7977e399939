"""A file of lines in parts that begin and end with a record."""

from __future__ import annotations

import io
from collections.abc import Iterator

from crowdgrad.data.preparing.parts import PART_BYTES

BOM = b"\xef\xbb\xbf"


def line_ranges(path: str, *, quotes: bool, heading: bool) -> Iterator[tuple[int, int, int]]:
    """First byte, last byte and first line of each part; whole records, the heading left out.

    `quotes`: a line break between quotes is part of a cell.
    """
    with open(path, "rb") as file:
        if file.read(3) != BOM:
            file.seek(0)
        line = 1
        if heading:
            line += _skip_record(file, quotes=quotes)
        start = at = file.tell()
        lines = 0
        inside = False
        while data := file.read(PART_BYTES):
            end = _last_end(data, inside) if quotes else data.rfind(b"\n") + 1
            if end > 0:
                yield start, at + end, line
                line += lines + data.count(b"\n", 0, end)
                lines = 0
                start = at + end
            lines += data.count(b"\n", end)
            inside ^= bool(quotes and data.count(b'"') % 2)
            at += len(data)
        if start < at:
            yield start, at, line


def appended_ranges(path: str, start: int, *, heading: bool) -> Iterator[tuple[int, int, int]]:
    """The same for what stands behind byte `start`, where a record begins; a last line without its
    end is still being written."""
    with open(path, "rb") as file:
        line = 1
        if start == 0:
            if file.read(3) != BOM:
                file.seek(0)
            if heading:
                line += _skip_record(file, quotes=True)
            start = file.tell()
        else:
            left = start
            while left and (data := file.read(min(PART_BYTES, left))):
                line += data.count(b"\n")
                left -= len(data)
        file.seek(start)
        while data := file.read(PART_BYTES):
            end = data.rfind(b"\n") + 1
            if not end:
                return
            yield start, start + end, line
            line += data.count(b"\n", 0, end)
            start += end
            file.seek(start)


def _skip_record(file: io.BufferedReader, *, quotes: bool) -> int:
    """Go past the first record; how many lines it has."""
    lines, open_quote = 0, False
    while line := file.readline():
        lines += 1
        open_quote ^= bool(quotes and line.count(b'"') % 2)
        if not open_quote:
            break
    return lines


def _last_end(data: bytes, inside: bool) -> int:
    """Behind the last line break that ends a record; 0 where there is none."""
    end = len(data)
    before = data.count(b'"') + inside
    while (end := data.rfind(b"\n", 0, end)) >= 0:
        if (before - data.count(b'"', end)) % 2 == 0:
            return end + 1
    return 0
