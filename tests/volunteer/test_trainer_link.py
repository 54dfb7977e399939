"""The trainer as a process: it computes, refuses, dies and is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.models import mlp
from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import encode_manifest
from crowdgrad.domain.program import Program
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.errors import ChildDied, CrowdgradError, ProgramRefused
from crowdgrad.numerics.vectors import as_vector
from crowdgrad.program.artifact import encode
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Arena, lay_out
from crowdgrad.volunteer.trainer_link import MAX_DEATHS, TrainerLink


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(mlp((3,), (8,), 2), DATA.fields)


RNG = np.random.default_rng(0)
DATA = from_arrays(
    RNG.normal(size=(60, 3)).astype(np.float32), RNG.integers(0, 2, 60).astype(np.uint8)
)
MANIFEST, CHUNKS = cut(DATA, seed=1, batch_size=20)
UNIT = Unit(id=UnitId(5), kind="train", epoch=0, shard=0, first_batch=1, batches=1)


def bench(program: Program) -> tuple[Arena, TrainerLink]:
    """Everything laid out as an agent does it."""
    program_bytes, manifest_bytes = encode(program), encode_manifest(MANIFEST)
    plan = lay_out(
        program_bytes=len(program_bytes),
        manifest_bytes=len(manifest_bytes),
        vector_bytes=program.spec.vector_bytes,
        slots=1,
        shard_bytes=[(0, MANIFEST.shards[0].bytes)],
    )
    arena = Arena.make(plan.total_bytes)
    plan.program.of(arena.memory)[:] = program_bytes
    plan.manifest.of(arena.memory)[:] = manifest_bytes
    plan.shards[0].of(arena.memory)[:] = b"".join(
        CHUNKS[chunk.hash] for chunk in MANIFEST.shards[0].chunks
    )
    local = LocalSteps(batch_size=20, learning_rate=0.1)
    return arena, TrainerLink(arena, talk.Setup(plan=plan, local=local, seed=3, threads=1))


def with_trainer(program: Program, test: Callable[[Arena, TrainerLink], Awaitable[None]]) -> None:
    async def scenario() -> None:
        arena, link = bench(program)
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
        as_vector(slot.parameters.of(arena.memory))[:] = captured.parameters
        done = await link.compute(UNIT, 0)
        assert (done.unit, done.samples) == (UNIT.id, 20)
        update = as_vector(slot.update.of(arena.memory)).copy()
        assert np.isfinite(update).all()
        assert np.linalg.norm(update) > 0
        again = await link.compute(UNIT, 0)
        assert again.loss == done.loss, "a unit is a function of the batch, not of who computes it"
        assert (as_vector(slot.update.of(arena.memory)) == update).all()

    with_trainer(captured.program, scenario)


def test_a_killed_trainer_is_said_to_have_died_and_replaced(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        for death in range(1, MAX_DEATHS + 1):
            first = link.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            with pytest.raises(ChildDied, match="ended with code -9"):
                await link.compute(UNIT, 0)
            assert link.deaths == death
            if death < MAX_DEATHS:
                assert (await link.compute(UNIT, 0)).unit == UNIT.id
        with pytest.raises(ChildDied, match=f"died {MAX_DEATHS} times"):
            await link.compute(UNIT, 0)

    with_trainer(captured.program, scenario)


def test_a_program_off_the_allow_list_is_refused_before_any_runtime(captured: Captured) -> None:
    evil = replace(captured.program, gradient=captured.program.gradient.replace(b"Gemm", b"Loop"))
    assert evil != captured.program

    async def scenario(arena: Arena, link: TrainerLink) -> None:
        with pytest.raises(ProgramRefused, match="Loop"):
            await link.start()

    with_trainer(evil, scenario)


def test_a_unit_that_makes_no_sense_is_an_answer_not_a_death(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        with pytest.raises(CrowdgradError, match="no batch 99"):
            await link.compute(replace(UNIT, first_batch=99), 0)
        assert (await link.compute(UNIT, 0)).samples == 20
        assert link.deaths == 0

    with_trainer(captured.program, scenario)


def test_a_cancelled_caller_does_not_put_the_pipe_out_of_step(captured: Captured) -> None:
    async def scenario(arena: Arena, link: TrainerLink) -> None:
        await link.start()
        pid = link.pid
        waiting = asyncio.create_task(link.compute(replace(UNIT, id=UnitId(1)), 0))
        await asyncio.sleep(0)
        waiting.cancel()
        assert (await link.compute(replace(UNIT, id=UnitId(2)), 0)).unit == 2
        assert link.pid == pid

    with_trainer(captured.program, scenario)
