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
_HASH = re.compile("[0-9a-f]{64}")


def check_hash(value: str) -> None:
    if _HASH.fullmatch(value) is None:
        raise ValueError(f"a hash has 64 hexadecimal digits, not {value[:70]!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of the records, in the type it is stored in.

    The program's first operations turn it into what the model reads: `(value − mean) / std` where
    both are given, a cast to the model's type otherwise.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    mean: float | None = None
    std: float | None = None

    def __post_init__(self) -> None:
        TensorSpec(name=self.name, dtype=self.dtype, shape=self.shape)
        if (self.mean is None) != (self.std is None):
            raise ValueError(f"field {self.name!r}: mean and std go together")
        mean, std = self.mean or 0.0, 1.0 if self.std is None else self.std
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
class Manifest:
    """What a data set consists of; a shard's number is its place in `shards`."""

    title: str
    fields: tuple[Field, ...]
    shards: tuple[Shard, ...]

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
