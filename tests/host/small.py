"""A job small enough to look at: three parameters, five batches an epoch, no PyTorch."""

from __future__ import annotations

import hashlib

import numpy as np

from crowdgrad.data.shards import content_hash, encode_manifest
from crowdgrad.domain.data import Chunk, ChunkHash, Field, Manifest, Shard, Split
from crowdgrad.domain.job import Job, JobId, StoppingRule, Volunteer
from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.domain.work import LocalSteps, VolunteerId
from crowdgrad.host.training import Training
from crowdgrad.numerics.rules.base import ServerRule
from crowdgrad.numerics.rules.sgd import SGD

SIZE = 3
LEASE_S = 20.0
TRAIN_BATCHES = 5


def spec(metrics: tuple[str, ...] = ("accuracy",)) -> ProgramSpec:
    return ProgramSpec(
        parameters=(TensorSpec(name="w", dtype="float32", shape=(SIZE,)),),
        buffers=(),
        inputs=(TensorSpec(name="x", dtype="uint8", shape=(1,)),),
        noise=(),
        metrics=metrics,
        outputs=1,
        work_per_sample=10.0,
        opset=20,
    )


def manifest(
    *, validation: bool = True, test: bool = True
) -> tuple[Manifest, dict[ChunkHash, bytes]]:
    """Shards of 25 and 20 records to train on: batches of 10 are 9, 8, 8, 10, 10."""
    chunks: dict[ChunkHash, bytes] = {}

    def shard(split: Split, records: int) -> Shard:
        data = hashlib.sha256(f"{split}{records}".encode()).digest() * records
        data = data[:records]
        chunks[content_hash(data)] = data
        return Shard(
            split=split, records=records, chunks=(Chunk(hash=content_hash(data), bytes=records),)
        )

    shards = [shard("train", 25), shard("train", 20)]
    shards += [shard("validation", 12)] * validation + [shard("test", 15)] * test
    field = Field(name="x", dtype="uint8", shape=(1,))
    return Manifest(title="small", fields=(field,), shards=tuple(shards)), chunks


def job(*, epochs: int = 2, target: float | None = None, minutes: float | None = None,
        overlap: int = 0, of: Manifest | None = None) -> Job:  # fmt: skip
    return Job(
        id=JobId("small-1"),
        title="Small",
        cause="",
        program=content_hash(b"program"),
        manifest=content_hash(encode_manifest(of or manifest()[0])),
        recipe="async_sgd",
        hyperparameters={"lr": 0.5},
        local=LocalSteps(batch_size=10, learning_rate=0.5, overlap=overlap),
        stop=StoppingRule(epochs=epochs, target=target, minutes=minutes),
        seed=7,
    )


def training(
    *,
    rule: ServerRule | None = None,
    data: Manifest | None = None,
    the_job: Job | None = None,
    metrics: tuple[str, ...] = ("accuracy",),
) -> Training:
    return Training(
        job=the_job or job(),
        spec=spec(metrics),
        manifest=data or manifest()[0],
        initial=np.zeros(SIZE, np.float32),
        rule=rule or SGD(0.5),
        lease_s=LEASE_S,
    )


def volunteer(name: str) -> Volunteer:
    return Volunteer(
        id=VolunteerId(name), name=name, cores=1, memory_mb=1, engine="none", software="test"
    )
