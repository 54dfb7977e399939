"""The copies of the parameters a host makes: as few as it can do with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.work import Version
from crowdgrad.host.allocation import INLINE_BYTES, BufferPool, blank, copy_of, room
from crowdgrad.host.parameters import Parameters
from crowdgrad.recipes.async_sgd import AsyncSGD
from tests.host import small
from tests.host.people import asynchronous

ONES = np.ones(small.SIZE, np.float32)


async def step(parameters: Parameters) -> None:
    assert await parameters.apply(ONES.copy(), parameters.version, rate=1.0) is not None


COPIED = AsyncSGD(lr=0.5, batch_size=10, overlap=0, publish_every=2)
"""Where not every version is published, a snapshot cannot be the state itself."""


@asynchronous
async def test_a_snapshot_that_nobody_receives_is_written_over() -> None:
    parameters = small.training(recipe=COPIED).parameters
    async with parameters.published() as first:
        pass
    await step(parameters)
    await step(parameters)
    async with parameters.published() as second:
        assert second is first
        assert second.version == parameters.version
        assert (parameters.pinned, parameters.pool.spare) == (0, 0)


@asynchronous
async def test_over_quick_links_nothing_is_copied_at_all() -> None:
    parameters = small.training().parameters
    state = parameters._state
    for _ in range(3):
        async with parameters.published() as snapshot:
            assert np.shares_memory(snapshot.vector, state)
        await step(parameters)
    assert parameters._state is state
    assert (parameters.pinned, parameters.pool.spare) == (0, 0)


@settings(max_examples=60, deadline=None)
@given(
    moves=st.lists(
        st.sampled_from(("step", "ask", "release", "abandon", "back", "save", "upload")),
        max_size=40,
    ),
    publish_every=st.sampled_from((1, 2)),
)
def test_whatever_happens_nothing_changes_under_whoever_receives_it(
    moves: list[str], publish_every: int
) -> None:
    recipe = AsyncSGD(lr=0.5, batch_size=10, overlap=0, publish_every=publish_every)

    async def go() -> None:
        parameters = small.training(recipe=recipe).parameters
        saved, _ = await parameters.save(lambda: None)
        held, sent = [], []
        for move in moves:
            if move == "step":
                await step(parameters)
            elif move == "ask":
                snapshot = parameters.publish_at_once()
                held.append((snapshot, snapshot.version, snapshot.vector.copy()))
            elif move == "release" and held:
                parameters.release(held.pop(0)[0])
            elif move == "abandon" and held:
                sent.append(held.pop(0))  # its connection may still be sending it
                parameters.abandon(sent[-1][0])
            elif move == "upload":
                buffer = parameters.pool.take(4 * small.SIZE)
                buffer[:] = bytes([7]) * len(buffer)
                parameters.pool.give(buffer)
            elif move == "back":
                version = Version(incarnation=parameters.version.incarnation + 1, count=0)
                await parameters.go_back(saved, version)
            elif move == "save":
                saved, _ = await parameters.save(lambda: None)
            for snapshot, version, vector in (*held, *sent):
                assert snapshot.version == version
                assert np.array_equal(snapshot.vector, vector)
            assert parameters.pool.taken == parameters.pinned <= len(held)
        for snapshot, _, _ in held:
            parameters.release(snapshot)
        assert parameters.pinned == 0

    asyncio.run(go())


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
        assert (parameters.pinned, parameters.pool.taken) == (1, 1)
    assert (parameters.pinned, parameters.pool.taken) == (0, 0)


@asynchronous
async def test_there_are_never_more_old_ones_than_receivers() -> None:
    parameters = small.training().parameters
    async with contextlib.AsyncExitStack() as slow:
        for _ in range(5):
            for _ in range(2):
                await slow.enter_async_context(parameters.published())
            await step(parameters)
        async with parameters.published():
            assert parameters.pinned == parameters.pool.taken == 5
    assert (parameters.pinned, parameters.pool.taken) == (0, 0)
    assert parameters.pool.spare == 4, "all but the memory it began in"


@asynchronous
async def test_memory_is_nobody_elses_before_the_state_has_left_it() -> None:
    parameters = small.training().parameters
    parameters.release(parameters.publish_at_once())
    await step(parameters)
    snapshot, at_work = parameters.publish_at_once(), parameters._do
    await step(parameters)  # the state is in the pool's memory now
    snapshot, before = parameters.publish_at_once(), snapshot

    async def slowly(work: Callable[[], None]) -> None:
        parameters.release(snapshot)  # its last receiver is through before we begin
        taken = parameters.pool.take(4 * small.SIZE)
        taken[:] = bytes(len(taken))
        await at_work(work)

    parameters._do = slowly  # type: ignore[method-assign]
    expected = parameters._state - ONES
    await step(parameters)
    assert np.array_equal(parameters._state, expected)
    parameters.release(before)


@asynchronous
async def test_a_copy_broken_off_is_nobodys() -> None:
    """Whoever asks next gets a whole one: a thread may still be writing to the other."""
    parameters = small.training(recipe=COPIED).parameters
    async with parameters.published() as first:
        pass
    await step(parameters)
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
    pool = BufferPool(100, keep=3)
    taken = [pool.take(100) for _ in range(3)] + [pool.take(60)]
    assert [len(buffer) for buffer in taken] == [100, 100, 100, 60]
    assert pool.taken == 4
    for buffer in taken[:3]:
        pool.give(buffer)
    assert (pool.taken, pool.spare) == (1, 2), "three at most, with the one in use"
    pool.give(taken[3])
    assert (pool.taken, pool.spare) == (0, 3)
    again = pool.take(100)
    assert again.obj is taken[3].obj, "also where only part of it was used"
    pool.forget(1)
    assert pool.taken == 0
