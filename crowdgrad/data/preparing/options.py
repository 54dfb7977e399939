"""What the owner of the data asks for: by flags, a small TOML file or keywords; all of it optional.

title = "Iris"
licence = "CC0"
target = ["species"]
bad = "skip"                    # stop, skip, or how many records may be left out
seed = 1
validation = 0.1                # a share below 1, or a number of records
test = 500
stratify = true
normalise = true

[columns.age]
kind = "number"                 # number, category, text, sequence, image, drop
fill = 0                        # in place of a missing value
[columns.city]
kind = "category"
encode = "code"                 # or onehot
order = ["Cork", "Dublin"]      # the first is 0; otherwise by the alphabet, or by size

[text]
tokens = "char"                 # char, byte, or a file with a vocabulary, an entry a line
length = 64

[images]
size = [32, 32]                 # height, width
colour = "rgb"                  # or grey
fit = "crop"                    # crop, pad or stretch

[table]
delimiter = ";"
header = false
encoding = "latin-1"
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from crowdgrad.domain.data import MAX_CHUNK_BYTES, MIN_CHUNK_BYTES
from crowdgrad.errors import DataMalformed

Kind = Literal["number", "category", "text", "sequence", "image", "drop"]
Encode = Literal["code", "onehot"]
Fit = Literal["crop", "pad", "stretch"]
Colour = Literal["rgb", "grey"]
MAX_SIDE = 4096
MAX_LENGTH = 1 << 20
SHARE = 0.1
"""Of the records, for validation and for the test, unless told."""
MOST = {"validation": 5_000, "test": 10_000}
"""Records that a share nobody asked for comes to at most."""


class ColumnWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Kind | None = None
    encode: Encode | None = None
    fill: float | str | None = None
    order: tuple[str, ...] = ()


class TextWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: str = "char"
    length: int | None = None


class ImageWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: tuple[int, int] | None = None
    colour: Colour | None = None
    fit: Fit = "crop"


class TableWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str = ""
    licence: str = ""
    seed: int = 0
    validation: float | None = None
    """A share below 1, or a number of records; None: a tenth, at most 5,000."""
    test: float | None = None
    """Likewise; None: a tenth, at most 10,000."""
    stratify: bool = False
    bad: Literal["stop", "skip"] | int = "stop"
    target: tuple[str, ...] | None = None
    """The columns to learn; empty: the inputs are all there is. None: found by their names."""
    input: tuple[str, ...] = ()
    """The columns to learn from; empty: all others."""
    normalise: bool = True
    growing: bool = False
    """Records will be added: whole numbers get room for larger ones than there are now."""
    columns: dict[str, ColumnWish] = {}
    text: TextWish = TextWish()
    images: ImageWish = ImageWish()
    table: TableWish = TableWish()
    shard_records: int | None = None
    """How many records a shard has; None: a mebibyte of them, at least 1,024."""
    chunk_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        for name, share in (("validation", self.validation), ("test", self.test)):
            if share is not None and not (math.isfinite(share) and share >= 0):
                raise ValueError(f"{name} is {share}: give a share below 1 or a number of records")
        if isinstance(self.bad, int) and self.bad < 0:
            raise ValueError(f"bad is {self.bad}: give skip, stop or a number of records")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed {self.seed} is not a 64-bit number")
        if self.text.length is not None and not 0 < self.text.length <= MAX_LENGTH:
            raise ValueError(f"a text's length is 1 to {MAX_LENGTH} tokens, not {self.text.length}")
        if self.images.size is not None and not all(0 < s <= MAX_SIDE for s in self.images.size):
            raise ValueError(f"a picture has 1 to {MAX_SIDE} pixels a side")
        if self.table.delimiter is not None and len(self.table.delimiter) != 1:
            raise ValueError(f"a delimiter is one character, not {self.table.delimiter!r}")
        if not MIN_CHUNK_BYTES <= self.chunk_bytes <= MAX_CHUNK_BYTES:
            raise ValueError(f"chunks have {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES} bytes")
        if self.shard_records is not None and self.shard_records < 1:
            raise ValueError("a shard has at least one record")

    def kept_out(self, split: Literal["validation", "test"], records: int) -> int:
        """How many of the records become the split."""
        wish = self.validation if split == "validation" else self.test
        if wish is None:
            return min(MOST[split], int(records * SHARE))
        return int(wish) if wish >= 1 else int(round(records * wish, 6))  # 0.29 × 100 is 28.99…


def from_table(table: dict[str, Any], where: str) -> Options:
    """Raises DataMalformed."""
    if isinstance(table.get("target"), str):
        table = {**table, "target": [table["target"]]}
    if isinstance(table.get("input"), str):
        table = {**table, "input": [table["input"]]}
    try:
        return msgspec.convert(table, Options)
    except (msgspec.ValidationError, ValueError) as error:
        known = ", ".join(Options.__struct_fields__)
        raise DataMalformed(f"{where}: {error}.", advice=f"Known keys: {known}.") from None


def read_file(file: Path) -> dict[str, Any]:
    """A TOML file's table. Raises DataMalformed."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataMalformed(f"{file} is not a TOML file: {error}.", advice="Mend it.") from None
