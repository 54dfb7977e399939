"""The job that `replicate` spreads: random records in chunks of one size, and next to no model.

A record has 1,016 random bytes and a class, so a shard of 1 MiB is four chunks of 256 KiB each,
filled to the last byte. The model looks at the bytes' mean: two parameters, so that nothing but
data travels. Volunteers are given everything (`share = "full"`); for a late joiner, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crowdgrad.data.folder import CHUNKS, write_chunk, write_manifest
from crowdgrad.data.sealing import seal
from crowdgrad.domain.data import Chunk, ChunkHash, Field, Manifest, Shard, Split
from crowdgrad.net.identity import load_or_make

CHUNK = 256 << 10
PER_SHARD = 4
RECORD = 1024
WIDTH = RECORD - 8
BATCH = 256
MODEL = """
import torch

from crowdgrad.capture.task import Task


class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(1, 2, bias=False)

    def forward(self, x):
        return self.last(x.mean(1, keepdim=True))


def made():
    torch.manual_seed(0)
    return Task(
        Mean(),
        torch.nn.functional.cross_entropy,
        inputs=(torch.zeros(8, WIDTH),),
        targets=(torch.zeros(8, dtype=torch.int64),),
    )


task = made()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What is to spread."""

    folder: Path
    """Of the prepared data."""
    file: Path
    """The same bytes in one file, for others."""
    names: tuple[ChunkHash, ...]

    @property
    def bytes(self) -> int:
        return len(self.names) * CHUNK


def make_data(folder: Path, home: Path, chunks: int, seed: int = 0) -> Spread:
    """So many chunks to train on, and one record to steer by; `home`: whose key seals it."""
    prepared, file = folder / "data", folder / "data.bin"
    (prepared / CHUNKS).mkdir(parents=True)
    random = np.random.default_rng(seed)
    shards, names = [], []
    with file.open("wb") as whole:
        for _ in range(chunks // PER_SHARD):
            shard, pieces = _shard(prepared, "train", PER_SHARD * CHUNK // RECORD, random)
            shards.append(shard)
            names += [chunk.hash for chunk in shard.chunks]
            for piece in pieces:
                whole.write(piece)
    shards.append(_shard(prepared, "validation", 1, random)[0])
    fields = (
        Field(name="x", dtype="uint8", shape=(WIDTH,)),
        Field(name="y", dtype="int64", shape=()),
    )
    manifest = Manifest(title="random", fields=fields, shards=tuple(shards))
    write_manifest(prepared, manifest, seal(manifest, load_or_make(home)))
    return Spread(folder=prepared, file=file, names=tuple(names))


def _shard(
    folder: Path, split: Split, records: int, random: np.random.Generator
) -> tuple[Shard, list[bytes]]:
    classes = random.integers(0, 2, records).astype("<i8").tobytes()
    data = random.bytes(records * WIDTH) + classes
    pieces = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    chunks = tuple(Chunk(hash=write_chunk(folder, piece), bytes=len(piece)) for piece in pieces)
    return Shard(split=split, records=records, chunks=chunks), pieces


def job_file(folder: Path, spread: Spread, plan: str) -> Path:
    """`plan`: how it spreads: swarm, tree or pipelined; '': as a job without a word on it does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(MODEL.replace("WIDTH", str(WIDTH)))
    how = f'[spread]\nplan = "{plan}"\nshare = "full"\n' if plan else ""
    file = folder / "job.toml"
    file.write_text(
        f'title = "spread"\ntask = "model:task"\ndata = "{spread.folder}"\n'
        f'[recipe]\nname = "async_sgd"\nlr = 0.001\nbatch_size = {BATCH}\n'
        f"batches_per_unit = 1\noverlap = 0\n[stop]\nepochs = 1000000\n{how}"
    )
    return file
