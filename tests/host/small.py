"""A job small enough to look at: three parameters, five batches an epoch, no PyTorch."""

from __future__ import annotations

import hashlib

import numpy as np

from crowdgrad.data.shards import content_hash, encode_manifest
from crowdgrad.domain.data import Chunk, ChunkHash, Field, Manifest, Shard, Split
from crowdgrad.domain.job import Job, JobId, StoppingRule, Volunteer
from crowdgrad.domain.program import MetricSpec, ProgramSpec, TensorSpec
from crowdgrad.domain.work import VolunteerId
from crowdgrad.host.setbacks import Claim
from crowdgrad.host.training import Training
from crowdgrad.numerics.rules.base import Rule
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe, hyperparameters

SIZE = 3
LEASE_S = 20.0
TRAIN_BATCHES = 5


ACCURACY = MetricSpec(name="accuracy")


def spec(metrics: tuple[MetricSpec, ...] = (ACCURACY,), size: int = SIZE) -> ProgramSpec:
    return ProgramSpec(
        parameters=(TensorSpec(name="w", dtype="float32", shape=(size,)),),
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


def job(
    *,
    epochs: int = 2,
    target: float | None = None,
    minutes: float | None = None,
    overlap: int = 0,
    of: Manifest | None = None,
    recipe: Recipe | None = None,
) -> Job:
    recipe = recipe or AsyncSGD(lr=0.5, batch_size=10, overlap=overlap)
    return Job(
        id=JobId("small-1"),
        title="Small",
        cause="",
        program=content_hash(b"program"),
        manifest=content_hash(encode_manifest(of or manifest()[0])),
        recipe=recipe.name,
        hyperparameters=hyperparameters(recipe),
        local=recipe.local(),
        stop=StoppingRule(epochs=epochs, target=target, minutes=minutes),
        seed=7,
    )


class WithRule:
    """A recipe whose host applies a rule of the test's own."""

    def __init__(self, recipe: Recipe, rule: Rule) -> None:
        self._recipe = recipe
        self._rule = rule
        self.name, self.local, self.serving = recipe.name, recipe.local, recipe.serving

    def server_rule(self) -> Rule:
        return self._rule


def training(
    *,
    rule: Rule | None = None,
    recipe: Recipe | None = None,
    data: Manifest | None = None,
    the_job: Job | None = None,
    metrics: tuple[MetricSpec, ...] = (ACCURACY,),
    wait_for: int = 0,
    size: int = SIZE,
    claim: Claim | None = None,
) -> Training:
    recipe = recipe or AsyncSGD(lr=0.5, batch_size=10, overlap=0)
    return Training(
        job=the_job or job(recipe=recipe),
        spec=spec(metrics, size),
        manifest=data or manifest()[0],
        initial=np.zeros(size, np.float32),
        recipe=WithRule(recipe, rule) if rule is not None else recipe,  # type: ignore[arg-type]
        lease_s=LEASE_S,
        wait_for=wait_for,
        claim=claim,
    )


def volunteer(name: str) -> Volunteer:
    return Volunteer(
        id=VolunteerId(name), name=name, cores=1, memory_mb=1, engine="none", software="test"
    )
