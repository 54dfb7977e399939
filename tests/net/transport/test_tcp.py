"""TCP keeps the contract on both event loops, and answers strangers' bytes politely."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
import pytest
import uvloop

from crowdgrad.errors import ConnectionLost, FrameError, SettingError, Unreachable, VersionMismatch
from crowdgrad.net.framing import HEADER_BYTES, pack, unpack
from crowdgrad.net.messages import PROTOCOL, Exchange, Heartbeat, Join, Problem, decode
from crowdgrad.net.transport import tcp
from crowdgrad.net.transport.base import Connection, Listener, OnConnection
from tests.contracts.transport_contract import TransportContract

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_with(factory: LoopFactory, main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


class TcpContract(TransportContract):
    large_bytes = 30_000_128
    loop_factory: LoopFactory

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return run_with(type(self).loop_factory, main)

    async def listen(self, host: str, port: int, handler: OnConnection) -> Listener:
        return await tcp.listen(host, port, handler)

    async def connect(self, host: str, port: int) -> Connection:
        return await tcp.connect(host, port)


class TestPlainAsyncio(TcpContract):
    loop_factory = asyncio.SelectorEventLoop


class TestUvloop(TcpContract):
    loop_factory = staticmethod(uvloop.new_event_loop)


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uv"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory:
    return request.param  # type: ignore[no-any-return]


async def tell(data: bytes) -> tuple[Exception, bytes]:
    """What the handler's `receive` raises when a stranger sends bytes, and what the stranger hears
    until the connection ends."""
    heard: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def handler(connection: Connection) -> None:
        try:
            while True:
                await connection.receive()
        except Exception as error:
            heard.set_result(error)

    listener = await tcp.listen("127.0.0.1", 0, handler)
    reader, writer = await asyncio.open_connection(*listener.address)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    await listener.close()
    return await heard, answer


def problem_in(answer: bytes) -> Problem:
    message = decode(unpack(answer[:HEADER_BYTES]).kind, answer[HEADER_BYTES:])
    assert isinstance(message, Problem)
    return message


def test_a_browser_that_wanders_in_is_told(loop_factory: LoopFactory) -> None:
    error, answer = run_with(loop_factory, tell(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    assert isinstance(error, FrameError)
    assert "b'GET '" in error.message
    assert problem_in(answer).advice == "Check the address and port."


def test_a_peer_of_another_version_is_told_what_to_update(loop_factory: LoopFactory) -> None:
    frame = bytearray(pack(Heartbeat()))
    frame[4] = PROTOCOL[0] + 1
    error, answer = run_with(loop_factory, tell(bytes(frame)))
    assert isinstance(error, VersionMismatch)
    assert "pip install -U crowdgrad" in problem_in(answer).advice


def test_a_strangers_long_words_are_not_repeated_to_him(loop_factory: LoopFactory) -> None:
    body = {"volunteer": {"id": "a", "name": "\x1b" * 500_000, "cores": 1, "memory_mb": 1}}
    body["volunteer"] |= {"engine": "", "software": ""}
    encoded = msgspec.msgpack.encode(body | {"key": b"", "signature": b""})
    header = pack(Heartbeat())[:HEADER_BYTES]
    fields = bytearray(header[:20])
    fields[6:8] = Join.kind.to_bytes(2, "little")
    fields[8:12] = len(encoded).to_bytes(4, "little")
    frame = bytes(fields) + zlib.crc32(fields).to_bytes(4, "little") + encoded
    error, answer = run_with(loop_factory, tell(frame))
    assert error.__class__.__name__ == "MessageError"
    assert len(answer) < 2000
    assert "Join" in problem_in(answer).message


def test_a_peer_that_closes_but_never_reads_does_not_hold_a_sender(
    loop_factory: LoopFactory,
) -> None:
    async def main() -> None:
        sending: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        async def handler(connection: Connection) -> None:
            try:
                while True:
                    await connection.send(Exchange(), bytes(1 << 20))
            except ConnectionLost as error:
                sending.set_result(error)

        listener = await tcp.listen("127.0.0.1", 0, handler)
        stranger = socket.create_connection(listener.address)
        await asyncio.sleep(0.05)
        stranger.shutdown(socket.SHUT_WR)
        error = await sending
        assert "other side closed" in str(error)
        stranger.close()
        await listener.close()

    run_with(loop_factory, main())


@pytest.mark.parametrize(
    ("host", "port"), [("no such host", 1), ("a" * 70 + ".b", 1), ("127.0.0.1", 70_000)]
)
def test_an_address_that_is_none(loop_factory: LoopFactory, host: str, port: int) -> None:
    with pytest.raises(Unreachable, match="Nobody answers"):
        run_with(loop_factory, tcp.connect(host, port))


def test_a_port_that_is_none(loop_factory: LoopFactory) -> None:
    async def handler(connection: Connection) -> None:
        await connection.receive()

    with pytest.raises(SettingError):
        run_with(loop_factory, tcp.listen("127.0.0.1", 70_000, handler))


def test_too_many_connections_are_turned_away_with_the_reason(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "MAX_CONNECTIONS", 1)

    async def main() -> None:
        async def handler(connection: Connection) -> None:
            try:
                while True:
                    await connection.send((await connection.receive())[0])
            finally:
                left.set()

        left = asyncio.Event()
        listener = await tcp.listen("127.0.0.1", 0, handler)
        first = await tcp.connect(*listener.address)
        await first.send(Heartbeat())
        await first.receive()
        second = await tcp.connect(*listener.address)
        problem, _ = await second.receive()
        assert isinstance(problem, Problem)
        assert problem.code == "CG506"
        await second.wait_closed()
        first.close()
        await left.wait()
        third = await tcp.connect(*listener.address)
        await third.send(Heartbeat())
        assert (await third.receive())[0] == Heartbeat()
        third.close()
        await third.wait_closed()
        await listener.close()

    run_with(loop_factory, main())
