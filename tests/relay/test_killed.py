"""The real process killed: both ends notice, and go on at the one that takes its place."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from crowdgrad.domain.routes import route_of
from crowdgrad.errors import CrowdgradError, PeerError
from crowdgrad.net.messages import Leave
from crowdgrad.net.relayed import AtRelay
from crowdgrad.net.relaying import Calling, at_of
from crowdgrad.net.transport import tcp
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.layers import Layer
from tests.relay.running import Running
from tests.relay.world import CALLER, HOST, run


def test_killed_it_is_noticed_by_both_ends_and_they_meet_again(tmp_path: Path) -> None:
    async def main(relay: Running) -> None:
        route = route_of(f"relay:127.0.0.1:{relay.port}")
        changes: asyncio.Queue[tuple[bool, CrowdgradError | None]] = asyncio.Queue()
        ends: asyncio.Queue[PeerError] = asyncio.Queue()

        async def dial(layer: Layer) -> Connection:
            return await tcp.connect("127.0.0.1", relay.port, layer=layer)

        async def serve(layer: Layer) -> None:
            """Say everything twice."""
            connection = await dial(layer)
            try:
                while True:
                    said, _ = await connection.receive()
                    await connection.send(said)
                    await connection.send(said)
            except PeerError as error:
                await ends.put(error)
            finally:
                connection.close()

        at = AtRelay(
            route, HOST, open_control=dial, open_answer=serve, random01=lambda: 0.5,
            on_change=lambda: changes.put_nowait((at.connected, at.failure)),
        )  # fmt: skip
        keeping = asyncio.create_task(at.run())
        for again in (False, True):
            assert await changes.get() == (True, None)
            caller = await dial(Calling(HOST.id, CALLER, at=at_of(route)))
            await caller.send(Leave(reason="hello"))
            for _ in range(2):
                assert (await caller.receive())[0] == Leave(reason="hello")
            if again:
                caller.close()
                break
            await asyncio.to_thread(relay.kill)
            with pytest.raises(PeerError):
                await caller.receive()
            assert isinstance(await ends.get(), PeerError)
            connected, failure = await changes.get()
            assert (connected, isinstance(failure, CrowdgradError)) == (False, True)
            await asyncio.to_thread(relay.start)
            while not at.connected:
                await changes.get()
            changes.put_nowait((True, None))
        keeping.cancel()
        await asyncio.wait([keeping])

    with Running(tmp_path) as relay:
        run(main(relay))
