"""A source in parts that can be read apart from each other, and what all readers must know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from crowdgrad.data.preparing.columns import Block
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.pictures import PicturePlan
from crowdgrad.data.preparing.schema import Schema
from crowdgrad.data.preparing.tokens import Tokens
from crowdgrad.domain.data import Split

Format = Literal["table", "lines", "arrow", "images", "arrays", "text"]
PART_BYTES = 4 << 20
"""Of a file that is read in parts; never by the number of cores: a part is a part anywhere."""
SAMPLE_RECORDS = 2000
"""What a schema is guessed from."""


class SourceFile(msgspec.Struct, frozen=True):
    path: str
    name: str
    """As people know it: without the folders above the source."""
    bytes: int
    stamp: str
    """Changes when the file does."""
    split: Split | None = None
    """Where its name or folder says it."""
    label: str = ""
    """The folder it lies in, where folders are classes."""


class ArrayPlace(msgspec.Struct, frozen=True):
    """An array in a file."""

    column: str
    path: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    fortran: bool = False


class Known(msgspec.Struct, frozen=True):
    """What readers must know besides the columns' kinds."""

    tokens: Tokens
    picture: PicturePlan | None = None
    shapes: dict[str, tuple[int, ...]] = {}
    """Of one record of a column of lists; of one step of a sequence."""
    types: dict[str, str] = {}
    """Of a column of JSON whose values are all words, or all whole numbers: string or int64."""
    labels: dict[str, tuple[str, ...]] = {}
    """Of a column that stores numbers for words: the words, where the source knows them."""
    names: tuple[str, ...] = ()
    """The columns of a table, in order."""
    delimiter: str = ","
    header: bool = True
    encoding: str = "utf-8"


class Part(msgspec.Struct, frozen=True):
    number: int
    file: str
    name: str
    start: int
    """The first byte, or the first record."""
    stop: int
    line: int = 1
    """Of the first byte, from 1."""
    split: Split | None = None
    files: tuple[tuple[str, str, str], ...] = ()
    """Where records are files: path, name, class."""
    arrays: tuple[ArrayPlace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a first look at a source has brought."""

    sample: Mapping[str, Sequence[Any]]
    """Some values of every column."""
    known: Known
    written: bool = False
    """Whether numbers come as text."""
    schema: Schema | None = None
    """Where there is nothing to guess."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How a format is read. All raise DataError for what is not one bad record but a bad source."""

    look: Callable[[Sequence[SourceFile], Options], Look]
    parts: Callable[[Sequence[SourceFile], Known], Iterable[Part]]
    """The same for the same files, whoever asks; numbered from 0."""
    read: Callable[[Part, Schema, Known], Block]
