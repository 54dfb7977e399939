"""A volunteer's workshop without a trainer: its updates say which batches they are of.

The workshop itself is the real one. What it receives is looked at by the monitor: the numbers must
be those of the version they are said to be of, and a chain may only go on from where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from crowdgrad.data.shards import decode_manifest
from crowdgrad.domain.work import Unit, Version
from crowdgrad.net.messages import Admit, Grant
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.vectors import Vector, as_vector
from crowdgrad.replication.base import Chunks
from crowdgrad.simulator.chance import Dice
from crowdgrad.simulator.job import SAMPLES, SmallJob
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.agent import OpenShop
from crowdgrad.volunteer.arena import Plan, lay_out
from crowdgrad.volunteer.conversation import Conversation, Reach
from crowdgrad.volunteer.layout import coded_bytes
from crowdgrad.volunteer.workshop import Note, Workshop

LITTLE_MEMORY_S = 0.2
"""Whoever usually takes so long for a batch lends little memory."""


class Watcher(Protocol):
    """Who looks at what volunteers receive."""

    def received(self, who: str, base: Version, state: Vector) -> None: ...

    def went_on(self, who: str, grant: Grant, before: Grant | None) -> None: ...


class Memory:
    """What an `Arena` is to agent and trainer."""

    def __init__(self, size: int) -> None:
        self.memory = memoryview(bytearray(size))

    def close(self) -> None:
        return None


class NoTrainer:
    """What a `TrainerLink` is to a workshop."""

    engine = "nothing"
    broken = False
    deaths = 0

    def __init__(self, job: SmallJob, arena: Memory, plan: Plan, life: Life) -> None:
        self._job = job
        self._arena = arena
        self._plan = plan
        self._life = life
        self._turn = asyncio.Lock()
        self.checked: talk.Checked | None = None

    async def check(self) -> talk.Checked:
        self.checked = talk.Checked(memory_bytes=1, work=1)
        return self.checked

    async def start(self) -> None:
        return None

    async def compute(
        self, ask: talk.Compute, share: Callable[[], float] | None = None
    ) -> talk.Computed:
        async with self._turn:
            if share is not None:
                share()  # it may raise; how fast the unit goes is said by `Life`
            began = asyncio.get_running_loop().time()
            batches = 1 if ask.unit.kind == "look" else len(ask.numbers)  # of one record each
            await asyncio.sleep(self._life.compute_s(batches))
            self._read(ask)
            # The clocks of machines here may be set back; a trainer's counter is not.
            seconds = max(0.0, asyncio.get_running_loop().time() - began)
            if ask.unit.kind == "train":
                return self._train(ask, seconds)
            return self._evaluate(ask, seconds)

    def _read(self, ask: talk.Compute) -> None:
        """The unit's records are still there, though others came while it was computed."""
        shard, plan = self._job.manifest.shards[ask.unit.shard], self._plan
        place = plan.room(ask.room, shard.bytes) if plan.rooms else plan.shards[ask.unit.shard]
        (chunk,) = shard.chunks
        assert place.of(self._arena.memory) == self._job.blobs[chunk.hash], "not its records"

    def _train(self, ask: talk.Compute, seconds: float) -> talk.Computed:
        slot = self._plan.slots[ask.slot]
        update = as_vector(slot.update.of(self._arena.memory))
        if not ask.add:
            update[:] = 0.0
        start = ask.unit.epoch * len(SAMPLES)
        update[[start + number for number in ask.numbers]] = 1.0
        if slot.coded and ask.last:
            self._job.packing.encode(update, slot.goes.of(self._arena.memory))
        samples = sum(SAMPLES[number] for number in ask.numbers)
        loss = self._life.loss(ask.unit)
        return talk.Computed(
            unit=ask.unit.id, samples=samples, loss=loss, metrics={}, compute_s=seconds
        )

    def _evaluate(self, ask: talk.Compute, seconds: float) -> talk.Computed:
        """The more is in the parameters, the better they are."""
        state = as_vector(self._plan.slots[ask.slot].state.of(self._arena.memory))
        accuracy = float(np.minimum(state, 1.0).sum()) / self._job.size
        if ask.unit.kind == "look":
            return self._look(ask, seconds)
        records = {"validate": 12, "test": 15}[ask.unit.kind]
        return talk.Computed(
            unit=ask.unit.id,
            samples=records,
            loss=self._life.loss(ask.unit),
            metrics={"accuracy": accuracy},
            compute_s=seconds,
        )

    def _look(self, ask: talk.Compute, seconds: float) -> talk.Computed:
        loss = self._life.loss(ask.unit)
        return talk.Computed(
            unit=ask.unit.id,
            samples=len(ask.numbers),
            loss=loss,
            metrics={str(number): loss for number in ask.numbers},
            compute_s=seconds,
        )

    async def settled(self) -> None:
        """It stops where its caller does."""

    async def close(self) -> None:
        return None


class Life:
    """How a volunteer computes: how fast, and whether its numbers are finite."""

    def __init__(self, dice: Dice, lease_s: float) -> None:
        self._dice = dice
        self._usual_s = dice.choice((0.05, 0.2, 0.2, 0.6))
        self.little_memory = self._usual_s == LITTLE_MEMORY_S
        """Shards take turns in it."""
        self._lease_s = lease_s
        self.diverges: Callable[[], bool] = lambda: False

    def compute_s(self, batches: int) -> float:
        """Usually quick, sometimes longer than a lease lasts."""
        if self._dice.random() < 0.02:
            return 1.5 * self._lease_s
        return self._usual_s * batches * self._dice.uniform(0.7, 1.5)

    def loss(self, unit: Unit) -> float:
        return float("nan") if self.diverges() else 1.0


class VirtualWorkshop(Workshop):
    """The real one, with a monitor that looks over its shoulder."""

    def __init__(self, who: str, watcher: Watcher, packing: Packing, **parts: Any) -> None:
        super().__init__(**parts)
        self._who = who
        self._packing = packing
        self._watcher = watcher
        self._before: dict[int, Grant] = {}
        """By slot: what was computed there last."""

    async def compute(self, grant: Grant, slot: int, talk_to: Reach) -> talk.Computed:
        before = self._before.pop(slot, None)
        if grant.link:
            self._watcher.went_on(self._who, grant, before)
        elif grant.unit.kind == "train":
            self._watcher.received(self._who, grant.base, self._packing.decoded(self.state(slot)))
        else:
            self._watcher.received(self._who, grant.base, as_vector(self.whole_state(slot)))
        done = await super().compute(grant, slot, talk_to)
        self._before[slot] = grant
        return done


def opens(who: str, job: SmallJob, life: Life, watcher: Watcher) -> OpenShop:
    """What an agent calls instead of `Workshop.open`."""

    async def open_shop(
        admit: Admit,
        talk_to: Conversation,
        chunks: Chunks,
        *,
        memory_bytes: int,
        pace_s: float = 0.0,
        trusted: talk.Trusted | None = None,
        threads: int = 1,
        share: Callable[[], float] = lambda: 1.0,
        note: Note = lambda text: None,
    ) -> Workshop:
        await talk_to.get(admit.job.program, admit.program_bytes)
        manifest = decode_manifest(await talk_to.get(admit.job.manifest, admit.manifest_bytes))
        sizes = [(number, shard.bytes) for number, shard in enumerate(manifest.shards)]
        # Fewer rooms than any real workshop has: whoever needs one must sometimes wait.
        turns = life.little_memory
        plan = lay_out(
            program_bytes=0,
            manifest_bytes=0,
            state_bytes=4 * job.spec.state_words,
            update_bytes=4 * job.spec.update_words,
            slots=admit.job.local.overlap + 1,
            shard_bytes=[] if turns else sizes,
            coded_bytes=coded_bytes(job.spec, admit.job.local),
            rooms=(1, max(size for _, size in sizes)) if turns else (0, 0),
        )
        setup = talk.Setup(plan=plan, local=admit.job.local, seed=admit.job.seed, threads=1)
        arena = Memory(plan.total_bytes)
        shop = VirtualWorkshop(
            who,
            watcher,
            job.packing,
            job=admit.job,
            manifest=manifest,
            spec=job.spec,
            arena=arena,
            trainer=NoTrainer(job, arena, plan, life),
            setup=setup,
        )
        await shop.trainer.check()
        return shop

    return open_shop
