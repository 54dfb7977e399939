"""The job that is trained in the virtual world, small enough to follow every batch of it.

There is one parameter for every batch of every epoch. An update says in its numbers which batches
it stands for, and the rule counts them, in the parameters and in its own memory: so the state
itself says what is in it and how often, and what goes back with a checkpoint is forgotten like
everything else.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crowdgrad.data.shards import content_hash, encode_manifest
from crowdgrad.domain.data import Chunk, ChunkHash, Field, Manifest, Shard, Split
from crowdgrad.domain.job import Job, JobId, StoppingRule
from crowdgrad.domain.program import MetricSpec, ProgramSpec, TensorSpec
from crowdgrad.domain.work import Unit
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.rules.base import Memory, Rule, Step
from crowdgrad.numerics.vectors import Vector
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.averaging import WeightAveraging
from crowdgrad.recipes.base import Recipe, hyperparameters
from crowdgrad.recipes.crowd import Crowd
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous

RECIPES: dict[str, Recipe] = {
    "plain": AsyncSGD(batch_size=10, overlap=0),
    "lanes": AsyncSGD(batch_size=10, overlap=1, batches_per_unit=3),
    "chains": Downpour(batch_size=10, push_every=1, fetch_every=3, warm_start_batches=4),
    "fetches": Downpour(batch_size=10, push_every=2, fetch_every=1),
    "delay-compensation": DCASGD(batch_size=10, publish_every=2, half_backups=True),
    "few-publications": DCASGD(batch_size=10, publish_every=8),
    "threshold": Crowd(batch_size=10, max_staleness=3, batches_per_unit=2),
    "rounds": Synchronous(batch_size=10),
    "quorum": Synchronous(batch_size=10, quorum=0.5, grace_s=0.5),
    "averaging": WeightAveraging(batch_size=10, batches_per_unit=2),
    "segments": AsyncSGD(batch_size=10, batches_per_unit=2, assignment="segments"),
    "half-precision": DCASGD(batch_size=10, batches_per_unit=2, codec="fp16"),
}

SAMPLES = (8, 8, 9, 10, 10)
"""Of each batch: shards of 25 and 20 records, in batches of 10."""
BATCHES = len(SAMPLES)
PROGRAM = b"a program nobody runs"


@dataclass(frozen=True, kw_only=True)
class Remembering:
    """A rule that counts how often each batch of each epoch is in the parameters."""

    name: ClassVar[str] = "remembering"
    sentence: ClassVar[str] = "It remembers."
    vectors: ClassVar[tuple[str, ...]] = ()
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        assert (step.base_D is not None) == self.needs_base
        places = np.flatnonzero(update_D)  # merged rounds weight and divide: only where matters
        parameters_D[places] += 1.0
        for place in places:
            key = str(int(place))
            memory.numbers[key] = memory.numbers.get(key, 0.0) + 1.0


@dataclass(frozen=True, kw_only=True)
class RememberingWithBase(Remembering):
    needs_base: ClassVar[bool] = True


class WithRule:
    """A recipe whose host remembers instead of learning."""

    def __init__(self, recipe: Recipe) -> None:
        self._rule: Rule = (
            RememberingWithBase() if recipe.server_rule().needs_base else Remembering()
        )
        self.name, self.local, self.serving = recipe.name, recipe.local, recipe.serving

    def server_rule(self) -> Rule:
        return self._rule


@dataclass(frozen=True, kw_only=True)
class SmallJob:
    """One recipe's job and all that travels with it."""

    job: Job
    spec: ProgramSpec
    manifest: Manifest
    recipe: Any
    """A `Recipe` with the rule above in it."""
    blobs: dict[ChunkHash, bytes]
    overlapping: bool
    """Whether members train on overlapping segments, and a batch may count for several."""

    @property
    def size(self) -> int:
        return self.spec.size

    @property
    def packing(self) -> Packing:
        """Small whole numbers are exact in any codec: what travels can be compared."""
        return Packing(self.job.local.codec, self.size)

    def initial(self) -> Vector:
        return np.zeros(self.size, np.float32)

    def samples(self, place: int) -> int:
        return SAMPLES[place % BATCHES]

    def places(self, unit: Unit) -> range:
        """The parameters that stand for a unit's batches."""
        start = unit.epoch * BATCHES + unit.first_batch
        return range(start, start + unit.batches)


@functools.cache
def small_job(name: str, epochs: int) -> SmallJob:
    recipe = RECIPES[name]
    manifest, blobs = _manifest()
    written = encode_manifest(manifest)
    job = Job(
        id=JobId("small-1"),
        title="Small",
        cause="",
        program=content_hash(PROGRAM),
        manifest=content_hash(written),
        recipe=recipe.name,
        hyperparameters=hyperparameters(recipe),
        local=recipe.local(),
        stop=StoppingRule(epochs=epochs),
        seed=7,
    )
    return SmallJob(
        job=job,
        spec=_spec(epochs * BATCHES),
        manifest=manifest,
        recipe=WithRule(recipe),
        blobs={**blobs, job.program: PROGRAM, job.manifest: written},
        overlapping=recipe.serving().assignment == "segments",
    )


def _spec(size: int) -> ProgramSpec:
    return ProgramSpec(
        parameters=(TensorSpec(name="w", dtype="float32", shape=(size,)),),
        buffers=(),
        inputs=(TensorSpec(name="x", dtype="uint8", shape=(1,)),),
        noise=(),
        metrics=(MetricSpec(name="accuracy"),),
        outputs=1,
        work_per_sample=10.0,
        opset=20,
    )


def _manifest() -> tuple[Manifest, dict[ChunkHash, bytes]]:
    chunks: dict[ChunkHash, bytes] = {}

    def shard(split: Split, records: int) -> Shard:
        data = hashlib.sha256(f"{split} {records}".encode()).digest()[:records].ljust(records, b".")
        chunks[content_hash(data)] = data
        chunk = Chunk(hash=content_hash(data), bytes=records)
        return Shard(split=split, records=records, chunks=(chunk,))

    shards = (shard("train", 25), shard("train", 20), shard("validation", 12), shard("test", 15))
    field = Field(name="x", dtype="uint8", shape=(1,))
    return Manifest(title="small", fields=(field,), shards=shards), chunks
