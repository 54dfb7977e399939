"""Strangers' names: looked up beside everything else, and not too many at a time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from crowdgrad.matchmaker.names import Names


def test_an_address_stands_for_itself_and_a_name_for_its_addresses() -> None:
    async def scenario() -> None:
        assert await Names().addresses("192.0.2.7") == ("192.0.2.7",)
        assert "127.0.0.1" in await Names().addresses("localhost")

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["", "no-such-name.invalid", "a" * 70, "a..b", "\udcff"])
def test_what_nobody_knows_stands_for_nothing(name: str) -> None:
    async def scenario() -> None:
        found = await Names().addresses(name)
        assert found == () or name == "", found

    asyncio.run(scenario())


def test_while_many_are_looked_up_no_other_is() -> None:
    began, go_on = threading.Semaphore(0), threading.Event()

    def slow(name: str) -> tuple[str, ...]:
        began.release()
        go_on.wait(30)
        return (name,)

    async def scenario() -> None:
        names = Names(slow, most=2)
        slow_ones = [asyncio.create_task(names.addresses(name)) for name in ("a", "b")]
        for _ in slow_ones:
            await asyncio.to_thread(began.acquire, timeout=30)
        assert await names.addresses("c") == ()
        slow_ones[0].cancel()
        await asyncio.gather(slow_ones[0], return_exceptions=True)
        assert await names.addresses("c") == (), "who does not wait does not end it"
        go_on.set()
        assert await slow_ones[1] == ("b",)
        while await names.addresses("c") != ("c",):  # noqa: ASYNC110 (a thread's last word)
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_lookup_that_outlives_the_loop_is_no_trouble() -> None:
    go_on = threading.Event()

    def slow(name: str) -> tuple[str, ...]:
        go_on.wait(30)
        return ()

    async def scenario() -> None:
        names = Names(slow)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await names.addresses("a")

    asyncio.run(scenario())
    (left,) = [thread for thread in threading.enumerate() if thread.name == "lookup"]
    go_on.set()
    left.join(30)
    assert not left.is_alive()
