"""Names become addresses before anybody is dialled; ways to write an address become one, too."""

from __future__ import annotations

import asyncio
import threading

import pytest

from crowdgrad.errors import Unreachable
from crowdgrad.net.resolve import addresses, in_own_thread


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("192.168.1.1", "192.168.1.1"),
        ("::1", "::1"),
        ("2130706433", "127.0.0.1"),  # the same as one number
        ("0", "0.0.0.0"),
    ],
)
def test_however_an_address_is_written_it_is_one(name: str, found: str) -> None:
    assert asyncio.run(addresses(name)) == (found,)


@pytest.mark.parametrize("name", ["no.such.name.invalid", "x" * 300])
def test_a_name_that_nobody_knows_cannot_be_reached(name: str) -> None:
    with pytest.raises(Unreachable):
        asyncio.run(addresses(name))


def test_what_a_call_in_a_thread_of_its_own_gives_or_raises_is_told() -> None:
    def fails() -> int:
        raise ValueError("so it is")

    async def main() -> None:
        assert (
            await in_own_thread(threading.current_thread, "some-call")
            is not threading.main_thread()
        )
        with pytest.raises(ValueError, match="so it is"):
            await in_own_thread(fails, "some-call")

    asyncio.run(main())


def test_a_call_that_lasts_keeps_nobody_from_leaving() -> None:
    stuck = threading.Event()

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await in_own_thread(stuck.wait, "stuck-call")

    asyncio.run(main())  # the loop closes, and the threads still hang
    left = [thread for thread in threading.enumerate() if thread.name == "stuck-call"]
    assert [thread.daemon for thread in left] == [True, True]
    stuck.set()
    for thread in left:
        thread.join(30)
        assert not thread.is_alive()
