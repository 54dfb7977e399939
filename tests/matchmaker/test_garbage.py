"""What is left behind is found, sooner or later; and sockets leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
from websockets.asyncio.client import connect
from websockets.server import ServerProtocol

from crowdgrad.matchmaker.app import create_service
from crowdgrad.matchmaker.connection import SocketConnection
from crowdgrad.matchmaker.garbage import in_small_looks
from crowdgrad.net import rooms
from crowdgrad.net.guarded import GuardedHttp, GuardedSocket
from crowdgrad.net.http import HttpLimits, HttpServer
from crowdgrad.net.ports import bind
from crowdgrad.process import new_event_loop
from crowdgrad.store.memory import MemoryStore

OF_A_SOCKET = (GuardedHttp, GuardedSocket, ServerProtocol, SocketConnection)


class Ring:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    assert gc.isenabled()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_what_is_new_is_found_without_pythons_own_looks() -> None:
    async def scenario() -> None:
        with in_small_looks(0.01):
            assert not gc.isenabled()
            seen = weakref.ref(Ring())
            await until(lambda: seen() is None)

    asyncio.run(scenario())


def test_what_is_old_is_found_when_everything_is_looked_at() -> None:
    async def scenario() -> None:
        with in_small_looks(0.01, everything_every_s=0.5):
            old = Ring()
            gc.collect(1)  # now it is one of the old ones
            seen = weakref.ref(old)
            del old
            await until(lambda: seen() is None)

    asyncio.run(scenario())


def test_a_socket_that_ends_leaves_nothing_for_the_collector() -> None:
    service = create_service(MemoryStore())

    async def scenario() -> None:
        server = HttpServer(
            service.app,
            bind("127.0.0.1", 0),
            max_message_bytes=rooms.MAX_REQUEST_BYTES,
            limits=HttpLimits(),
        )
        await server.start()
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                where = f"ws://{server.address}/v1/volunteers/{'a' * 16}/presence"
                async with connect(where, proxy=None) as ws:
                    await ws.send("{}")
                    await ws.wait_closed()
            await until(lambda: not any(type(o) in OF_A_SOCKET for o in gc.get_objects()))
        finally:
            gc.enable()
            await server.stop()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(scenario())
