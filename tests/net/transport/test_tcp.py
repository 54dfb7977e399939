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

from crowdgrad.errors import (
    ConnectionLost,
    FrameError,
    MessageError,
    PeerError,
    SettingError,
    TurnedAway,
    Unreachable,
    VersionMismatch,
)
from crowdgrad.net.framing import HEADER_BYTES, pack, unpack
from crowdgrad.net.messages import PROTOCOL, Exchange, Heartbeat, Join, Leave, Problem, decode
from crowdgrad.net.transport import stream, tcp
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


def join_of(name: str) -> bytes:
    """A Join frame such as we would never make."""
    volunteer = {"id": "a", "name": name, "cores": 1, "memory_mb": 1, "engine": "", "software": ""}
    body = msgspec.msgpack.encode({"volunteer": volunteer, "key": b"", "signature": b""})
    fields = bytearray(pack(Heartbeat())[:20])
    fields[6:8] = Join.kind.to_bytes(2, "little")
    fields[8:12] = len(body).to_bytes(4, "little")
    return bytes(fields) + zlib.crc32(fields).to_bytes(4, "little") + body


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
    error, answer = run_with(loop_factory, tell(join_of("\x1b" * 15_000)))
    assert isinstance(error, MessageError)
    assert len(answer) < 2000
    problem = problem_in(answer)
    assert "Join message does not make sense" in problem.message
    assert "\x1b" not in problem.message


def test_a_strangers_book_is_not_even_read(loop_factory: LoopFactory) -> None:
    frame = join_of("a" * 500_000)
    error, answer = run_with(loop_factory, tell(frame))
    assert isinstance(error, FrameError)
    assert f"a body of {len(frame) - HEADER_BYTES} bytes" in error.message
    assert problem_in(answer).code == FrameError.code


def test_refusing_reads_on_so_that_nothing_unread_resets_the_connection(
    loop_factory: LoopFactory,
) -> None:
    async def main() -> None:
        reading: list[bool] = []
        gone = asyncio.Event()

        async def handler(connection: Connection) -> None:
            assert isinstance(connection, tcp.TcpConnection)
            assert connection._transport is not None
            connection.set_sink(lambda message, length: memoryview(bytearray(length)))
            await connection.send(Leave(reason="go on"))
            while connection._transport.is_reading():  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.01)
            connection.refuse(TurnedAway("The job is over."))
            reading.append(connection._transport.is_reading())
            await connection.wait_closed()
            gone.set()

        async def speak(near: Connection) -> None:
            while True:
                await near.send(Exchange(), bytes(1 << 16))

        listener = await tcp.listen("127.0.0.1", 0, handler)
        near = await tcp.connect(*listener.address)
        assert (await near.receive())[0] == Leave(reason="go on")
        speaking = asyncio.ensure_future(speak(near))
        problem, _ = await near.receive()
        assert isinstance(problem, Problem)
        assert problem.message == "The job is over."
        with pytest.raises(ConnectionLost):
            await speaking
        near.close()
        await near.wait_closed()
        await gone.wait()
        await listener.close()
        assert reading == [True]

    run_with(loop_factory, main())


def test_a_handler_that_fails_unexpectedly_says_so_without_the_details(
    loop_factory: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    served: list[Connection] = []

    async def handler(connection: Connection) -> None:
        served.append(connection)
        await connection.receive()
        raise RuntimeError("the secret is 42")

    async def main() -> Problem:
        listener = await tcp.listen("127.0.0.1", 0, handler)
        near = await tcp.connect(*listener.address)
        await near.send(Leave(reason="note"))
        problem, _ = await near.receive()
        with pytest.raises(ConnectionLost):
            await near.receive()
        await near.wait_closed()
        await served[0].wait_closed()
        await listener.close()
        assert isinstance(problem, Problem)
        return problem

    problem = run_with(loop_factory, main())
    assert problem == Problem(
        code=PeerError.code, message="Something went wrong here.", advice="Try again later."
    )
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
    assert "the secret is 42" in str(record.exc_info[1])


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
        await first.send(Leave(reason="note"))
        await first.receive()
        second = await tcp.connect(*listener.address)
        problem, _ = await second.receive()
        assert isinstance(problem, Problem)
        assert problem.code == "CG506"
        await second.wait_closed()
        first.close()
        await left.wait()
        third = await tcp.connect(*listener.address)
        await third.send(Leave(reason="note"))
        assert (await third.receive())[0] == Leave(reason="note")
        third.close()
        await third.wait_closed()
        await listener.close()

    run_with(loop_factory, main())


def test_a_listener_asks_for_as_many_open_files_as_it_takes_connections() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        tcp.allow_connections(700)
        most = before[1] if before[1] != resource.RLIM_INFINITY else 1 << 30
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(700 + tcp.OTHER_FILES, most)
        tcp.allow_connections(10)  # never fewer
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(700 + tcp.OTHER_FILES, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_large_payload_is_never_copied_by_the_loop(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the socket does not take at once stays where it is, whichever loop writes it."""
    monkeypatch.setattr(stream, "PART_BYTES", 1 << 16)
    monkeypatch.setattr(stream, "COPIED_PART_BYTES", 1 << 16)
    length = 8 << 20

    async def main() -> None:
        waiting: list[int] = []

        async def handler(connection: Connection) -> None:
            assert isinstance(connection, tcp.TcpConnection)
            transport = connection._transport
            assert transport is not None
            sending = asyncio.ensure_future(connection.send(Exchange(), memoryview(payload)))
            beating = asyncio.ensure_future(connection.send(Heartbeat()))
            await asyncio.sleep(0.05)  # nobody reads yet
            waiting.append(transport.get_write_buffer_size())
            assert connection.sent_bytes < length
            await connection.receive()
            await asyncio.gather(sending, beating)
            assert connection.sent_bytes > length
            await connection.receive()

        payload = bytes(range(256)) * (length // 256)
        listener = await tcp.listen("127.0.0.1", 0, handler)
        near = await tcp.connect(*listener.address)
        assert near._transport is not None
        near._transport.pause_reading()
        near.set_sink(lambda message, size: memoryview(bytearray(size)))
        await asyncio.sleep(0.1)
        await near.send(Leave(reason="go on"))
        near._transport.resume_reading()
        message, found = await near.receive()
        assert message == Exchange()
        assert bytes(found) == payload, "nobody else's frame came in between"
        await near.send(Leave(reason="thanks"))
        near.close()
        await near.wait_closed()
        await listener.close()
        assert waiting[0] <= stream.PART_BYTES

    run_with(loop_factory, main())


def test_others_have_their_turn_while_a_large_payload_is_sent(loop_factory: LoopFactory) -> None:
    """Also where the socket takes all it is given, because somebody reads it at once."""
    payload = bytes(8 << 20)

    async def main() -> None:
        turns = 0

        def count() -> None:
            nonlocal turns
            turns += 1
            counting[0] = loop.call_soon(count)

        async def handler(connection: Connection) -> None:
            connection.set_sink(lambda message, size: memoryview(bytearray(size)))
            await connection.receive()
            await connection.send(Leave(reason="thanks"))

        loop = asyncio.get_running_loop()
        listener = await tcp.listen("127.0.0.1", 0, handler)
        near = await tcp.connect(*listener.address)
        counting = [loop.call_soon(count)]
        await near.send(Exchange(), payload)
        assert turns >= len(payload) // stream.PART_BYTES
        counting[0].cancel()
        assert await near.receive() == (Leave(reason="thanks"), memoryview(b""))
        near.close()
        await listener.close()

    run_with(loop_factory, main())


async def unread(say: Callable[[Connection, asyncio.Task[None]], Any]) -> list[object]:
    """What is heard of somebody who sends a large payload, while nobody reads does what `say`
    does, and goes: what came, and the error at the end."""
    payload = bytes(range(256)) * (30 << 12)
    done = asyncio.Event()

    async def handler(connection: Connection) -> None:
        sending = asyncio.create_task(connection.send(Exchange(), payload))
        await asyncio.sleep(0.05)
        assert not sending.done()
        await say(connection, sending)
        done.set()
        await connection.wait_closed()
        await asyncio.gather(sending, return_exceptions=True)

    listener = await tcp.listen("127.0.0.1", 0, handler)
    near = await tcp.connect(*listener.address)
    assert near._transport is not None
    near._transport.pause_reading()
    near.set_sink(lambda message, size: memoryview(bytearray(size)))
    await done.wait()
    near._transport.resume_reading()
    heard: list[object] = []
    try:
        while True:
            message, found = await near.receive()
            assert len(found) in (0, len(payload))
            heard.append(message)
            if isinstance(message, Leave):
                near.close()
    except PeerError as error:
        heard.append(error)
    await listener.close()
    return heard


def test_a_last_word_comes_after_the_frame_that_was_being_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "REFUSE_GRACE_S", 30.0)

    async def say(connection: Connection, sending: asyncio.Task[None]) -> None:
        connection.refuse(TurnedAway("Not you."))

    frame, said, _ = run_with(uvloop.new_event_loop, unread(say))
    assert frame == Exchange()
    assert isinstance(said, Problem)
    assert said.message == "Not you."


def test_who_breaks_off_in_the_middle_of_a_frame_leaves_no_half_of_one(
    loop_factory: LoopFactory,
) -> None:
    async def say(connection: Connection, sending: asyncio.Task[None]) -> None:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        leave = connection.send(Leave(reason="on second thoughts"))
        more.append(asyncio.create_task(leave))  # nobody reads yet

    more: list[asyncio.Task[None]] = []
    heard = run_with(loop_factory, unread(say))
    assert isinstance(heard.pop(), ConnectionLost)
    # Plain asyncio would have to copy the rest: there the connection ends.
    whole = loop_factory is uvloop.new_event_loop
    assert heard == ([Exchange(), Leave(reason="on second thoughts")] if whole else [])
