"""What the catalogue knows of a data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crowdgrad.data.dataset import DataSet
from crowdgrad.data.files import PinnedFile
from crowdgrad.data.sources import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    title: str
    summary: str
    build: Callable[[dict[str, bytes]], DataSet]
    """From the content of its files."""
    files: tuple[PinnedFile, ...] = ()
    sources: tuple[Source, ...] = ()
    origin: str = ""
    """Where it comes from when it needs no files."""
