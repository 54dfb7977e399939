"""A file of lines in parts that begin and end with a record."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from crowdgrad.data.preparing.parts import PART_BYTES, Part

BOM = b"\xef\xbb\xbf"
Range = tuple[int, int, int]
"""First byte, last byte and first line of a part."""


def bytes_of(part: Part) -> bytes:
    with open(part.file, "rb") as file:
        file.seek(part.start)
        return file.read(part.stop - part.start)


def line_ranges(
    path: str, *, quotes: bool, heading: bool, delimiter: str = ",", anywhere: bool = False
) -> Iterator[Range]:
    """Whole records, the heading left out.

    `quotes`: a line break between quotes is part of a cell. `anywhere`: a line longer than a part
    is cut too.
    """
    if quotes:
        return _record_ranges(path, heading=heading, delimiter=delimiter.encode())
    return _line_ranges(path, heading=heading, anywhere=anywhere)


def _line_ranges(path: str, *, heading: bool, anywhere: bool) -> Iterator[Range]:
    with open(path, "rb") as file:
        start, line = _begin(file, heading=heading, quotes=False)
        at, lines = start, 0
        while data := file.read(PART_BYTES):
            end = data.rfind(b"\n") + 1
            if not end and anywhere and len(data) == PART_BYTES:
                end = _between_words(data)
            if end > 0:
                yield start, at + end, line
                line += lines + data.count(b"\n", 0, end)
                lines = 0
                start = at + end
            lines += data.count(b"\n", end)
            at += len(data)
        if start < at:
            yield start, at, line


def appended_ranges(path: str, start: int, *, heading: bool) -> Iterator[Range]:
    """The same for what stands behind byte `start`, where a record begins; a last line without its
    end is still being written."""
    with open(path, "rb") as file:
        line = 1
        if start == 0:
            start, line = _begin(file, heading=heading, quotes=True)
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


def _record_ranges(path: str, *, heading: bool, delimiter: bytes) -> Iterator[Range]:
    """An even number of quotes before a line break says that it ends a record. That is quick,
    and wrong where a cell has a quote that quotes nothing (12" of snow): then every line break
    seems to be inside. Such a file is gone through cell by cell from there on.
    """
    with open(path, "rb") as file:
        start, line = _begin(file, heading=heading, quotes=True)
        at, lines, inside = start, 0, False
        while data := file.read(PART_BYTES):
            end = _last_end(data, inside)
            if not end and at > start:
                yield from _by_cell(file, start, line, delimiter)
                return
            if end:
                yield start, at + end, line
                line += lines + data.count(b"\n", 0, end)
                lines = 0
                start = at + end
            lines += data.count(b"\n", end)
            inside ^= bool(data.count(b'"') % 2)
            at += len(data)
        if start < at:
            yield start, at, line


def _begin(file: io.BufferedReader, *, heading: bool, quotes: bool) -> tuple[int, int]:
    """The first byte and line behind a heading."""
    if file.read(3) != BOM:
        file.seek(0)
    lines, open_quote = 1, False
    while heading and (line := file.readline()):
        lines += 1
        open_quote ^= bool(quotes and line.count(b'"') % 2)
        if not open_quote:
            break
    return file.tell(), lines


def _between_words(data: bytes) -> int:
    """Behind the last white space, or at least not within a character of UTF-8."""
    end = max(data.rfind(b" "), data.rfind(b"\t")) + 1
    if end:
        return end
    end = len(data)
    while end > 1 and data[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if data[end - 1] >= 0xC0 else len(data)


def _last_end(data: bytes, inside: bool) -> int:
    """Behind the last line break that ends a record; 0 where there is none."""
    end, after = len(data), 0
    all_quotes = data.count(b'"') + inside
    while (before := data.rfind(b"\n", 0, end)) >= 0:
        after += data.count(b'"', before, end)
        if (all_quotes - after) % 2 == 0:
            return before + 1
        end = before
    return 0


def _by_cell(file: io.BufferedReader, start: int, line: int, delimiter: bytes) -> Iterator[Range]:
    """From `start`, where a record begins: a quote counts where a cell begins with it."""
    begins = re.compile(rb'(?<![^\r\n%s])"' % re.escape(delimiter))
    rest = re.compile(rb'[^"]*+(?:""[^"]*+)*+(?:(")|\Z)')
    file.seek(start)
    at, lines, inside, last = start, 0, False, b"\n"
    while data := file.read(PART_BYTES):
        while data.endswith(b'"') and (more := file.read(1)):
            data += more  # a quote at the end may be the first of two
        held = last + data
        end, place = 0, 1
        while True:
            if inside:
                found = rest.match(held, place)
                assert found is not None
                place, inside = found.end(), found.group(1) is None
                if inside:
                    break
            opening = begins.search(held, place)
            stop = opening.start() if opening else len(held)
            end = max(end, held.rfind(b"\n", place, stop) + 1)
            if opening is None:
                break
            place, inside = opening.end(), True
        end -= 1  # `held` begins a byte before `data`
        if end > 0:
            yield start, at + end, line
            line += lines + data.count(b"\n", 0, end)
            lines = 0
            start = at + end
        lines += data.count(b"\n", max(0, end))
        at, last = at + len(data), data[-1:]
    if start < at:
        yield start, at, line
