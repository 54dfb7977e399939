"""A real trainer under a real `TrainerLink`, laid out in shared memory as an agent does it."""

from __future__ import annotations

from crowdgrad.capture.capture import Captured
from crowdgrad.data.dataset import DataSet
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import encode_manifest
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.numerics.vectors import as_vector
from crowdgrad.program.artifact import encode
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Arena, lay_out
from crowdgrad.volunteer.trainer_link import TrainerLink


def laid_out(
    captured: Captured, data: DataSet, batch_size: int, *, walls: bool = True
) -> tuple[Arena, TrainerLink, talk.Compute]:
    """Program, state and the first shard in place; and a question for its first batch."""
    program = captured.program
    manifest, chunks = cut(data, seed=1, batch_size=batch_size)
    program_bytes, manifest_bytes = encode(program), encode_manifest(manifest)
    layout = lay_out(
        program_bytes=len(program_bytes),
        manifest_bytes=len(manifest_bytes),
        state_bytes=4 * program.spec.state_words,
        update_bytes=4 * program.spec.update_words,
        slots=1,
        shard_bytes=[(0, manifest.shards[0].bytes)],
    )
    arena = Arena.make(layout.total_bytes)
    layout.program.of(arena.memory)[:] = program_bytes
    layout.manifest.of(arena.memory)[:] = manifest_bytes
    shard = b"".join(chunks[chunk.hash] for chunk in manifest.shards[0].chunks)
    layout.shards[0].of(arena.memory)[:] = shard
    as_vector(layout.slots[0].state.of(arena.memory))[:] = captured.state
    local = LocalSteps(batch_size=batch_size)
    setup = talk.Setup(plan=layout, local=local, seed=3, threads=1, evaluates=False)
    unit = Unit(id=UnitId(1), kind="train", epoch=0, shard=0, first_batch=0, batches=1)
    ask = talk.Compute(unit=unit, slot=0, rate=0.1)
    return arena, TrainerLink(arena, setup, walls=walls), ask
