"""The trainer as a process: it computes, refuses, dies and is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.models import mlp
from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import encode_manifest
from crowdgrad.domain.program import Program
from crowdgrad.domain.work import CodecName, LocalRule, LocalSteps, Unit, UnitId
from crowdgrad.errors import ChildDied, ComputeError, CrowdgradError, ProgramRefused
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.vectors import Vector, as_vector
from crowdgrad.program.artifact import encode
from crowdgrad.program.engines.replica import held_bytes
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Arena, Region, lay_out
from crowdgrad.volunteer.layout import coded_bytes
from crowdgrad.volunteer.trainer_link import MAX_DEATHS, PATIENCE_FACTOR, START_S, TrainerLink


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(mlp((3,), (8,), 2), DATA.fields)


RNG = np.random.default_rng(0)
DATA = from_arrays(
    RNG.normal(size=(60, 3)).astype(np.float32), RNG.integers(0, 2, 60).astype(np.uint8)
)
MANIFEST, CHUNKS = cut(DATA, seed=1, batch_size=20)
UNIT = Unit(id=UnitId(5), kind="train", epoch=0, shard=0, first_batch=1, batches=1)


LOCAL = LocalSteps(batch_size=20)


def bench(program: Program, local: LocalSteps, pace_s: float) -> tuple[Arena, TrainerLink]:
    """Everything laid out as an agent does it."""
    program_bytes, manifest_bytes = encode(program), encode_manifest(MANIFEST)
    plan = lay_out(
        program_bytes=len(program_bytes),
        manifest_bytes=len(manifest_bytes),
        state_bytes=4 * program.spec.state_words,
        update_bytes=4 * program.spec.update_words,
        slots=2,
        shard_bytes=[(0, MANIFEST.shards[0].bytes)],
        coded_bytes=coded_bytes(program.spec, local),
    )
    arena = Arena.make(plan.total_bytes)
    plan.program.of(arena.memory)[:] = program_bytes
    plan.manifest.of(arena.memory)[:] = manifest_bytes
    plan.shards[0].of(arena.memory)[:] = b"".join(
        CHUNKS[chunk.hash] for chunk in MANIFEST.shards[0].chunks
    )
    setup = talk.Setup(plan=plan, local=local, seed=3, threads=1, pace_s=pace_s)
    return arena, TrainerLink(arena, setup)


def ask(unit: Unit = UNIT, slot: int = 0, **how: Any) -> talk.Compute:
    return talk.Compute(unit=unit, slot=slot, rate=0.1, **how)


def with_trainer(
    program: Program,
    test: Callable[[Arena, TrainerLink], Awaitable[None]],
    *,
    local: LocalSteps = LOCAL,
    pace_s: float = 0.0,
) -> None:
    async def scenario() -> None:
        arena, link = bench(program, local, pace_s)
        try:
            await test(arena, link)
        finally:
            pid = link.pid
            await link.close()
            assert pid is None or not os.path.exists(f"/proc/{pid}")  # noqa: ASYNC240
            arena.close()

    asyncio.run(scenario())


def test_a_unit_in_an_update_out(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        slot = link._setup.plan.slots[0]
        as_vector(slot.state.of(arena.memory))[:] = captured.state
        done = await link.compute(ask())
        assert (done.unit, done.samples) == (UNIT.id, 20)
        update = as_vector(slot.update.of(arena.memory)).copy()
        assert np.isfinite(update).all()
        assert np.linalg.norm(update) > 0
        again = await link.compute(ask())
        assert again.loss == done.loss, "a unit is a function of the batch, not of who computes it"
        assert (as_vector(slot.update.of(arena.memory)) == update).all()

    with_trainer(captured.program, scenario)


@pytest.mark.parametrize("threads", [2, 100])
def test_every_thread_has_room_for_its_stack(captured: Captured, threads: int) -> None:
    """Within the memory that is allowed; the runtime waits for ever for one that cannot start."""

    async def scenario(arena: Arena, link: TrainerLink) -> None:
        setup = msgspec.structs.replace(link._setup, threads=threads)
        many = TrainerLink(arena, setup)
        as_vector(setup.plan.slots[0].state.of(arena.memory))[:] = captured.state
        try:
            assert (await many.compute(ask())).samples == 20
            assert len(os.listdir(f"/proc/{many.pid}/task")) >= threads
        finally:
            await many.close()

    with_trainer(captured.program, scenario)


def test_another_with_more_threads_goes_on_where_the_last_one_was(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        link.use(1)  # before there is one
        as_vector(link._setup.plan.slots[0].state.of(arena.memory))[:] = captured.state
        alone = await link.compute(ask())
        first = link.pid
        link.use(2)
        both = await link.compute(ask())
        assert not os.path.exists(f"/proc/{first}")  # noqa: ASYNC240
        assert len(os.listdir(f"/proc/{link.pid}/task")) >= 2
        assert both.loss == pytest.approx(alone.loss, rel=1e-5)
        assert link.deaths == 0

    with_trainer(captured.program, scenario)


@pytest.mark.parametrize("room", [-1, 2, 1 << 40])
def test_a_room_there_is_not_is_never_read(captured: Captured, room: int) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        plan, setup = link._setup.plan, link._setup
        shard = plan.shards[0]
        as_vector(plan.slots[0].state.of(arena.memory))[:] = captured.state
        wanted = await link.compute(ask())
        await link.close()
        for size, there in [(shard.bytes, True), (shard.bytes - 1, False)]:
            turns = replace(
                plan, shards={}, rooms=2, window=Region(offset=shard.offset, bytes=2 * size)
            )
            other = TrainerLink(arena, msgspec.structs.replace(setup, plan=turns))
            with pytest.raises(ComputeError, match=f"no room {room}"):
                await other.compute(ask(room=room))
            if there:
                assert (await other.compute(ask(room=0))).loss == wanted.loss
            else:
                with pytest.raises(ComputeError, match="are not in a room of"):
                    await other.compute(ask(room=0))
            assert other.deaths == 0
            await other.close()

    with_trainer(captured.program, scenario)


def test_a_killed_trainer_is_said_to_have_died_and_replaced(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        for death in range(1, MAX_DEATHS + 1):
            first = link.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            with pytest.raises(ChildDied, match="was killed by somebody, or by the system"):
                await link.compute(ask())
            assert link.deaths == death
            if death < MAX_DEATHS:
                assert (await link.compute(ask())).unit == UNIT.id
        with pytest.raises(ChildDied, match=f"died {MAX_DEATHS} times"):
            await link.compute(ask())

    with_trainer(captured.program, scenario)


def test_a_program_off_the_allow_list_is_refused_before_any_runtime(captured: Captured) -> None:
    evil = replace(captured.program, gradient=captured.program.gradient.replace(b"Gemm", b"Loop"))
    assert evil != captured.program

    async def scenario(arena: Arena, link: TrainerLink) -> None:
        with pytest.raises(ProgramRefused, match="Loop"):
            await link.check()

    with_trainer(evil, scenario)


def test_a_unit_that_makes_no_sense_is_an_answer_not_a_death(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        with pytest.raises(CrowdgradError, match="no batch 99"):
            await link.compute(ask(replace(UNIT, first_batch=99)))
        assert (await link.compute(ask())).samples == 20
        assert link.deaths == 0

    with_trainer(captured.program, scenario)


def test_a_cancelled_caller_does_not_put_the_pipe_out_of_step(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        pid = link.pid
        waiting = asyncio.create_task(link.compute(ask(replace(UNIT, id=UnitId(1)))))
        await asyncio.sleep(0)
        waiting.cancel()
        assert (await link.compute(ask(replace(UNIT, id=UnitId(2))))).unit == 2
        assert link.pid == pid

    with_trainer(captured.program, scenario)


def test_a_caller_that_goes_in_the_middle_leaves_the_turn_to_the_next(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        pid = link.pid
        for number in range(1, 8):
            waiting = asyncio.create_task(link.compute(ask(replace(UNIT, id=UnitId(number)))))
            behind = asyncio.create_task(link.compute(ask(replace(UNIT, id=UnitId(100 + number)))))
            while link._until is None:  # noqa: ASYNC110 - until it was asked
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await behind).unit == 100 + number
        assert link.pid == pid
        assert link._until is None
        assert not link._turn.locked()

    with_trainer(captured.program, scenario)


def test_how_hard_to_work_is_asked_when_the_turn_has_come(captured: Captured) -> None:
    """And whoever may not by then leaves the turn to the next."""

    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        first, under_way, said = link.pid, link._compute, []
        done: list[int] = []

        async def compute(ask: talk.Compute) -> talk.Computed:
            answer = await under_way(ask)
            done.append(ask.unit.id)
            said.append(ask.share)
            return answer

        def with_two_threads() -> float:
            assert done == [1]
            link.use(2)
            return 0.5

        def not_now() -> float:
            assert done == [1, 2]
            raise InterruptedError

        link._compute = compute  # type: ignore[method-assign]
        lanes = [
            asyncio.create_task(link.compute(ask(unit(number, 1)), share))
            for number, share in [(1, lambda: 1.0), (2, with_two_threads), (3, not_now)]
        ]
        lanes.append(asyncio.create_task(link.compute(ask(unit(4, 1)))))
        await asyncio.wait(lanes)
        assert isinstance(lanes[2].exception(), InterruptedError)
        assert [lanes[n].result().unit for n in (0, 1, 3)] == [1, 2, 4]
        assert (done, said) == ([1, 2, 4], [1.0, 0.5, 1.0])
        assert link.pid != first
        assert len(os.listdir(f"/proc/{link.pid}/task")) >= 2, "from that very unit on"

    with_trainer(captured.program, scenario)


@pytest.mark.parametrize("moment", ["starting", "changing"])
def test_a_caller_that_goes_while_a_trainer_starts_leaves_a_sound_one(
    captured: Captured, moment: str
) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        if moment == "changing":
            await link.start()
            link.use(2)
        before = link.pid
        waiting = asyncio.create_task(link.compute(ask()))
        while link.pid == before:  # noqa: ASYNC110 - until it begins to end, or has begun
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await link.compute(ask(replace(UNIT, id=UnitId(7))))).unit == 7
        if moment == "changing":
            assert len(os.listdir(f"/proc/{link.pid}/task")) >= 2
        assert link.deaths == 0

    with_trainer(captured.program, scenario)


def test_one_that_starts_while_all_ends_is_ended_too(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        waiting = asyncio.create_task(link.compute(ask()))
        await asyncio.sleep(0)
        waiting.cancel()
        await link.close()
        assert link.pid is None
        await asyncio.wait([waiting])
        with pytest.raises(ChildDied):
            await link.compute(ask())

    with_trainer(captured.program, scenario)


def vectors(arena: Arena, link: TrainerLink, slot: int = 0) -> tuple[Vector, Vector]:
    """A slot's parameters and update, where they lie."""
    place = link._setup.plan.slots[slot]
    return as_vector(place.state.of(arena.memory)), as_vector(place.update.of(arena.memory))


def unit(number: int, first_batch: int, batches: int = 1) -> Unit:
    return replace(UNIT, id=UnitId(number), first_batch=first_batch, batches=batches)


def test_a_chain_goes_on_in_its_lane_while_another_computes(captured: Captured) -> None:
    local = LocalSteps(batch_size=20, fetch_every=3, rule=LocalRule(name="momentum"))

    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        (start, update), (other, _) = vectors(arena, link, 0), vectors(arena, link, 1)
        start[:] = other[:] = captured.state
        await link.compute(ask(unit(0, 0)))
        first = update.copy()
        start[:] = np.nan  # a link needs no parameters
        other *= 2.0
        await link.compute(ask(unit(1, 2), slot=1))
        await link.compute(ask(unit(2, 1), fresh=False))
        second = update.copy()
        start[:] = captured.state - np.float32(0.1) * first
        await link.compute(ask(unit(3, 1)))
        assert (update == second).all(), "it went on from where the first unit had left it"

    with_trainer(captured.program, scenario, local=local)


def test_a_new_trainer_has_no_replica_and_says_so(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        vectors(arena, link)[0][:] = captured.state
        await link.compute(ask(unit(0, 0)))
        assert link.pid is not None
        os.kill(link.pid, signal.SIGKILL)
        with pytest.raises(ChildDied):
            await link.compute(ask(unit(1, 1), fresh=False))
        with pytest.raises(ComputeError, match="lane 0 has no replica"):
            await link.compute(ask(unit(1, 1), fresh=False))
        assert (await link.compute(ask(unit(1, 1)))).samples == 20
        assert link.deaths == 1

    with_trainer(captured.program, scenario, local=LocalSteps(batch_size=20, fetch_every=2))


def test_stretches_add_up(captured: Captured) -> None:
    local = LocalSteps(batch_size=20, batches_per_unit=3, fetch_every=1)

    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        parameters, update = vectors(arena, link)
        parameters[:] = captured.state
        singles = []
        for number in range(3):
            await link.compute(ask(unit(number, number)))
            singles.append(update.copy())
        whole, total = unit(9, 0, 3), singles[1] + singles[2]
        done = await link.compute(ask(whole, first=1, batches=1))
        assert (done.unit, done.samples) == (9, 20)
        assert (update == singles[1]).all()
        assert (await link.compute(ask(whole, first=2, add=True))).samples == 20
        assert (update == total).all()

    with_trainer(captured.program, scenario, local=local)


def test_batches_grow_with_the_epochs(captured: Captured) -> None:
    local = LocalSteps(batch_size=20, batches_per_unit=2, growth=1.5, growth_every=2)

    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        for epoch, samples in ((0, 20), (1, 20), (2, 30), (3, 30)):
            assert (await link.compute(ask(replace(UNIT, epoch=epoch)))).samples == samples
        with pytest.raises(CrowdgradError, match="no batch 2"):
            await link.compute(ask(replace(UNIT, epoch=2, first_batch=2)))

    with_trainer(captured.program, scenario, local=local)


def test_a_pause_after_every_batch_counts_as_time_computed(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        whole = ask(unit(0, 0, 3))
        assert link._patience(whole) == START_S + 3 * 0.05
        link._slowest_s = {8: 20.0, 1: 30.0}  # whoever computed with eight takes longer alone
        assert link._patience(whole) == PATIENCE_FACTOR * 8 * 20.0 + 3 * 0.05
        link._threads = 8
        assert link._patience(whole) == PATIENCE_FACTOR * 30.0 + 3 * 0.05
        assert (await link.compute(whole)).compute_s >= 3 * 0.05
        assert (await link.compute(ask(whole.unit, first=2))).compute_s >= 0.05

    local = LocalSteps(batch_size=20, batches_per_unit=3)
    with_trainer(captured.program, scenario, local=local, pace_s=0.05)


def test_a_local_rule_that_makes_no_sense_is_refused_with_a_sentence(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        with pytest.raises(ProgramRefused, match="local rule makes no sense: there is no rule"):
            await link.start()

    local = LocalSteps(batch_size=20, rule=LocalRule(name="magic"))
    with_trainer(captured.program, scenario, local=local)


def memory_of(captured: Captured, local: LocalSteps, lent: int = 0) -> int:
    """What the trainer says a job would take. Raises what it does."""
    found = []

    async def scenario(arena: Arena, link: TrainerLink) -> None:
        link._setup = msgspec.structs.replace(link._setup, memory_bytes=lent)
        found.append((await link.check()).memory_bytes)

    with_trainer(captured.program, scenario, local=local)
    return found[0]


def test_replicas_count_as_memory_and_more_than_is_lent_is_refused(captured: Captured) -> None:
    plain = LocalSteps(batch_size=20, overlap=0)
    adam = LocalSteps(batch_size=20, overlap=0, fetch_every=4, rule=LocalRule(name="adam"))
    least, more = memory_of(captured, plain), memory_of(captured, adam)
    assert more - least == held_bytes(adam, captured.program.spec) > 0
    assert memory_of(captured, plain, least) == least
    with pytest.raises(ProgramRefused, match="beside its data; of what this machine lends"):
        memory_of(captured, adam, least)


@pytest.mark.parametrize("codec", ["fp16", "bf16"])
def test_what_travels_in_half_precision_is_decoded_and_encoded_beside(
    codec: CodecName, captured: Captured
) -> None:
    """The agent only moves bytes; what is added up is rounded once, when it leaves."""
    local = LocalSteps(batch_size=20, batches_per_unit=2, fetch_every=1, codec=codec)
    packing = Packing(codec, captured.program.spec.size)

    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        place = link._setup.plan.slots[0]
        state, update = vectors(arena, link)
        comes, goes = place.comes.of(arena.memory), place.goes.of(arena.memory)
        packing.encode(captured.state, comes)
        goes[:] = untouched = bytes(len(goes))
        await link.compute(ask(unit(0, 0, 2), batches=1))
        assert (state == packing.decoded(comes)).all()
        assert not (state == captured.state).all()
        assert bytes(goes) == untouched, "more is to come"
        packing.encode(2 * captured.state, comes)
        await link.compute(ask(unit(0, 0, 2), first=1, add=True))
        assert (state == packing.decoded(comes)).all(), "fetched in the middle"
        sent = bytearray(len(goes))
        packing.encode(update, memoryview(sent))
        assert bytes(goes) == bytes(sent)
        assert not (packing.decoded(goes) == update).all()

    with_trainer(captured.program, scenario, local=local)
