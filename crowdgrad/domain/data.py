"""A data set as it travels: records of fixed size in shards, shards as content-addressed chunks.

A shard stores its fields one after the other, each field as one block of all its records (columns,
not rows), so a reader takes a batch of any field by indexing without parsing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, NewType

from crowdgrad.domain.program import DType, TensorSpec

ChunkHash = NewType("ChunkHash", str)
"""sha256 of the chunk's bytes, 64 hexadecimal digits."""
Split = Literal["train", "validation", "test"]

MIN_CHUNK_BYTES = 256 << 10
MAX_CHUNK_BYTES = 4 << 20
MAX_SHARDS = 1 << 17
MAX_SHARD_CHUNKS = 1 << 12
MAX_FIELDS = 256
MAX_DATA_TITLE = 200
MAX_CARD_WORDS = 2000
"""Characters of one text of a data card."""
MAX_CARD_NAMES = 4096
"""Names of classes, and entries of a vocabulary, that a card lists; with more it lists none."""
MAX_CARD_NAME = 64
MAX_CARD_NOTES = 64
_HASH = re.compile("[0-9a-f]{64}")


def check_hash(value: str) -> None:
    if _HASH.fullmatch(value) is None:
        raise ValueError(f"a hash has 64 hexadecimal digits, not {value[:70]!r}")


Moment = float | tuple[float, ...]
"""A mean or a standard deviation: of the whole field, or for each place of its first dimension."""


def _several(moment: Moment) -> tuple[float, ...]:
    return moment if isinstance(moment, tuple) else (moment,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of the records, in the type it is stored in.

    The program's first operations turn it into what the model reads: `(value − mean) / std` where
    both are given, a cast to the model's type otherwise. Several means are one for each place along
    the first dimension: a column of a table, a channel of a picture.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    mean: Moment | None = None
    std: Moment | None = None

    def __post_init__(self) -> None:
        TensorSpec(name=self.name, dtype=self.dtype, shape=self.shape)
        if self.mean is None or self.std is None:
            if self.mean is not self.std:
                raise ValueError(f"field {self.name!r}: mean and std go together")
            return
        means, stds = _several(self.mean), _several(self.std)
        if len(means) != len(stds) or isinstance(self.mean, tuple) != isinstance(self.std, tuple):
            raise ValueError(f"field {self.name!r}: {len(means)} means, {len(stds)} deviations")
        if isinstance(self.mean, tuple) and (self.shape[:1] != (len(means),)):
            raise ValueError(f"field {self.name!r}: {len(means)} means for records {self.shape}")
        for mean, std in zip(means, stds, strict=True):
            if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
                raise ValueError(f"field {self.name!r}: mean {mean}, std {std}")

    @property
    def bytes(self) -> int:
        return TensorSpec(name=self.name, dtype=self.dtype, shape=self.shape).bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    hash: ChunkHash
    bytes: int

    def __post_init__(self) -> None:
        check_hash(self.hash)
        if not 0 < self.bytes <= MAX_CHUNK_BYTES:
            raise ValueError(f"a chunk has 1 to {MAX_CHUNK_BYTES} bytes, not {self.bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    split: Split
    records: int
    chunks: tuple[Chunk, ...]

    def __post_init__(self) -> None:
        if self.records <= 0 or not 0 < len(self.chunks) <= MAX_SHARD_CHUNKS:
            raise ValueError(
                f"a shard has records in 1 to {MAX_SHARD_CHUNKS} chunks, not {self.records} in "
                f"{len(self.chunks)}"
            )

    @property
    def bytes(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a person should know of a data set; it travels with it."""

    source: str = ""
    """What it was made of, without a path."""
    licence: str = ""
    """As its owner says; empty: nobody knows."""
    classes: tuple[str, ...] = ()
    """The names of the target's classes: class k is the k-th. Empty where there are none."""
    counts: tuple[int, ...] = ()
    """How many records each class has, in all splits together."""
    vocabulary: tuple[str, ...] = ()
    """What the numbers of a text stand for."""
    left_out: int = 0
    """Records of the source that could not be used."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for text in (self.source, self.licence, *self.notes):
            if len(text) > MAX_CARD_WORDS or not text.isprintable():
                raise ValueError(f"a card's texts are one line of {MAX_CARD_WORDS} characters")
        if max(len(self.classes), len(self.vocabulary)) > MAX_CARD_NAMES:
            raise ValueError(f"a card lists at most {MAX_CARD_NAMES} names")
        if any(len(name) > MAX_CARD_NAME for name in (*self.classes, *self.vocabulary)):
            raise ValueError(f"a name on a card has at most {MAX_CARD_NAME} characters")
        if not all(name.isprintable() for name in self.classes) or len(self.notes) > MAX_CARD_NOTES:
            raise ValueError("a card's names of classes are printable, its notes few")
        if self.counts and len(self.counts) != len(self.classes):
            raise ValueError(f"{len(self.counts)} counts for {len(self.classes)} classes")
        if min((self.left_out, *self.counts)) < 0:
            raise ValueError("a card counts from zero")


NO_CARD = Card()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """The word of a key that a data set is this one: the root of its hash tree, signed."""

    root: str
    key: bytes
    signature: bytes

    def __post_init__(self) -> None:
        check_hash(self.root)
        if (len(self.key), len(self.signature)) != (32, 64):
            raise ValueError(f"a key of {len(self.key)} bytes, signed with {len(self.signature)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a data set consists of; a shard's number is its place in `shards`."""

    title: str
    fields: tuple[Field, ...]
    shards: tuple[Shard, ...]
    card: Card = NO_CARD

    def __post_init__(self) -> None:
        if not 0 < len(self.fields) <= MAX_FIELDS or not 0 < len(self.shards) <= MAX_SHARDS:
            raise ValueError(
                f"{len(self.fields)} fields in {len(self.shards)} shards; there are 1 to "
                f"{MAX_FIELDS} and 1 to {MAX_SHARDS}"
            )
        if not 0 < len(self.title) <= MAX_DATA_TITLE or not self.title.isprintable():
            raise ValueError(f"a data set's title has 1 to {MAX_DATA_TITLE} printable characters")
        if len({field.name for field in self.fields}) != len(self.fields):
            raise ValueError("two fields of the data set have the same name")
        record_bytes = self.record_bytes  # once: a stranger may have written many of both
        for number, shard in enumerate(self.shards):
            if shard.bytes != shard.records * record_bytes:
                raise ValueError(f"shard {number}: {shard.bytes} bytes for {shard.records} records")

    @property
    def record_bytes(self) -> int:
        return sum(field.bytes for field in self.fields)

    def numbers(self, split: Split) -> tuple[int, ...]:
        """The numbers of the shards of one split."""
        return tuple(n for n, shard in enumerate(self.shards) if shard.split == split)

    def records(self, split: Split) -> int:
        return sum(shard.records for shard in self.shards if shard.split == split)
