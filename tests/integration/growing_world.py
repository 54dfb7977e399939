"""The digits as a data folder that somebody adds to, shard by shard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from crowdgrad.data.catalogue import load
from crowdgrad.data.dataset import DataSet
from crowdgrad.data.folder import GROWING, write_chunk, write_manifest
from crowdgrad.data.sealing import seal
from crowdgrad.domain.data import Card, Chunk, Manifest, Shard, Split
from crowdgrad.net.identity import guest

SHARD_RECORDS = 200
VALIDATION = 150
KEY = guest("preparer")
CARD = Card(source="scikit-learn's digits", licence="CC BY 4.0", left_out=3)


class Preparer:
    """Whoever prepares the folder: some shards at first, the others when asked."""

    def __init__(self, folder: Path, shards: int, *, growing: bool = True) -> None:
        self.folder = folder
        self._digits: DataSet = load("digits", cache=Path("unused"), offline=True)
        folder.mkdir(parents=True, exist_ok=True)
        if growing:
            (folder / GROWING).write_text("")
        self._at = 0
        first = [self._validation(), *(self._next() for _ in range(shards))]
        test = self._digits.splits["test"]
        first.append(self._shard("test", [column[:100] for column in test]))
        self.manifest = Manifest(
            title="digits", fields=self._digits.fields, shards=tuple(first), card=CARD
        )
        self.write()

    def add(self, records: int = SHARD_RECORDS) -> None:
        """One shard more to train on."""
        self.manifest = replace(self.manifest, shards=(*self.manifest.shards, self._next(records)))
        self.write()

    def write(self) -> None:
        write_manifest(self.folder, self.manifest, seal(self.manifest, KEY))

    @property
    def records(self) -> list[int]:
        return [shard.records for shard in self.manifest.shards if shard.split == "train"]

    def _validation(self) -> Shard:
        columns = self._digits.splits["test"]
        return self._shard("validation", [column[100 : 100 + VALIDATION] for column in columns])

    def _next(self, records: int = SHARD_RECORDS) -> Shard:
        columns = self._digits.splits["train"]
        rows = np.arange(self._at, self._at + records) % len(columns[0])
        self._at += records
        return self._shard("train", [column[rows] for column in columns])

    def _shard(self, split: Split, columns: list[np.ndarray]) -> Shard:
        data = b"".join(
            column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes()
            for column in columns
        )
        chunks = (Chunk(hash=write_chunk(self.folder, data), bytes=len(data)),)
        return Shard(split=split, records=len(columns[0]), chunks=chunks)
