"""The copies of the parameters a host makes: as few as it can do with."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np

from crowdgrad.host.allocation import INLINE_BYTES, BufferPool, blank, copy_of, room
from crowdgrad.host.parameters import Parameters
from tests.host import small
from tests.host.people import asynchronous

ONES = np.ones(small.SIZE, np.float32)


async def step(parameters: Parameters) -> None:
    assert await parameters.apply(ONES.copy(), parameters.version, rate=1.0) is not None


@asynchronous
async def test_a_snapshot_that_nobody_receives_is_written_over() -> None:
    parameters = small.training().parameters
    async with parameters.published() as first:
        pass
    await step(parameters)
    async with parameters.published() as second:
        assert second is first
        assert second.version == parameters.version
        assert (parameters.pinned, parameters.spare) == (0, 0)


@asynchronous
async def test_what_somebody_receives_stays_as_it_is_until_it_is_through() -> None:
    parameters = small.training().parameters
    async with contextlib.AsyncExitStack() as slow:
        first = await slow.enter_async_context(parameters.published())
        before = first.vector.copy()
        for number in range(3):
            await step(parameters)
            async with parameters.published() as newer:
                assert newer is not first
                assert newer.version.count == number + 1
        assert np.array_equal(first.vector, before)
        assert (parameters.pinned, parameters.spare) == (1, 0)
    assert (parameters.pinned, parameters.spare) == (0, 1)
    parameters.trim(0)
    assert parameters.spare == 0


@asynchronous
async def test_there_are_never_more_old_ones_than_receivers() -> None:
    parameters = small.training().parameters
    async with contextlib.AsyncExitStack() as slow:
        for _ in range(5):
            for _ in range(2):
                await slow.enter_async_context(parameters.published())
            await step(parameters)
        async with parameters.published():
            assert parameters.pinned == 5
    assert (parameters.pinned, parameters.spare) == (0, 1)


@asynchronous
async def test_a_copy_broken_off_is_nobodys() -> None:
    """Whoever asks next gets a whole one: a thread may still be writing to the other."""
    parameters = small.training().parameters
    async with parameters.published() as first:
        pass
    await step(parameters)
    at_work = parameters._do

    async def never(work: object) -> None:
        await asyncio.sleep(3600)

    parameters._do = never  # type: ignore[method-assign]
    asking = asyncio.create_task(parameters._current())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    parameters._do = at_work  # type: ignore[method-assign]
    async with parameters.published() as second:
        assert second is not first
        assert second.version == parameters.version


def test_large_memory_is_its_own_and_small_is_ordinary() -> None:
    for size in (0, 8, INLINE_BYTES, INLINE_BYTES + 4):
        made = room(size)
        assert len(made) == size
        assert not made.readonly
        vector = blank(size // 4)
        vector[:] = 1.0
        copied = copy_of(vector)
        vector[:] = 2.0
        assert np.all(copied == 1.0)


def test_buffers_are_used_again_but_not_hoarded() -> None:
    pool = BufferPool(100, spare=2)
    taken = [pool.take() for _ in range(4)]
    assert pool.taken == 4
    for buffer in taken[:3]:
        pool.give(buffer)
    assert (pool.taken, pool.spare) == (1, 2)
    assert pool.take() is taken[1]
    pool.forget(2)
    assert pool.taken == 0
    pool.trim(-1)
    assert pool.spare == 0
