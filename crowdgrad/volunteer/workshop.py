"""Everything a volunteer holds for one job: program, data, shared memory and the trainer.

It outlives connections: a volunteer that reconnects goes on with what it has. Where the job's data
grows, so does what is known of it here, in room that was kept free for that. Where it is larger
than what is lent, its shards take turns (`window`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import msgspec

from crowdgrad.data.shards import MAX_MANIFEST_BYTES, decode_manifest
from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.domain.job import Job
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import MAX_METRICS, LocalSteps, Unit
from crowdgrad.errors import ChildDied, DataAltered, MessageError, ProgramRefused, TurnedAway
from crowdgrad.net.messages import MAX_SHARDS_NAMED, Admit, Grant, Grew
from crowdgrad.planner.batches import BatchPlan, EpochPlans, largest_batch
from crowdgrad.planner.growing import added, outgrows, unusable
from crowdgrad.planner.manners import threads_by_now
from crowdgrad.planner.rooms import Given, may_be_needed
from crowdgrad.program.artifact import decode
from crowdgrad.replication.base import Chunks
from crowdgrad.replication.supply import Direct, Supply
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Arena, Region, extend
from crowdgrad.volunteer.conversation import Conversation, Reach
from crowdgrad.volunteer.layout import Wanted, layout
from crowdgrad.volunteer.seals import check_sealed
from crowdgrad.volunteer.trainer_link import TrainerLink
from crowdgrad.volunteer.window import Window

MAX_PROGRAM_BYTES = 8 << 20
CHUNKS_AT_ONCE = 4
CLOCKS_S = 1.0
"""What two clocks may differ by while a unit is computed."""
NO_METRICS: frozenset[str] = frozenset()
Numbers = tuple[bytes, ...]
"""All that lies in a slot."""
Note = Callable[[str], None]
Threads = Callable[[], int]
Share = Callable[[int], float]


class NotBegun(Exception):
    """When a unit's turn to be computed came, this machine paused: nothing of it was computed."""


class Workshop:
    def __init__(
        self,
        *,
        job: Job,
        manifest: Manifest,
        spec: ProgramSpec,
        arena: Arena,
        trainer: TrainerLink,
        setup: talk.Setup,
        threads: Threads | None = None,
        share: Share = lambda threads: 1.0,
        note: Note = lambda text: None,
    ) -> None:
        """As of now: `threads`, how many cores the trainer may use (None: what it was started
        with); `share`, how much of the time one that has so many may compute, 0: this machine
        pauses."""
        self.job = job
        self.trainer = trainer
        self.spec = spec
        self.manifest = manifest
        self._arena = arena
        self._setup = setup
        slots, memory = setup.plan.slots, arena.memory
        self._comes = [slot.comes.of(memory) for slot in slots]
        self._states = [slot.state.of(memory) for slot in slots]
        self._goes = [slot.goes.of(memory) for slot in slots]
        self._metrics = frozenset(metric.name for metric in spec.metrics)
        self._plans: dict[str, EpochPlans] = {}
        self._shards: dict[int, asyncio.Task[None]] = {}
        self._window = Window(setup.plan.rooms) if setup.plan.rooms else None
        self._unheard = False
        """A lane went while the trainer was computing for it, and may still be."""
        self._threads = threads
        self._threads_since_s = 0.0
        self._share = share
        self._note = note
        self._ending: set[asyncio.Task[None]] = set()
        """Tasks that nobody waits for any more."""
        self.shards_held: tuple[int, ...] = ()
        """The numbers of shards whose records are here, the latest first, as many as one names."""

    @classmethod
    async def open(
        cls,
        admit: Admit,
        talk_to: Conversation,
        chunks: Chunks,
        *,
        memory_bytes: int,
        pace_s: float = 0.0,
        trusted: talk.Trusted | None = None,
        threads: Threads = lambda: 1,
        share: Share = lambda threads: 1.0,
        note: Note = lambda text: None,
    ) -> Workshop:
        """Fetch program and manifest, lay out the memory, have the program checked.

        Nothing computes before `begin`. Raises ProgramRefused, TurnedAway and what fetching does.
        """
        job = admit.job
        raw = await _received(admit, talk_to, chunks)
        manifest, spec = decode_manifest(raw[1]), decode(raw[0]).spec
        check_sealed(manifest, admit.seal, talk_to.host_public)
        _check_batch_size(spec, job.local)
        mine = may_be_needed(manifest, evaluates=admit.position == 0)
        wanted = Wanted(
            job=job,
            spec=spec,
            program_bytes=len(raw[0]),
            manifest_bytes=len(raw[1]),
            shard_bytes=[(number, manifest.shards[number].bytes) for number in mine],
        )
        records = [manifest.shards[number].records for number in mine]
        setup = talk.Setup(
            plan=layout(wanted, memory_bytes),
            local=job.local,
            seed=job.seed,
            threads=threads(),
            samples=largest_batch(job.local, spec, records, job.stop.epochs),
            memory_bytes=memory_bytes,
            evaluates=admit.position == 0,
            pace_s=pace_s,
            trusted=trusted,
        )
        opened = partial(
            cls._checked, job, manifest, spec, raw, threads=threads, share=share, note=note
        )
        try:
            return await opened(setup)
        except ProgramRefused as error:
            left = memory_bytes - max(0, error.needs_bytes)
            plan = layout(wanted, left, known=True)
            if left == memory_bytes or plan.total_bytes > left:
                raise
        # Now it is known what computing takes: fewer shards at a time leave room for it.
        return await opened(msgspec.structs.replace(setup, plan=plan))

    @classmethod
    async def _checked(
        cls,
        job: Job,
        manifest: Manifest,
        spec: ProgramSpec,
        raw: tuple[bytes, bytes],
        setup: talk.Setup,
        *,
        threads: Threads,
        share: Share,
        note: Note,
    ) -> Workshop:
        """`raw`: program and manifest. `setup.memory_bytes`: all that is lent, the arena too."""
        plan, lent_bytes = setup.plan, setup.memory_bytes
        _bound("memory it needs", plan.total_bytes, lent_bytes)
        setup = msgspec.structs.replace(setup, memory_bytes=lent_bytes - plan.total_bytes)
        arena = Arena.make(plan.total_bytes)
        for region, data in zip((plan.program, plan.manifest), raw, strict=True):
            region.of(arena.memory)[:] = data
        workshop = cls(
            job=job,
            manifest=manifest,
            spec=spec,
            arena=arena,
            trainer=TrainerLink(arena, setup, note=note),
            setup=setup,
            threads=threads,
            share=share,
            note=note,
        )
        try:
            await _insist(workshop.trainer, workshop.trainer.check)
        except BaseException:
            await workshop.close()
            raise
        return workshop

    async def begin(self) -> None:
        """Load the program: this machine's owner has agreed. Raises ProgramRefused, ChildDied."""
        self._threads_since_s = asyncio.get_running_loop().time()
        await _insist(self.trainer, self.trainer.start)

    @property
    def findings(self) -> str:
        """What the check has brought, in a sentence or two."""
        checked = self.trainer.checked
        if checked is None:
            return "The program is not checked yet."
        gone = self.missing_walls
        walls = f"walls that do not hold: {'; '.join(gone)}" if gone else "all walls hold"
        turns = f" {self._setup.plan.rooms} shards of its data have room at a time."
        return (
            f"Program {self.job.program[:12]} may run: up to {self.memory_bytes / 1e6:,.0f} MB, "
            f"{checked.work / 1e6:,.1f} million operations a batch; "
            + (walls if checked.walls else "your own model, without walls")
            + ("." + turns if self.takes_turns else ".")
        )

    @property
    def takes_turns(self) -> bool:
        """Its data is larger than what is lent: a shard that had to leave is loaded again."""
        return self._window is not None

    @property
    def missing_walls(self) -> tuple[str, ...]:
        """What the trainer could not be kept from on this system, in words."""
        checked = self.trainer.checked
        walls = checked.walls if checked is not None else ()
        return tuple(f"{wall.wall} ({wall.how})" for wall in walls if not wall.holds)

    @property
    def memory_bytes(self) -> int:
        """What the job takes here at most, shared and not."""
        checked = self.trainer.checked
        return self._setup.plan.total_bytes + (checked.memory_bytes if checked is not None else 0)

    @property
    def data_bytes(self) -> int:
        """Program, manifest and every shard that may be asked for, each once."""
        plan, manifest = self._setup.plan, self.manifest
        mine = plan.shards or may_be_needed(manifest, evaluates=self._setup.evaluates)
        shards = sum(manifest.shards[number].bytes for number in mine)
        return plan.program.bytes + plan.manifest.bytes + shards

    @property
    def exchange_bytes(self) -> int:
        """The numbers of one unit, both ways."""
        slot = self._setup.plan.slots[0]
        return slot.comes.bytes + slot.goes.bytes

    @property
    def slots(self) -> int:
        return len(self._setup.plan.slots)

    def state(self, slot: int) -> memoryview:
        """Where a training unit's parameters arrive."""
        return self._comes[slot]

    def whole_state(self, slot: int) -> memoryview:
        """Where an evaluation's parameters arrive, which nothing has rounded."""
        return self._states[slot]

    def update(self, slot: int) -> memoryview:
        """The update as it is sent."""
        return self._goes[slot]

    async def grow(self, news: Grew, talk_to: Conversation, chunks: Chunks) -> bool:
        """Know what was added to the data; False: there is no room here, it must be opened anew.

        Raises DataAltered where it is not the same data with more to train on, sealed by its host;
        TurnedAway, and what fetching does.
        """
        if not self.job.growing:
            raise MessageError("The host says its data has grown; it announced that it would not.")
        _bound("manifest", news.manifest_bytes, MAX_MANIFEST_BYTES)
        supply = _from_host(talk_to, chunks)
        raw = await supply.get(news.manifest, news.manifest_bytes)
        manifest = decode_manifest(raw)
        check_sealed(manifest, news.seal, talk_to.host_public)
        if why := unusable(self.manifest, manifest):
            raise DataAltered(
                f"the data of “{self.job.title}” is not what it was: {why}.",
                advice="Data that is trained on may only grow. Tell the host.",
            )
        sizes = [(n, manifest.shards[n].bytes) for n in added(self.manifest, manifest)]
        plan = extend(self._setup.plan, len(raw), sizes)
        if plan is None or outgrows(self.manifest, manifest):
            return False
        if talk.plan_bytes(plan) > talk.MAX_PLAN_BYTES:
            return False
        setup = msgspec.structs.replace(self._setup, plan=plan)
        try:
            await self._extend(setup, raw)
        except ProgramRefused:
            return False
        except ChildDied:  # the next one starts with what is known now
            if self.trainer.broken:
                raise
        self._setup, self.manifest = msgspec.structs.replace(self._setup, plan=plan), manifest
        self.job = replace(self.job, manifest=news.manifest)
        self._plans.clear()
        return True

    async def _extend(self, setup: talk.Setup, raw: bytes) -> None:
        """Tell the trainer; it is heard out even where we are cut off meanwhile."""

        def place() -> None:
            setup.plan.manifest.of(self._arena.memory)[:] = raw

        task = asyncio.create_task(self.trainer.extend(setup, place))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    def take_out(self) -> list[Numbers]:
        """What lies in the slots, for a workshop of the same job that follows this one."""
        memory = self._arena.memory
        return [
            tuple(bytes(r.of(memory)) for r in (slot.state, slot.update, slot.comes, slot.goes))
            for slot in self._setup.plan.slots
        ]

    def put_in(self, slots: list[Numbers]) -> None:
        for slot, numbers in zip(self._setup.plan.slots, slots, strict=True):
            regions = (slot.state, slot.update, slot.comes, slot.goes)
            for region, data in zip(regions, numbers, strict=True):
                region.of(self._arena.memory)[:] = data

    async def need(
        self,
        shard: int,
        supply: Supply,
        progress: Callable[[int, int], None],
        *,
        slot: int,
    ) -> None:
        """Have a shard's records in the arena, for the unit in that slot, until it is computed.

        Several callers share one fetch. Raises MessageError for a shard that is not ours to train
        on.
        """
        if self._window is None and shard in self.shards_held:
            return
        if not self._announced(shard):
            raise MessageError(f"The host sent a unit of shard {shard}, which it did not announce.")
        if self._window is not None:
            self._make_way(await self._window.enter(shard, slot))
        task = self._shards.get(shard)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            supply.grew(self.manifest)
            task = asyncio.create_task(self._load_in(shard, supply, progress))
            self._shards[shard] = task
        try:
            await asyncio.shield(task)
        except BaseException:
            self.let_go(slot)
            raise

    def let_go(self, slot: int) -> None:
        """The unit in that slot needs its shard no more."""
        if self._window is not None:
            self._window.leave(slot)

    def _announced(self, shard: int) -> bool:
        if self._window is None:
            return shard in self._setup.plan.shards
        known = self.manifest.shards
        return shard < len(known) and (self._setup.evaluates or known[shard].split == "train")

    def _make_way(self, given: Given) -> None:
        """Forget the shard that had to leave for another."""
        if given.leaves is None:
            return
        self._note(f"{given.why[0].upper()}{given.why[1:]}.")
        self.shards_held = tuple(number for number in self.shards_held if number != given.leaves)
        loading = self._shards.pop(given.leaves, None)
        if loading is not None:
            loading.cancel()  # where it is not over: it was for a lane that went meanwhile
            self._ending.add(loading)
            loading.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled():
            task.exception()  # nobody needs to hear of it any more

    def _region(self, shard: int) -> Region:
        """Where a shard lies, in its place or in its room."""
        plan = self._setup.plan
        if self._window is None:
            return plan.shards[shard]
        return plan.room(self._window.room_of(shard), self.manifest.shards[shard].bytes)

    async def compute(self, grant: Grant, slot: int, talk_to: Reach) -> talk.Computed:
        """A unit whose shard is here; its update lies in the slot. Raises what the trainer reports;
        NotBegun.

        Where parameters are fetched in its middle, it goes from one fetch to the next.
        """
        try:
            self._check_unit(grant.unit)
            return await self._compute(grant, slot, talk_to)
        except asyncio.CancelledError:
            self._unheard = True  # the trainer finishes what it was asked, and reads the shard
            raise
        finally:
            self.let_go(slot)

    def _check_unit(self, unit: Unit) -> None:
        """Raises MessageError for one that the host did not announce."""
        if unit.kind == "train" and unit.batches > self.job.local.batches_per_unit:
            # The memory we agreed to was reckoned with the announced size.
            raise MessageError(
                f"The host sent a unit of {unit.batches} batches; it announced at most "
                f"{self.job.local.batches_per_unit}."
            )
        if unit.kind == "train" and unit.epoch >= self.job.stop.epochs:  # batches may grow by then
            raise MessageError(
                f"The host sent a unit of epoch {unit.epoch}; it announced {self.job.stop.epochs}."
            )
        if unit.kind == "look" and unit.batches > MAX_METRICS:  # it has a loss for each of them
            raise MessageError(f"The host sent a look at {unit.batches} records.")
        self._check_place(unit)

    async def _compute(self, grant: Grant, slot: int, talk_to: Reach) -> talk.Computed:
        unit, every = grant.unit, self.job.local.fetch_every
        room = self._window.room_of(unit.shard) if self._window is not None else -1
        # An evaluation is of one version, however long it takes.
        stretch = every if unit.kind == "train" and 0 < every < unit.batches else unit.batches
        share = 0.0

        def by_now() -> float:
            nonlocal share
            share = self._share_by_now(share)
            return share

        done: list[talk.Computed] = []
        for first in range(0, unit.batches, stretch):
            if first > 0:
                await talk_to.fetch(self.state(slot))
            ask = talk.Compute(
                unit=unit,
                slot=slot,
                rate=grant.rate,
                first=first,
                batches=min(stretch, unit.batches - first),
                fresh=first > 0 or grant.link == 0,
                add=first > 0,
                room=room,
            )
            began = asyncio.get_running_loop().time()
            answer = await self.trainer.compute(ask, by_now)
            why = self._implausible(ask, answer, asyncio.get_running_loop().time() - began)
            if why is not None:
                raise await self.trainer.reject(why)
            done.append(answer)
        return done[0] if len(done) == 1 else _together(done)

    def _share_by_now(self, before: float) -> float:
        """Of the time, for a stretch whose turn has come: another lane's unit may have taken long.

        `before`: the share of the unit's last stretch, 0: this is its first. Raises NotBegun.
        """
        if self._share(self._setup.threads) == 0:
            if before == 0:
                raise NotBegun
            return before  # what is under way is finished, as hard as it was begun
        if before == 0:
            self._use_threads()
        return self._share(self._setup.threads)

    def _use_threads(self) -> None:
        """As many as are allowed by now, by another trainer: a runtime is told when it starts.

        Not where a replica goes on from unit to unit, which would go with its trainer; nor with the
        owner's own model, which may take minutes to load.
        """
        has, now = self._setup.threads, asyncio.get_running_loop().time()
        if self._threads is None or self._setup.trusted or self.job.local.units_per_fetch > 1:
            return
        threads = threads_by_now(self._threads(), has, now - self._threads_since_s)
        if threads == has:
            return
        self._setup = msgspec.structs.replace(self._setup, threads=threads)
        self._threads_since_s = now
        self.trainer.use(threads)

    def _check_place(self, unit: Unit) -> None:
        """Raises MessageError for batches that the unit's shard has not.

        The trainer looks as well, but what it answers is compared with the plan here.
        """
        plan, last = self._plan(unit), unit.first_batch + unit.batches - 1
        theirs = plan.of_shard(unit.shard) if unit.shard in plan.places else range(0)
        if unit.first_batch not in theirs or last not in theirs:
            raise MessageError(
                f"The host sent a unit of batches {unit.first_batch} to {last}, which shard "
                f"{unit.shard} has not."
            )

    def _implausible(
        self, ask: talk.Compute, answer: talk.Computed, elapsed_s: float
    ) -> str | None:
        """Why a trainer's answer cannot be true, if it cannot."""
        numbers = ask.numbers
        samples = self._plan(ask.unit).samples(numbers.start, len(numbers))
        if answer.samples != samples:
            return f"it counted {answer.samples} samples in a unit of {samples}"
        if answer.compute_s > max(0.0, elapsed_s) + CLOCKS_S:
            return f"it says it computed {answer.compute_s:.1f} s in {elapsed_s:.1f} s"
        measured = self._metrics if ask.unit.kind != "train" else NO_METRICS
        if ask.unit.kind == "look":
            measured = frozenset(map(str, numbers))
        if answer.metrics.keys() != measured:
            return "it measured something else than it was asked to"
        return None

    def _plan(self, unit: Unit) -> BatchPlan:
        if unit.kind not in self._plans:
            self._plans[unit.kind] = EpochPlans.of_kind(
                self.manifest, unit.kind, self.job.local, self.spec
            )
        return self._plans[unit.kind].at(unit.epoch)

    async def _load_in(
        self,
        shard: int,
        supply: Supply,
        progress: Callable[[int, int], None],
    ) -> None:
        """Load a shard once nobody else writes or reads where it goes."""
        if self._window is None:
            await self._load(shard, supply, progress)
            return
        async with self._window.door(shard):
            if self._unheard:
                await self.trainer.settled()
                self._unheard = False
            await self._load(shard, supply, progress)

    async def _load(
        self,
        shard: int,
        supply: Supply,
        progress: Callable[[int, int], None],
    ) -> None:
        region = self._region(shard).of(self._arena.memory)
        at = done = 0
        wanted = self.manifest.shards[shard].chunks
        gate = asyncio.Semaphore(CHUNKS_AT_ONCE)

        async def place(where: int, name: ChunkHash, size: int) -> None:
            nonlocal done
            async with gate:
                region[where : where + size] = await supply.get(name, size)
            done += 1
            progress(done, len(wanted))

        async with asyncio.TaskGroup() as group:
            for chunk in wanted:
                group.create_task(place(at, chunk.hash, chunk.bytes))
                at += chunk.bytes
        self.shards_held = (shard, *self.shards_held)[:MAX_SHARDS_NAMED]

    async def close(self) -> None:
        for task in self._shards.values():
            task.cancel()
        await asyncio.gather(*self._shards.values(), return_exceptions=True)
        await self.trainer.close()
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._comes, self._states, self._goes = [], [], []
        self._arena.close()


async def _insist(trainer: TrainerLink, step: Callable[[], Awaitable[object]]) -> None:
    """Do a trainer's first steps with another one where it dies, as often as one may."""
    while True:
        deaths = trainer.deaths
        try:
            await step()
        except ChildDied:
            if trainer.broken or trainer.deaths == deaths:
                raise
        else:
            return


def _together(parts: list[talk.Computed]) -> talk.Computed:
    """What a unit's stretches come to."""
    samples = sum(part.samples for part in parts)
    return talk.Computed(
        unit=parts[0].unit,
        samples=samples,
        loss=sum(part.loss * part.samples for part in parts) / samples,
        metrics={},
        compute_s=sum(part.compute_s for part in parts),
    )


def _bound(what: str, size: int, limit: int) -> None:
    if not 0 < size <= limit:
        raise TurnedAway(
            f"This job is too large for this machine: the size of the {what} is {size:,} bytes, at "
            f"most {limit:,} are allowed.",
            advice="Help another job, or lend more memory: the setting memory_mb.",
        )


def _check_batch_size(spec: ProgramSpec, local: LocalSteps) -> None:
    """Batches are cut by the one and filled up to the other."""
    if spec.fixed_batch not in (0, local.batch_size):
        raise ProgramRefused(
            f"The job's program takes batches of {spec.fixed_batch} samples only, but its batch "
            f"size is {local.batch_size}.",
            advice="The host must capture its model again; help another job.",
        )


async def _received(admit: Admit, talk_to: Conversation, chunks: Chunks) -> tuple[bytes, bytes]:
    """Program and manifest, as they were announced."""
    _bound("program", admit.program_bytes, MAX_PROGRAM_BYTES)
    _bound("manifest", admit.manifest_bytes, MAX_MANIFEST_BYTES)
    supply = _from_host(talk_to, chunks)
    program = await supply.get(admit.job.program, admit.program_bytes)
    return program, await supply.get(admit.job.manifest, admit.manifest_bytes)


def _from_host(talk_to: Conversation, chunks: Chunks) -> Direct:
    """For what only the host has: program and manifest."""
    return Direct(lambda name, size: talk_to.get(name, size), chunks)
