"""What it costs to hand a unit to the trainer process and hear back, beside the computing itself.

A real trainer under a real `TrainerLink`, with a program so small that the crossing shows.
Parameters, data and update lie in the memory they share: only two short messages go over.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from crowdgrad.capture.capture import capture
from crowdgrad.capture.models import mlp
from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import encode_manifest
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.process import run_async
from crowdgrad.program.artifact import encode
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Arena, lay_out
from crowdgrad.volunteer.trainer_link import TrainerLink

BATCH = 20
UNITS = 300
"""In a window."""


def boundary_us(windows: int) -> list[float]:
    """The median of each window: the round trip without the trainer's own computing."""
    return run_async(_measure(windows))


async def _measure(windows: int) -> list[float]:
    arena, link = _laid_out()
    try:
        await link.start()
        await _window(link)
        return [await _window(link) for _ in range(windows)]
    finally:
        await link.close()
        arena.close()


async def _window(link: TrainerLink) -> float:
    unit = Unit(id=UnitId(1), kind="train", epoch=0, shard=0, first_batch=0, batches=1)
    ask = talk.Compute(unit=unit, slot=0, rate=0.1)
    crossings = []
    for _ in range(UNITS):
        began = time.perf_counter()
        answer = await link.compute(ask)
        crossings.append(1e6 * (time.perf_counter() - began - answer.compute_s))
    return statistics.median(crossings)


def _laid_out() -> tuple[Arena, TrainerLink]:
    """Everything in shared memory, as an agent puts it there."""
    random = np.random.default_rng(0)
    data = from_arrays(
        random.normal(size=(60, 3)).astype(np.float32), random.integers(0, 2, 60).astype(np.uint8)
    )
    manifest, chunks = cut(data, seed=1, batch_size=BATCH)
    program = capture(mlp((3,), (8,), 2), data.fields).program
    program_bytes, manifest_bytes = encode(program), encode_manifest(manifest)
    plan = lay_out(
        program_bytes=len(program_bytes),
        manifest_bytes=len(manifest_bytes),
        state_bytes=4 * program.spec.state_words,
        update_bytes=4 * program.spec.update_words,
        slots=1,
        shard_bytes=[(0, manifest.shards[0].bytes)],
    )
    arena = Arena.make(plan.total_bytes)
    plan.program.of(arena.memory)[:] = program_bytes
    plan.manifest.of(arena.memory)[:] = manifest_bytes
    shard = b"".join(chunks[chunk.hash] for chunk in manifest.shards[0].chunks)
    plan.shards[0].of(arena.memory)[:] = shard
    local = LocalSteps(batch_size=BATCH)
    return arena, TrainerLink(arena, talk.Setup(plan=plan, local=local, seed=3, threads=1))
