"""One reader a format, each a `Reader`: look, cut into parts, read a part.

A reader is loaded when it is asked for: what parses tables takes as much memory as the records.
"""

from __future__ import annotations

import importlib

from crowdgrad.data.preparing.parts import Format, Reader


def reader_of(format: Format) -> Reader:
    found: Reader = importlib.import_module(f"{__name__}.{format}").READER
    return found
