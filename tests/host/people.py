"""Scripted members of a small job: the host's real decisions, the real local loop, no waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdgrad.data.shards import content_hash
from crowdgrad.domain.data import Chunk, Field, Manifest, Shard
from crowdgrad.domain.work import Unit, Update, Version
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.training import Training
from crowdgrad.host.units import Granted
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.replica import Replicas
from crowdgrad.recipes.base import Recipe
from tests.host import small

D = small.SIZE


def plain_manifest(*shards: int) -> Manifest:
    """Training data only, in shards of so many records."""
    name = content_hash(b"")
    return Manifest(
        title="plain",
        fields=(Field(name="x", dtype="uint8", shape=(1,)),),
        shards=tuple(
            Shard(split="train", records=records, chunks=(Chunk(hash=name, bytes=records),))
            for records in shards
        ),
    )


def gradient_of(number: int, w: NDArray[Any]) -> NDArray[Any]:
    """Of the loss ½·(1 + k mod 3)·|w − c_k|², where c_k differs from batch to batch."""
    centre = np.array([np.sin(number), np.cos(number), number / 50.0])
    return (1 + number % 3) * (w - centre) * 0.1


@dataclass
class Person:
    """A scripted volunteer with the real local loop."""

    training: Training
    account: Contribution
    replicas: Replicas = field(default_factory=lambda: Replicas(small.spec()))
    granted: Granted | None = None
    parameters: Vector = field(default_factory=lambda: np.zeros(D, np.float32))
    after: Any = None
    reason: str = ""

    async def ask(self, now: float = 0.0, holds: tuple[int, ...] = ()) -> Granted | None:
        async with self.training.parameters.published() as snapshot:
            self.granted, self.reason = self.training.lease(
                now, self.account, holds, snapshot.version, self.after
            )
            if self.granted is not None and self.granted.link == 0:
                await self.training.parameters.hold(snapshot)
                self.parameters = snapshot.vector.copy()
        self.after = None
        return self.granted

    async def push(self, now: float = 0.0, *, batch_s: float = 0.01) -> str:
        granted, self.granted = self.granted, None
        assert granted is not None
        unit = granted.unit
        fields = (np.zeros((1, 1), np.uint8),)
        work = UnitWork(
            unit=unit,
            local=self.training.job.local,
            seed=0,
            batches=[
                Batch(number=unit.first_batch + i, fields=fields) for i in range(unit.batches)
            ],
            rate=granted.rate,
            fresh=granted.link == 0,
        )
        update = np.empty(D, np.float32)

        def gradient(batch: Batch, weights: Vector, out: Vector) -> float:
            out[:] = gradient_of(batch.number, weights.astype(np.float64))
            return 1.0

        self.replicas.train(work, self.parameters, update, gradient)
        self.after = unit.id
        return await self.training.take(
            now,
            self.account,
            Update(
                unit=unit.id,
                base=granted.base,
                samples=self.training.book.samples(unit),
                loss=1.0,
                metrics={},
                compute_s=batch_s * unit.batches,
                link=granted.link,
            ),
            update,
        )

    async def step(self, now: float = 0.0) -> str:
        assert await self.ask(now) is not None, self.reason
        return await self.push(now)


def stage(
    recipe: Recipe, people: int, data: Manifest | None = None, *, epochs: int = 3, wait_for: int = 0
) -> tuple[Training, list[Person]]:
    data = data or plain_manifest(320)
    training = small.training(
        recipe=recipe,
        data=data,
        the_job=small.job(recipe=recipe, of=data, epochs=epochs),
        wait_for=wait_for,
    )
    joined = [
        training.join(0.0, small.volunteer(f"v{number}"), own=False) for number in range(people)
    ]
    return training, [Person(training, account) for account in joined]


async def weights(training: Training) -> NDArray[np.float64]:
    return (await training.parameters.copy())[0].astype(np.float64)


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


# -- step by step, without a replica ----------------------------------------------------------


def updated(unit: Unit, base: Version, **changes: Any) -> Update:
    fields = {"samples": SAMPLES[unit.first_batch], "loss": 1.0, "metrics": {}, "compute_s": 0.1}
    return Update(unit=unit.id, base=base, **(fields | changes))


SAMPLES = {0: 8, 1: 8, 2: 9, 3: 10, 4: 10}
ONES = np.ones(small.SIZE, np.float32)


def asynchronous(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def leased(training: Training, who: Contribution, now: float = 0.0) -> tuple[Unit, Version]:
    base = training.parameters.version
    granted, reason = training.lease(now, who, (), base)
    assert granted is not None, reason
    return granted.unit, base


async def evaluate(
    training: Training,
    own: Contribution,
    accuracy: float,
    now: float,
    loss: float = 1.0,
    compute_s: float = 0.0,
) -> Unit:
    """Let worker 0 do the evaluation that is due."""
    await training.tick(now)
    granted, reason = training.lease(now, own, (), training.parameters.version)
    assert reason == "evaluation"
    assert granted is not None
    unit = granted.unit
    assert training.course.evaluation.round is not None
    update = updated(
        unit, training.course.evaluation.round.version, samples=12, loss=loss,
        metrics={"accuracy": accuracy}, compute_s=compute_s,
    )  # fmt: skip
    assert await training.take(now, own, update, None) == "accepted"
    await training.tick(now)
    return unit


async def train_one(training: Training, who: Contribution, now: float) -> None:
    unit, base = leased(training, who, now)
    assert await training.take(now, who, updated(unit, base), ONES.copy()) == "accepted"
