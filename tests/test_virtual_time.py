"""The clock that jumps."""

from __future__ import annotations

import asyncio
import time

import pytest

from crowdgrad.net.messages import Leave
from crowdgrad.net.transport.inproc import pair
from tests.virtual_time import Deadlock, run_virtual


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


def test_the_clock_stands_still_while_another_thread_works() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.timeout(0.005):
            await asyncio.to_thread(time.sleep, 0.05)
        return loop.time() - start

    assert run_virtual(main()) == 0.0
