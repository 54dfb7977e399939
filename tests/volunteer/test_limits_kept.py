"""What its owner allows is kept from the moment it is said, also by what runs already."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.domain.manners import Limits, Readings
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Blob
from crowdgrad.net.throttle import MEGABIT_BYTES
from crowdgrad.net.transport import tcp
from crowdgrad.net.transport.base import Connection
from crowdgrad.settings import Settings
from crowdgrad.volunteer import serve
from crowdgrad.volunteer.agent import Agent
from crowdgrad.volunteer.governor import Governor, limits_of
from crowdgrad.volunteer.journal import Journal
from crowdgrad.volunteer.metered import Manners
from crowdgrad.volunteer.tally import Tally
from crowdgrad.volunteer.visits import Visits


async def _unknown() -> Any:
    return "unknown"


def volunteer(home: Path, options: serve.Options) -> tuple[Agent, Governor, Manners]:
    settings = Settings(home=home)
    governor = Governor(limits_of(settings))
    manner = Manners("auto", lambda text: None, _unknown)
    visits = Visits(serve._owner(options, settings, None), Journal(home, lambda: 0.0), [])
    tally = Tally(None, lambda: 0.0)
    agent = serve._agent(
        options, settings, guest(), visits, tally, lambda event: None, manner, governor
    )
    return agent, governor, manner


BLOB = Blob(hash="0" * 64)
STEERED = serve.Options(target="127.0.0.1:1", announce=Path("work.json"))


def test_a_cap_that_is_set_later_holds_for_the_connections_there_are(tmp_path: Path) -> None:
    async def main() -> None:
        agent, governor, _ = volunteer(tmp_path, STEERED)
        arrived: asyncio.Queue[int] = asyncio.Queue()

        async def answer(connection: Connection) -> None:
            connection.set_sink(lambda message, length: memoryview(bytearray(length)))
            while True:
                _, payload = await connection.receive()
                arrived.put_nowait(len(payload))

        listener = await tcp.listen("127.0.0.1", 0, answer)
        dial: Any = agent._connect
        connection = await dial.open(*listener.address, **_caps(dial))
        await connection.send(BLOB, bytes(1 << 20))
        await asyncio.wait_for(arrived.get(), 30)
        governor.set_limits(Limits(most_upload_mbps=0.001, most_download_mbps=3.0))
        assert dial.up.bytes_per_s == 0.001 * MEGABIT_BYTES
        assert dial.down.bytes_per_s == 3.0 * MEGABIT_BYTES
        sending = asyncio.create_task(connection.send(BLOB, bytes(1 << 20)))
        await asyncio.wait({sending}, timeout=0.2)
        assert not sending.done(), "at this rate it takes two hours"
        governor.set_limits(Limits())
        await asyncio.wait_for(sending, 30)
        await asyncio.wait_for(arrived.get(), 30)
        connection.close()
        await listener.close()

    asyncio.run(main())


def _caps(dial: Any) -> dict[str, Any]:
    return {"up": dial.up, "down": dial.down}


def test_without_somebody_to_set_it_no_cap_costs_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        agent, _, _ = volunteer(tmp_path, serve.Options(target="127.0.0.1:1"))
        dial: Any = agent._connect
        assert (dial.up, dial.down) == (None, None)

    asyncio.run(main())


def test_memory_disk_and_rest_follow(tmp_path: Path) -> None:
    async def main() -> None:
        agent, governor, manner = volunteer(tmp_path, STEERED)
        sharing: Any = agent._sharing
        governor.set_limits(Limits(memory_mb=512, cache_mb=64))
        assert agent._memory_bytes == 512_000_000
        assert sharing.quota_bytes() == 64 << 20, "at once, whatever the disk is busy with"
        assert manner().gives
        governor.pause(None)
        assert not manner().gives
        governor.resume()
        assert manner().gives

    asyncio.run(main())


@pytest.mark.parametrize("broken", ["governor", "manners"])
def test_where_nobody_minds_the_machine_any_more_the_work_ends(broken: str) -> None:
    async def breaks() -> Any:
        raise RuntimeError("no such file")

    async def machine() -> Readings:
        return Readings(at=0.0, minute_of_day=0)

    async def main() -> None:
        read: Callable[[], Awaitable[Readings]] = breaks if broken == "governor" else machine
        governor = Governor(Limits(), read=read)
        metered = breaks if broken == "manners" else _unknown
        manner, stop = Manners("auto", lambda text: None, metered), asyncio.Event()
        async with serve._minded(governor, manner, stop):
            await asyncio.wait_for(stop.wait(), 30)

    with pytest.raises(RuntimeError, match="no such file"):
        asyncio.run(main())
