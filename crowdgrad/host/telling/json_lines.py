"""Files with an object of JSON on each line, as a run leaves them: torn when its host died, mended
by hand, or somebody else's. A line that makes no sense costs only itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

MAX_LINE = 1 << 20
"""Bytes. A longer line is none of ours, and is never in memory as a whole."""


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Each line that is an object, in order; none where there is no file, or it cannot be read."""
    try:
        with path.open("rb") as file:
            for text in _lines(file):
                found = _decoded(text)
                if isinstance(found, dict):
                    yield found
    except OSError:
        return


def _lines(file: BinaryIO) -> Iterator[bytes]:
    inside = False  # whether what comes next is the rest of a line that was too long
    while text := file.readline(MAX_LINE + 1):
        whole = text.endswith(b"\n") or len(text) <= MAX_LINE
        if whole and not inside:
            yield text
        inside = not whole


def _decoded(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
