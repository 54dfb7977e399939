"""A crowd in virtual time: the host's real decisions and arithmetic, real gradients, no waiting.

Every volunteer has a speed; what it pulled, computed and pushed happens at its time on a virtual
clock, so 64 volunteers cost what their gradients cost. The host is `Training`, the local steps are
the engine's; only processes, sockets and waiting are left out.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn

from crowdgrad.capture.models import mnist_mlp
from crowdgrad.data.shards import shard_arrays
from crowdgrad.domain.data import Split
from crowdgrad.domain.job import Job, StoppingRule, Volunteer
from crowdgrad.domain.work import Unit, UnitId, Update, VolunteerId
from crowdgrad.host.job import JobPlan, Prepared, prepare
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.snapshots import Snapshot
from crowdgrad.host.state import Hold
from crowdgrad.host.train import load_data
from crowdgrad.host.training import Training
from crowdgrad.host.units import Granted
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.noise import order
from crowdgrad.numerics.vectors import Vector
from crowdgrad.planner.batches import EpochPlans
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine
from crowdgrad.recipes.base import Recipe, hyperparameters

LATENCY_S = 0.002
ASK_AGAIN_S = 0.2
EVALUATED_AT_ONCE = 1000
LEARNED = 0.9
"""Whoever has learned anything has brought the loss below this share of what it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How a run of the crowd went."""

    accuracy: float
    """On the test split, with the last parameters."""
    diverged: bool
    """Non-finite numbers on the way, or at the end a loss that is hardly below the start's."""
    mean_staleness: float
    samples: int
    virtual_s: float
    peak_backup_bytes: int


@dataclass(slots=True)
class Lane:
    number: int
    account: Contribution
    batch_s: float
    granted: Granted | None = None
    parameters: Vector = field(default_factory=lambda: np.empty(0, np.float32))
    after: UnitId | None = None


class Crowd:
    def __init__(
        self,
        prepared: Prepared,
        recipe: Recipe,
        *,
        batch_s: Sequence[float],
        epochs: int,
        seed: int,
    ) -> None:
        """`batch_s`: seconds a batch takes each volunteer."""
        self._prepared = prepared
        job = replace(
            prepared.job,
            recipe=recipe.name,
            hyperparameters=hyperparameters(recipe),
            local=recipe.local(),
            stop=StoppingRule(epochs=epochs),
            seed=seed,
        )
        self.training = self._host(job, recipe)
        self._engine = OnnxEngine(prepared.program)
        self._plans = EpochPlans.of(prepared.manifest, "train", job.local, prepared.program.spec)
        self._columns = {n: self._load(n) for n in prepared.manifest.numbers("train")}
        self._update = np.empty(prepared.program.spec.update_words, np.float32)
        self._packing = Packing(job.local.codec, prepared.program.spec.size)
        self._payload = memoryview(bytearray(self._packing.bytes(len(self._update))))
        self._busy = [0.0] * len(batch_s)
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Lane]] = []
        self._peak = 0
        self._first_loss, _ = self.score(prepared.initial, "test")
        lanes = job.local.overlap + 1
        for who, seconds in enumerate(batch_s):
            account = self.training.join(0.0, _volunteer(who), own=False)
            for lane in range(lanes):
                self._later(0.0, Lane(who * lanes + lane, account, seconds))
        self._lanes = lanes

    def _host(self, job: Job, recipe: Recipe, hold: Hold | None = None) -> Training:
        return Training(
            job=job,
            spec=self._prepared.program.spec,
            manifest=self._prepared.manifest,
            initial=self._prepared.initial.copy(),
            recipe=recipe,
            lease_s=1e6,
            hold=hold,
        )

    async def run(self) -> Found:
        now = ticked = 0.0
        while self.training.course.phase == "training":
            now, _, lane = heapq.heappop(self._events)
            if now - ticked >= 0.1:
                ticked = now
                await self.training.tick(now)
            await self._turn(now, lane)
            self._peak = max(self._peak, self.training.parameters.backup_bytes)
            if self.training.book.finished:
                await self.training.tick(now)
        vector, _ = await self.training.parameters.copy()
        loss, accuracy = self.score(vector, "test")
        staleness = self.training.state.staleness
        return Found(
            accuracy=accuracy,
            diverged=self.training.state.setbacks > 0 or not loss <= LEARNED * self._first_loss,
            mean_staleness=sum(s * n for s, n in staleness.items()) / max(1, staleness.total()),
            samples=self.training.ledger.total_samples,
            virtual_s=now,
            peak_backup_bytes=self._peak,
        )

    async def _turn(self, now: float, lane: Lane) -> None:
        """Deliver what the lane computed, then ask for the next unit."""
        if lane.granted is not None:
            await self._deliver(now, lane)
        async with self.training.parameters.published() as snapshot:
            granted, _ = self.training.lease(now, lane.account, (), snapshot.version, lane.after)
            lane.granted, lane.after = granted, None
            if granted is None:
                self._later(now + ASK_AGAIN_S, lane)
                return
            if granted.link == 0:
                lane.parameters = await self._start_of(lane, snapshot)
        who = lane.number // self._lanes
        began = max(now + LATENCY_S, self._busy[who])
        self._busy[who] = began + lane.batch_s * granted.unit.batches
        self._later(self._busy[who] + LATENCY_S, lane)

    async def _deliver(self, now: float, lane: Lane) -> None:
        granted = lane.granted
        assert granted is not None
        work = UnitWork(
            unit=granted.unit,
            local=self.training.job.local,
            seed=self.training.job.seed,
            batches=[self._batch(granted.unit, i) for i in range(granted.unit.batches)],
            rate=granted.rate,
            lane=lane.number,
            fresh=granted.link == 0,
        )
        done = self._engine.train(work, lane.parameters, self._update)
        update = Update(
            unit=granted.unit.id,
            base=granted.base,
            samples=done.samples,
            loss=done.loss,
            metrics={},
            compute_s=lane.batch_s * granted.unit.batches,
            link=granted.link,
        )
        version = self.training.parameters.version
        verdict = await self._take(now, lane, update)
        if verdict == "accepted":
            lane.after = granted.unit.id
        if self.training.turns.in_rounds and self.training.parameters.version != version:
            self._wake(now)

    async def _start_of(self, lane: Lane, snapshot: Snapshot) -> Vector:
        """What a unit starts from."""
        await self.training.parameters.hold(snapshot)
        return snapshot.vector.copy()

    async def _take(self, now: float, lane: Lane, update: Update) -> str:
        """The update travels as the recipe's codec has it."""
        parameters = self.training.parameters
        self._packing.encode(self._update, self._payload)
        received = await parameters.received(lane.account.volunteer.id, update, self._payload)
        try:
            return await self.training.take(now, lane.account, update, received)
        finally:
            parameters.let_go(received)

    def _wake(self, now: float) -> None:
        """A round has closed: whoever waits for the next asks at once."""
        waiting = [event for event in self._events if event[2].granted is None]
        for event in waiting:
            self._events.remove(event)
        heapq.heapify(self._events)
        for _, _, lane in waiting:
            self._later(now + LATENCY_S, lane)

    def _later(self, when: float, lane: Lane) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), lane))

    def _batch(self, unit: Unit, index: int) -> Batch:
        number = unit.first_batch + index
        start, stop = self._plans.at(unit.epoch).rows(number)
        columns = self._columns[unit.shard]
        rows = order(self.training.job.seed, unit.epoch, unit.shard, len(columns[0]))[start:stop]
        return Batch(number=number, fields=tuple(column[rows] for column in columns))

    def _load(self, shard: int) -> tuple[np.ndarray, ...]:
        manifest = self._prepared.manifest
        data = b"".join(self._prepared.blobs[c.hash] for c in manifest.shards[shard].chunks)
        return shard_arrays(manifest, shard, data)

    def score(self, vector: Vector, split: Split) -> tuple[float, float]:
        """The loss and the first metric on a whole split."""
        loss = total = samples = 0.0
        unit = Unit(id=UnitId(0), kind="test", epoch=0, shard=0, first_batch=0, batches=1)
        for shard in self._prepared.manifest.numbers(split):
            columns = self._load(shard)
            for start in range(0, len(columns[0]), EVALUATED_AT_ONCE):
                fields = tuple(c[start : start + EVALUATED_AT_ONCE].copy() for c in columns)
                batch = Batch(number=0, fields=fields)
                work = UnitWork(unit=unit, local=self.training.job.local, seed=0, batches=[batch])
                found = self._engine.evaluate(work, vector)
                loss += found.loss * found.samples
                total += next(iter(found.metrics.values())) * found.samples
                samples += found.samples
        return loss / samples, total / samples


def _volunteer(number: int) -> Volunteer:
    return Volunteer(
        id=VolunteerId(f"v{number}"), name=f"v{number}", cores=1, memory_mb=1, engine="onnx",
        software="virtual",
    )  # fmt: skip


def mnist(seed: int, recipe: Recipe) -> Prepared:
    """784-100-10 on MNIST, with first weights and orders of this seed."""
    task = mnist_mlp()
    torch.manual_seed(seed)
    for module in task.model.modules():
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    plan = JobPlan(task=task, data=load_data("mnist"), title="bench", recipe=recipe, seed=seed)
    return prepare(plan)


def paced(slowest: float, volunteers: int, fastest_s: float = 0.005) -> list[float]:
    """Seconds a batch, from the fastest to one `slowest` times as slow, evenly on a log scale."""
    steps = max(1, volunteers - 1)
    return [fastest_s * slowest ** (number / steps) for number in range(volunteers)]
