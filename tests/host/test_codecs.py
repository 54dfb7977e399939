"""What a host publishes and takes where parameters travel in half precision."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.domain.work import CodecName, UnitId, Update, Version
from crowdgrad.host.allocation import INLINE_BYTES
from crowdgrad.host.parameters import Parameters
from crowdgrad.host.unpacking import AT_ONCE, Unpacking
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.vectors import Vector
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe
from crowdgrad.recipes.dc_asgd import DCASGD
from tests.host import small
from tests.host.house import House, in_house
from tests.host.people import D, gradient_of, stage, weights
from tests.virtual_time import run_virtual

FIRST = Version(incarnation=0, count=0)
HALVES: tuple[CodecName, ...] = ("fp16", "bf16")


def spec(size: int) -> ProgramSpec:
    """Parameters, a mean that is no half, and a counter."""
    plain = small.spec(size=size)
    buffers = (
        TensorSpec(name="mean", dtype="float32", shape=(1,)),
        TensorSpec(name="seen", dtype="int64", shape=()),
    )
    return ProgramSpec(
        parameters=plain.parameters,
        buffers=buffers,
        inputs=plain.inputs,
        noise=(),
        metrics=plain.metrics,
        outputs=1,
        work_per_sample=1.0,
        opset=20,
    )


def parameters(recipe: Recipe, size: int = 3) -> tuple[Parameters, Packing, Vector]:
    of = spec(size)
    state = np.zeros(of.state_words, np.float32)
    state[:size] = np.linspace(-1, 1, size) / 3
    state[size + size % 2] = 0.1
    codec = recipe.local().codec
    made = Parameters(state, recipe.server_rule(), FIRST, recipe.serving(), of, codec=codec)
    return made, Packing(codec, size), state.copy()


def update_of(unit: int = 1) -> Update:
    return Update(unit=UnitId(unit), base=FIRST, samples=1, loss=0.0, metrics={}, compute_s=0.0)


def packed(packing: Packing, vector: Vector) -> memoryview:
    payload = memoryview(bytearray(packing.bytes(len(vector))))
    packing.encode(vector, payload)
    return payload


@pytest.mark.parametrize("codec", HALVES)
@pytest.mark.parametrize("size", [3, INLINE_BYTES // 4 + 1])
def test_what_is_published_is_the_state_as_it_travels(codec: CodecName, size: int) -> None:
    async def scenario() -> None:
        ours, packing, state = parameters(AsyncSGD(codec=codec), size)
        words = len(state)
        assert ours.state_bytes == ours.update_bytes == 2 * size + 4 * (words - size)
        async with ours.published() as one, ours.published() as other:
            assert one is other, "one copy for everybody"
            assert bytes(one.payload) == bytes(packed(packing, state))
            received = one.vector
        assert (received[size:].view(np.uint32) == state[size:].view(np.uint32)).all()
        assert not (received[:size] == state[:size]).all()
        kept, _ = await ours.copy()
        assert (kept == state).all(), "only what travels is rounded"

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", HALVES)
@pytest.mark.parametrize("size", [3, INLINE_BYTES // 4 + 1])
def test_an_update_is_decoded_and_applied(codec: CodecName, size: int) -> None:
    async def scenario() -> None:
        ours, packing, state = parameters(AsyncSGD(codec=codec), size)
        sent = np.zeros_like(state)
        sent[:size] = 0.1
        sent[size + size % 2] = 0.3
        payload = packed(packing, sent)
        for _ in range(2 * AT_ONCE):  # what is given back is used again
            received = await ours.received(small.volunteer("ada").id, update_of(), payload)
            assert received is not None
            assert await ours.acceptable(received)
            np.testing.assert_array_equal(received[:size], packing.decoded(payload)[:size])
            ours.let_go(received)
        await ours.apply(received, FIRST, rate=0.5)
        after, version = await ours.copy()
        np.testing.assert_array_equal(
            after[:size], state[:size] - np.float32(0.5) * packing.decoded(payload)[:size]
        )
        assert after[size + size % 2] == np.float32(0.3), "buffers are not rounded"
        assert version.count == 1
        assert await ours.received(small.volunteer("ada").id, update_of(), payload[:0]) is None

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", HALVES)
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_still_found(codec: CodecName, odd: float) -> None:
    async def scenario() -> None:
        ours, packing, state = parameters(AsyncSGD(codec=codec))
        for value, fine in ((odd, False), (3e38, True), (-1e5, True)):
            state[1] = value
            payload = packed(packing, state)
            received = await ours.received(small.volunteer("ada").id, update_of(), payload)
            assert received is not None
            assert await ours.acceptable(received) == fine
            ours.let_go(received)

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", HALVES)
@pytest.mark.parametrize("half_backups", [False, True])
def test_a_late_gradient_is_corrected_from_where_it_really_started(
    codec: CodecName, half_backups: bool
) -> None:
    """Which is what the volunteer received, not what the host had."""

    async def scenario() -> None:
        recipe = DCASGD(
            lr=0.1, batch_size=10, mode="constant", strength=5.0, overlap=0, codec=codec,
            half_backups=half_backups,
        )  # fmt: skip
        training, (slow, fast) = stage(recipe, 2)
        await fast.step()
        had = await weights(training)
        granted = await slow.ask()
        assert granted is not None
        start = slow.parameters.astype(np.float64)
        assert 0 < np.abs(start - had).max() < 0.01
        assert training.parameters.backup_bytes == 4 * D + 2 * D, "room to decode, and a half copy"
        for _ in range(3):
            await fast.step()
        before = await weights(training)
        await slow.push()
        g = gradient_of(granted.unit.first_batch, start)
        expected = before - 0.1 * (g + 5.0 * g * g * (before - start))
        wrong = before - 0.1 * (g + 5.0 * g * g * (before - had))
        found = await weights(training)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert np.abs(found - expected).max() < np.abs(found - wrong).max()

    run_virtual(scenario())


def test_a_few_vectors_serve_everybody() -> None:
    """More updates than may be decoded at once wait; who is broken off leaves nothing behind."""

    async def scenario() -> None:
        packing, size = Packing("bf16", INLINE_BYTES), INLINE_BYTES
        unpacking = Unpacking(packing, size)
        payload = packed(packing, np.ones(size, np.float32))
        held = [await unpacking.unpack(payload) for _ in range(AT_ONCE)]
        waiting = [asyncio.create_task(unpacking.unpack(payload)) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        waiting[0].cancel()
        unpacking.let_go(held[0])
        second = await waiting[1]
        assert second is held[0], "used again"
        assert (second == 1.0).all()
        going = waiting[2]
        unpacking.let_go(held[1])
        await asyncio.sleep(0)  # it has begun in a thread
        going.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        unpacking.let_go(second)
        again = [await unpacking.unpack(payload) for _ in range(AT_ONCE)]
        assert all((vector == 1.0).all() for vector in again)

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [7, 2 * INLINE_BYTES])
def test_a_whole_job_in_half_precision(size: int) -> None:
    """Small, and large enough for places and threads, over real conversations."""
    recipe = AsyncSGD(lr=0.01, batch_size=10, overlap=0, codec="fp16")

    async def scenario(house: House) -> None:
        people = [await house.connect() for _ in range(3)]
        await asyncio.gather(*(person.work() for person in people))
        assert house.over
        state, version = await house.training.parameters.copy()
        assert version.count == 4 * small.TRAIN_BATCHES
        np.testing.assert_allclose(state, -0.01 * version.count, rtol=1e-4)
        assert house.training.ledger.total_samples == 4 * 45

    in_house(scenario, recipe=recipe, size=size)
