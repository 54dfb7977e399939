"""How a unit becomes the stretches a trainer is asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from crowdgrad.data.shards import content_hash, encode_manifest
from crowdgrad.domain.data import Chunk, ChunkHash, Field, Manifest, Shard
from crowdgrad.domain.job import Job, JobId, StoppingRule
from crowdgrad.domain.program import Program, ProgramSpec
from crowdgrad.domain.work import LocalSteps, Unit, UnitId, UnitKind, Version
from crowdgrad.errors import DataAltered, MessageError, ProgramRefused, TurnedAway
from crowdgrad.net.messages import Admit, Blob, Fetch, Fresh, Get, Grant
from crowdgrad.net.transport.inproc import InprocConnection, pair
from crowdgrad.program.artifact import encode
from crowdgrad.replication.store import MemoryChunks
from crowdgrad.replication.supply import Direct
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Arena, lay_out
from crowdgrad.volunteer.conversation import Conversation
from crowdgrad.volunteer.workshop import NotBegun, Workshop
from tests.host import small
from tests.virtual_time import run_virtual

BASE = Version(incarnation=0, count=4)


@dataclass
class Notes:
    """A trainer that writes down what it is asked, and what lay in the slot then."""

    arena: Arena
    plan: Any
    asked: list[talk.Compute] = field(default_factory=list)
    found: list[bytes] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    """Threads, each time another trainer was to have so many."""
    takes_s: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def use(self, threads: int) -> None:
        self.used.append(threads)

    async def compute(self, ask: talk.Compute, share: Callable[[], float]) -> talk.Computed:
        async with self.turn:
            ask = msgspec.structs.replace(ask, share=share())
            self.asked.append(ask)
            self.found.append(bytes(self.plan.slots[ask.slot].state.of(self.arena.memory)))
            await asyncio.sleep(self.takes_s)
        count = len(ask.numbers)
        return talk.Computed(
            unit=ask.unit.id, samples=10 * count, loss=float(ask.first), metrics={}, compute_s=0.5
        )

    async def close(self) -> None: ...


def job(local: LocalSteps) -> Job:
    return Job(
        id=JobId("j"), title="Small", cause="", program=ChunkHash("0" * 64),
        manifest=ChunkHash("1" * 64), recipe="downpour", hyperparameters={}, local=local,
        stop=StoppingRule(epochs=1), seed=1,
    )  # fmt: skip


def workshop(local: LocalSteps, **effort: Any) -> tuple[Workshop, Notes]:
    plan = lay_out(
        program_bytes=1,
        manifest_bytes=1,
        state_bytes=4,
        update_bytes=4,
        slots=2,
        shard_bytes=[(0, 1)],
    )
    arena = Arena.make(plan.total_bytes)
    trainer: Any = Notes(arena, plan)
    setup = talk.Setup(plan=plan, local=local, seed=1, threads=1)
    shop = Workshop(
        job=job(local), manifest=records(400), spec=small.spec(metrics=()), arena=arena,
        trainer=trainer, setup=setup, **effort,
    )  # fmt: skip
    return shop, trainer


def records(count: int) -> Manifest:
    """So many of one byte, to train on and to validate with. Nothing of it is fetched here."""
    chunks = (Chunk(hash=ChunkHash("2" * 64), bytes=count),)
    return Manifest(
        title="ones",
        fields=(Field(name="x", dtype="uint8", shape=()),),
        shards=(
            Shard(split="train", records=count, chunks=chunks),
            Shard(split="validation", records=count, chunks=chunks),
        ),
    )


async def answer_fetches(far: InprocConnection) -> None:
    for count in range(5, 100):
        message, _ = await far.receive()
        assert isinstance(message, Fetch)
        version = Version(incarnation=0, count=count)
        await far.send(Fresh(ticket=message.ticket, base=version), b"v%03d" % count)


def computed(
    local: LocalSteps, batches: int, *, link: int = 0, kind: UnitKind = "train", slot: int = 1
) -> tuple[talk.Computed, Notes]:
    async def scenario() -> tuple[talk.Computed, Notes]:
        shop, notes = workshop(local)
        shop.state(slot)[:] = b"v004"
        near, far = pair()
        talking = Conversation(near)
        host = asyncio.create_task(answer_fetches(far))
        listening = asyncio.create_task(talking.run(beat_s=1, silence_s=10))
        shard = 0 if kind == "train" else 1
        unit = Unit(id=UnitId(9), kind=kind, epoch=0, shard=shard, first_batch=30, batches=batches)
        grant = Grant(unit=unit, base=BASE, rate=0.25, link=link)
        done = await shop.compute(grant, slot, talking)
        for task in (host, listening):
            task.cancel()
        await asyncio.gather(host, listening, return_exceptions=True)
        await shop.close()
        return done, notes

    return run_virtual(scenario())


def stretches(notes: Notes) -> list[tuple[range, bool, bool]]:
    assert all((ask.slot, ask.rate, ask.unit.id) == (1, 0.25, 9) for ask in notes.asked)
    return [(ask.numbers, ask.fresh, ask.add) for ask in notes.asked]


@pytest.mark.parametrize("fetch_every", [0, 4, 8])
def test_a_unit_without_fetches_is_computed_whole(fetch_every: int) -> None:
    done, notes = computed(
        LocalSteps(batch_size=10, batches_per_unit=4, fetch_every=fetch_every), 4
    )
    assert stretches(notes) == [(range(30, 34), True, False)]
    assert (done.samples, done.compute_s) == (40, 0.5)


@pytest.mark.parametrize(("fetch_every", "used"), [(0, [4, 2]), (8, [])])
def test_another_trainer_has_the_threads_that_are_allowed_by_now(
    fetch_every: int, used: list[int]
) -> None:
    """Not sooner than after half a minute, and none where a replica would be lost with it."""
    local = LocalSteps(batch_size=10, batches_per_unit=4, fetch_every=fetch_every)
    unit = Unit(id=UnitId(9), kind="train", epoch=0, shard=0, first_batch=30, batches=4)
    allowed = [1]

    async def scenario() -> Notes:
        shop, notes = workshop(local, threads=lambda: allowed[0], share=lambda threads: 1 / threads)
        for allowed[0], later_s in [(1, 40.0), (4, 1.0), (2, 1.0), (2, 40.0), (2, 40.0)]:
            await asyncio.sleep(later_s)
            await shop.compute(Grant(unit=unit, base=BASE, rate=0.25, link=0), 1, nobody)
        await shop.close()
        return notes

    nobody: Any = None
    notes = run_virtual(scenario())
    assert notes.used == used
    assert [ask.share for ask in notes.asked] == (
        [1, 1 / 4, 1 / 4, 1 / 2, 1 / 2] if used else [1.0] * 5
    )


@dataclass
class Owner:
    """What a machine's owner allows by now."""

    share: float = 1.0
    threads: int = 1


NOBODY: Any = None


@contextlib.asynccontextmanager
async def two_lanes() -> AsyncIterator[tuple[Owner, Notes, list[asyncio.Task[talk.Computed]]]]:
    """The trainer takes ten seconds for a unit; half a minute after it began one lane's is under
    way, the other's waits for its turn."""
    owner, local = Owner(), LocalSteps(batch_size=10, batches_per_unit=4)
    shop, notes = workshop(local, threads=lambda: owner.threads, share=lambda threads: owner.share)
    notes.takes_s = 10.0
    await asyncio.sleep(40.0)
    lanes = []
    for slot in (0, 1):
        unit = Unit(
            id=UnitId(slot), kind="train", epoch=0, shard=0, first_batch=4 * slot, batches=4
        )
        grant = Grant(unit=unit, base=BASE, rate=0.25)
        lanes.append(asyncio.create_task(shop.compute(grant, slot, NOBODY)))
    await asyncio.sleep(5.0)
    assert [ask.unit.id for ask in notes.asked] == [0]
    yield owner, notes, lanes
    await shop.close()


def test_a_unit_that_waits_for_its_turn_is_not_begun_where_the_machine_pauses_by_then() -> None:
    """The one under way is finished."""

    async def scenario() -> None:
        async with two_lanes() as (owner, notes, (under_way, waits)):
            owner.share, owner.threads = 0.0, 4
            assert (await under_way).unit == 0
            with pytest.raises(NotBegun):
                await waits
            assert [ask.unit.id for ask in notes.asked] == [0]
            assert notes.used == [], "a pause needs no other trainer"

    run_virtual(scenario())


def test_a_unit_is_computed_as_hard_as_is_allowed_when_its_turn_comes() -> None:
    async def scenario() -> None:
        async with two_lanes() as (owner, notes, lanes):
            owner.share, owner.threads = 0.5, 4
            assert notes.used == []
            await asyncio.gather(*lanes)
            assert [(ask.unit.id, ask.share) for ask in notes.asked] == [(0, 1.0), (1, 0.5)]
            assert notes.used == [4]

    run_virtual(scenario())


def test_a_unit_under_way_is_finished_though_the_machine_pauses_between_its_stretches() -> None:
    local = LocalSteps(batch_size=10, batches_per_unit=6, fetch_every=2)
    unit = Unit(id=UnitId(9), kind="train", epoch=0, shard=0, first_batch=30, batches=6)
    allowed = iter([1.0, 0.5, 0.0])
    now = Owner()

    class Fetches:
        async def fetch(self, into: memoryview) -> None:
            now.share = next(allowed)

    async def scenario() -> list[float]:
        shop, notes = workshop(local, share=lambda threads: now.share)
        fetches: Any = Fetches()
        await fetches.fetch(memoryview(b""))
        done = await shop.compute(Grant(unit=unit, base=BASE, rate=0.25), 1, fetches)
        assert done.samples == 60
        await shop.close()
        return [ask.share for ask in notes.asked]

    assert run_virtual(scenario()) == [1.0, 0.5, 0.5]


def test_a_link_of_a_chain_goes_on() -> None:
    _, notes = computed(LocalSteps(batch_size=10, batches_per_unit=4, fetch_every=8), 4, link=1)
    assert stretches(notes) == [(range(30, 34), False, False)]


def test_parameters_are_fetched_in_the_middle() -> None:
    done, notes = computed(LocalSteps(batch_size=10, batches_per_unit=6, fetch_every=2), 5)
    assert stretches(notes) == [
        (range(30, 32), True, False),
        (range(32, 34), True, True),
        (range(34, 35), True, True),
    ]
    assert notes.found == [b"v004", b"v005", b"v006"], "each stretch has the newest"
    assert done == talk.Computed(
        unit=UnitId(9), samples=50, loss=(0 * 20 + 2 * 20 + 4 * 10) / 50, metrics={}, compute_s=1.5
    )


def test_whatever_goes_on_is_fresh_after_a_fetch() -> None:
    local = LocalSteps(batch_size=10, batches_per_unit=4, fetch_every=2)
    _, notes = computed(local, 4, link=1)
    assert stretches(notes) == [(range(30, 32), False, False), (range(32, 34), True, True)]


def test_a_unit_no_longer_than_a_stretch_needs_no_fetch() -> None:
    _, notes = computed(LocalSteps(batch_size=10, batches_per_unit=6, fetch_every=2), 2)
    assert stretches(notes) == [(range(30, 32), True, False)]
    assert notes.found == [b"v004"]


def test_an_evaluation_is_of_one_version() -> None:
    local = LocalSteps(batch_size=10, batches_per_unit=6, fetch_every=2)
    _, notes = computed(local, 6, kind="validate")
    assert stretches(notes) == [(range(30, 36), True, False)]


def test_a_unit_larger_than_announced_is_refused() -> None:
    """The memory that was agreed to was reckoned with the announced size."""
    local = LocalSteps(batch_size=10, batches_per_unit=4)
    with pytest.raises(MessageError, match="5 batches; it announced at most 4"):
        computed(local, 5)
    _, notes = computed(local, 5, kind="validate")
    assert stretches(notes) == [(range(30, 35), True, False)], "an evaluation is as large as it is"


@pytest.mark.parametrize(
    ("kind", "shard", "first", "batches"),
    [("train", 0, 38, 3), ("train", 0, 1 << 31, 1), ("train", 1, 0, 1), ("test", 0, 0, 1)],
)
def test_a_unit_of_batches_that_its_shard_has_not_is_refused(
    kind: UnitKind, shard: int, first: int, batches: int
) -> None:
    """Here, not only in the trainer: one that was taken over would call it done."""
    unit = Unit(id=UnitId(9), kind=kind, epoch=0, shard=shard, first_batch=first, batches=batches)
    shop, notes = workshop(LocalSteps(batch_size=10, batches_per_unit=4))
    nobody: Any = None
    with pytest.raises(MessageError, match=f"which shard {shard} has not"):
        asyncio.run(shop.compute(Grant(unit=unit, base=BASE, rate=0.25), 0, nobody))
    assert notes.asked == []


def test_one_hash_with_two_sizes_is_altered_data() -> None:
    """Both are asked for at once, and the second is answered with the first's bytes."""
    data = b"0123456789"
    name = ChunkHash(content_hash(data))
    shard = Shard(
        split="train", records=26, chunks=(Chunk(hash=name, bytes=10), Chunk(hash=name, bytes=16))
    )
    plan = lay_out(
        program_bytes=1, manifest_bytes=1, state_bytes=4, update_bytes=4, slots=1,
        shard_bytes=[(0, 26)],
    )  # fmt: skip

    async def scenario() -> None:
        arena = Arena.make(plan.total_bytes)
        trainer: Any = Notes(arena, plan)
        local = LocalSteps(batch_size=10)
        shop = Workshop(
            job=job(local), manifest=replace(records(26), shards=(shard,)),
            spec=small.spec(metrics=()), arena=arena, trainer=trainer,
            setup=talk.Setup(plan=plan, local=local, seed=1, threads=1),
        )  # fmt: skip
        near, far = pair()
        talking = Conversation(near)
        listening = asyncio.create_task(talking.run(beat_s=1, silence_s=10))
        needed = asyncio.create_task(
            shop.need(0, Direct(talking.get, MemoryChunks()), lambda *_: None, slot=0)
        )
        message, _ = await far.receive()
        assert isinstance(message, Get)
        await asyncio.sleep(0.1)
        await far.send(Blob(hash=name), data)
        with pytest.RaisesGroup(DataAltered):
            await needed
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await shop.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


# -- what is refused before anything is laid out ----------------------------------------------


class LaidOut(Exception):
    """The memory would be taken now."""


def opened(monkeypatch: pytest.MonkeyPatch, spec: ProgramSpec, local: LocalSteps) -> None:
    def make(size: int) -> Arena:
        raise LaidOut

    monkeypatch.setattr(Arena, "make", make)
    program = encode(Program(spec=spec, gradient=b"g", forward=b"f"))
    manifest = encode_manifest(small.manifest()[0])
    kept = {content_hash(data): data for data in (program, manifest)}
    admit = Admit(
        job=replace(job(local), program=content_hash(program), manifest=content_hash(manifest)),
        position=1, program_bytes=len(program), manifest_bytes=len(manifest), heartbeat_s=1.0,
        silence_s=9.0,
    )  # fmt: skip
    nobody: Any = SimpleNamespace(host_public=b"")
    chunks: Any = kept
    asyncio.run(Workshop.open(admit, nobody, chunks, memory_bytes=1 << 20))


@pytest.mark.parametrize(("only", "fits"), [(0, True), (10, True), (9, False), (11, False)])
def test_a_program_of_another_batch_size_is_refused(
    monkeypatch: pytest.MonkeyPatch, only: int, fits: bool
) -> None:
    spec = replace(small.spec(), fixed_batch=only)
    with pytest.raises(LaidOut if fits else ProgramRefused):
        opened(monkeypatch, spec, LocalSteps(batch_size=10))


@pytest.mark.parametrize(("size", "fits"), [(1 << 16, True), (1 << 17, False), (1 << 40, False)])
def test_more_shared_memory_than_is_lent_is_refused(
    monkeypatch: pytest.MonkeyPatch, size: int, fits: bool
) -> None:
    """Two lanes, each with parameters and update: sixteen bytes a number."""
    with pytest.raises(LaidOut if fits else TurnedAway):
        opened(monkeypatch, small.spec(size=size - 1024), LocalSteps(batch_size=10))
