"""Connections inside one process keep the contract, in virtual time, and follow their routes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from crowdgrad.errors import PeerError
from crowdgrad.net.messages import GiveBack, Leave
from crowdgrad.net.transport.base import Connection, Listener, OnConnection
from crowdgrad.net.transport.inproc import InprocNetwork, pair
from tests.contracts.transport_contract import TransportContract
from tests.virtual_time import run_virtual

T = TypeVar("T")


class TestInproc(TransportContract):
    @pytest.fixture(autouse=True)
    def network(self) -> None:
        self._network = InprocNetwork()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return run_virtual(main)

    async def listen(self, host: str, port: int, handler: OnConnection) -> Listener:
        return await self._network.listen(host, port, handler)

    async def connect(self, host: str, port: int) -> Connection:
        return await self._network.connect(host, port)


def test_routes_lose_delay_and_double_frames() -> None:
    fates: dict[int, tuple[float, ...]] = {0: (), 1: (30.0,), 2: (0.0, 60.0)}

    async def main() -> list[tuple[int, float]]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        first, second = pair(there=lambda message: fates[message.unit])  # type: ignore[attr-defined]
        for number in fates:
            await first.send(GiveBack(unit=number, reason=""))
        arrived = []
        for _ in range(3):
            message, _payload = await second.receive()
            assert isinstance(message, GiveBack)
            arrived.append((message.unit, loop.time() - start))
        return arrived

    assert run_virtual(main()) == [(2, 0.0), (1, 30.0), (2, 60.0)]


def test_what_arrives_after_the_end_is_not_looked_at() -> None:
    async def main() -> None:
        first, second = pair(there=lambda message: (5.0,))
        await first.send(Leave(reason="note"))
        first.close()
        with pytest.raises(PeerError):
            await second.receive()
        await asyncio.sleep(10)
        with pytest.raises(PeerError):
            await second.receive()

    run_virtual(main())
