"""The clock that jumps."""

from __future__ import annotations

import asyncio
import threading

import pytest

from crowdgrad.net.messages import Leave
from crowdgrad.net.transport.inproc import pair
from crowdgrad.simulator.virtual_time import Node
from tests.virtual_time import Deadlock, VirtualLoop, run_virtual


def test_hours_pass_at_once_and_in_order() -> None:
    story: list[str] = []

    async def wait(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        story.append(name)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.gather(wait(7200, "late"), wait(0.1, "soon"), wait(3600, "later"))
        return loop.time() - start

    assert run_virtual(main()) == pytest.approx(7200)
    assert story == ["soon", "later", "late"]


def test_timeouts_fire_and_nothing_to_wait_for_is_named() -> None:
    async def times_out() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await asyncio.Event().wait()

    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def never_ends() -> None:
        while True:  # noqa: ASYNC110 (that is the point)
            await asyncio.sleep(3600)

    run_virtual(times_out())
    with pytest.raises(Deadlock, match="nobody to wake us"):
        run_virtual(waits_for_ever())
    with pytest.raises(Deadlock, match="still not over"):
        run_virtual(never_ends())


def test_connections_inside_the_process_keep_virtual_time() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        first, second = pair(there=lambda message: (90.0,))
        start = loop.time()
        await first.send(Leave(reason="note"))
        sent = loop.time()
        assert await second.receive() == (Leave(reason="note"), b"")
        return sent - start, second.heard_at - start

    assert run_virtual(main()) == (0.0, 90.0)


def test_there_are_no_threads_and_their_work_takes_virtual_time() -> None:
    loop = VirtualLoop()
    loop.thread_s = lambda: 5.0

    async def main() -> tuple[int, float, bool]:
        start, here = loop.time(), threading.get_ident()
        there = await asyncio.to_thread(threading.get_ident)
        return len(asyncio.all_tasks()), loop.time() - start, there == here

    assert run_virtual(main(), loop=loop) == (1, 5.0, True)


def test_a_frozen_machine_does_nothing_and_then_all_it_missed() -> None:
    loop, story = VirtualLoop(), []

    async def count(name: str) -> None:
        for number in range(3):
            await asyncio.sleep(1.0)
            story.append((name, number, loop.now))

    async def main() -> None:
        start, one, other = loop.now, Node("one"), Node("other")
        tasks = [one.spawn(count("one")), other.spawn(count("other"))]
        await asyncio.sleep(0.5)
        loop.freeze(one)
        await asyncio.sleep(9.5)
        assert [(name, number) for name, number, _ in story] == [("other", n) for n in range(3)]
        loop.thaw(one)
        await asyncio.gather(*tasks)
        assert [at - start for name, _, at in story if name == "one"] == [10.0, 11.0, 12.0]

    run_virtual(main(), loop=loop)


def test_every_machine_has_its_own_clock() -> None:
    loop = VirtualLoop()

    async def look() -> tuple[float, float]:
        before = loop.time()
        async with asyncio.timeout(3.0):
            await asyncio.sleep(2.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3.0):
                await asyncio.sleep(4.0)
        return before, loop.time() - before

    async def main() -> None:
        node = Node("ahead")
        node.offset_s = 5000.0
        start = loop.now
        assert await node.spawn(look()) == (start + 5000.0, 5.0)
        assert loop.time() == start + 5.0

    run_virtual(main(), loop=loop)


def test_what_was_to_run_on_a_thread_of_a_dead_machine_does_not() -> None:
    loop, done = VirtualLoop(), []
    loop.thread_s = lambda: 1.0

    async def work(name: str) -> None:
        await asyncio.to_thread(done.append, name)

    async def main() -> None:
        dead, alive = Node("dead"), Node("alive")
        tasks = [dead.spawn(work("dead")), alive.spawn(work("alive"))]
        await asyncio.sleep(0.5)
        dead.kill()
        tasks[1].cancel()  # nobody waits for it any more: a thread goes on all the same
        await asyncio.sleep(1.0)
        assert all(task.cancelled() for task in tasks)

    run_virtual(main(), loop=loop)
    assert done == ["alive"]
