"""A server for strangers: places are counted, what begins has to end, and refusals are readable."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest
from fastapi import FastAPI, Request, WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from crowdgrad.net.addresses import Proxies
from crowdgrad.net.gate import MOST_TOLD
from crowdgrad.net.http import HttpLimits, HttpServer, take_descriptors
from crowdgrad.net.ports import bind
from crowdgrad.process import new_event_loop

LOOPS = [asyncio.new_event_loop, new_event_loop]
GET = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = (
    b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def app() -> FastAPI:
    made = FastAPI()

    @made.get("/hello")
    async def hello() -> str:
        return "hi"

    @made.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())

    @made.websocket("/echo")
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        while (said := await socket.receive())["type"] != "websocket.disconnect":
            await socket.send_text(str(said.get("text")))

    return made


@contextlib.asynccontextmanager
async def serving(limits: HttpLimits) -> AsyncIterator[HttpServer]:
    server = HttpServer(
        app(), bind("127.0.0.1", 0), max_message_bytes=1000, limits=limits, random01=lambda: 0.5
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass
class Caller:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def rest(self) -> bytes:
        """All that is said until the other side hangs up, rudely or not."""
        heard = b""
        with contextlib.suppress(ConnectionError):
            while part := await self.reader.read(1 << 16):
                heard += part
        return heard

    async def ask(self, request: bytes = GET) -> tuple[str, str]:
        """Status line and body of the next answer."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.decode().lower().splitlines()
        length = next(int(line.split()[1]) for line in lines if line.startswith("content-length"))
        return lines[0], (await self.reader.readexactly(length)).decode()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def call(server: HttpServer) -> Caller:
    host, port = server.address.split(":")
    return Caller(*await asyncio.open_connection(host, int(port)))


async def settled(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def run(
    scenario: Callable[[HttpServer], Awaitable[None]],
    limits: HttpLimits,
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        async with serving(limits) as server:
            await scenario(server)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


@pytest.mark.parametrize("factory", LOOPS)
def test_who_comes_when_no_descriptor_is_left_is_heard_later(
    factory: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: HttpServer) -> None:
        loop = asyncio.get_running_loop()
        host, port = server.address.split(":")
        with socket.socket() as caller:
            caller.setblocking(False)
            with no_descriptor_left():
                await loop.sock_connect(caller, (host, int(port)))
                await loop.sock_sendall(caller, GET)
                await settled(lambda: "no connection can be accepted" in caplog.text)
            assert (await loop.sock_recv(caller, 1000)).startswith(b"HTTP/1.1 200")
        assert len(caplog.records) < 20  # not once in every turn of the loop

    run(scenario, HttpLimits(), factory)


@pytest.mark.parametrize("factory", LOOPS)
def test_an_upgrade_that_websockets_do_not_take_is_answered_and_keeps_no_seat(
    factory: Callable,
) -> None:
    many = b"".join(b"A%d: b\r\n" % number for number in range(150))

    async def scenario(server: HttpServer) -> None:
        caller = await call(server)
        caller.writer.write(UPGRADE + many + b"\r\n")
        assert (await caller.rest()).startswith(b"HTTP/1.1 4")
        assert server.gate is not None
        await settled(lambda: server.gate.here == 0)
        await caller.close()

    run(scenario, HttpLimits(), factory)


@pytest.mark.parametrize("factory", LOOPS)
def test_it_stops_while_somebody_hangs_up_who_reads_nothing(factory: Callable) -> None:
    ping = b"\x89\xfd" + bytes(4) + bytes(125)
    close = b"\x88\x82" + bytes(4) + (1000).to_bytes(2, "big")

    async def scenario(server: HttpServer) -> None:
        loop = asyncio.get_running_loop()
        host, port = server.address.split(":")

        def unread() -> int:
            here = server.server_state.connections
            return sum(one.transport.get_write_buffer_size() for one in here)

        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            caller.setblocking(False)
            await loop.sock_connect(caller, (host, int(port)))
            await loop.sock_sendall(caller, UPGRADE + b"\r\n")
            async with asyncio.timeout(20):
                while not unread():
                    await loop.sock_sendall(caller, ping)
                    await asyncio.sleep(0)
            await loop.sock_sendall(caller, close)
            await settled(
                lambda: any(one.transport.is_closing() for one in server.server_state.connections)
            )
            await server.stop()
        assert server.gate is not None
        await settled(lambda: server.gate.here == 0)

    run(scenario, HttpLimits(), factory)


@pytest.mark.parametrize("factory", LOOPS)
def test_ordinary_requests_are_answered_on_one_connection(factory: Callable) -> None:
    async def scenario(server: HttpServer) -> None:
        caller = await call(server)
        for _ in range(3):
            assert await caller.ask() == ("http/1.1 200 ok", '"hi"')
        post = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
        assert await caller.ask(post) == ("http/1.1 200 ok", "5")
        assert server.gate is not None
        assert server.gate.here == 1
        await caller.close()
        await settled(lambda: server.gate is not None and server.gate.here == 0)

    run(scenario, HttpLimits(), factory)


@pytest.mark.parametrize("factory", LOOPS)
@pytest.mark.parametrize(
    "limits", [HttpLimits(connections=3), HttpLimits(per_address=3)], ids=["in all", "by address"]
)
def test_beyond_the_limit_one_is_told_when_to_come_again(
    limits: HttpLimits, factory: Callable
) -> None:
    async def scenario(server: HttpServer) -> None:
        here = [await call(server) for _ in range(3)]
        for caller in here:
            assert (await caller.ask())[1] == '"hi"'
        refused = await call(server)
        refused.writer.write(GET)
        head, _, body = (await refused.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 6" in head
        assert json.loads(body)["code"] == "CG506"
        await refused.close()
        await here.pop().close()
        assert server.gate is not None
        await settled(lambda: server.gate is not None and server.gate.here == 2)
        late = await call(server)
        assert (await late.ask())[1] == '"hi"'
        assert (server.gate.here, server.gate.told, server.gate.turned_away) == (3, 0, 1)
        for caller in (*here, late):
            await caller.close()

    run(scenario, limits, factory)


@pytest.mark.parametrize("factory", LOOPS)
def test_websockets_keep_the_seat_they_came_with(factory: Callable) -> None:
    async def scenario(server: HttpServer) -> None:
        url = f"ws://{server.address}/echo"
        async with connect(url) as one, connect(url) as two:
            await one.send("a")
            await two.send("b")
            assert (await one.recv(), await two.recv()) == ("a", "b")
            assert server.gate is not None
            assert server.gate.here == 2
            with pytest.raises(InvalidStatus) as refused:
                await connect(url)
            assert refused.value.response.status_code == 503
            assert refused.value.response.headers["Retry-After"] == "6"
        await settled(lambda: server.gate is not None and server.gate.here == 0)
        caller = await call(server)  # a handshake that fails gives its seat back too
        caller.writer.write(
            b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        assert (await caller.rest()).startswith(b"HTTP/1.1 400 ")
        await caller.close()
        await settled(lambda: server.gate is not None and server.gate.here == 0)

    run(scenario, HttpLimits(connections=2), factory)


@pytest.mark.parametrize("factory", LOOPS)
def test_behind_a_proxy_those_it_speaks_for_are_counted(factory: Callable) -> None:
    async def scenario(server: HttpServer) -> None:
        url = f"ws://{server.address}/echo"

        def of(address: str) -> connect:
            return connect(url, additional_headers={"X-Forwarded-For": address})

        async with of("198.51.100.1"), of("198.51.100.2"), of("198.51.100.3"):
            with pytest.raises(InvalidStatus) as refused:
                await of("198.51.100.1")
            assert refused.value.response.status_code == 503
            await settled(lambda: server.gate is not None and server.gate.here == 3)
        await settled(lambda: server.gate is not None and server.gate.here == 0)
        async with of("198.51.100.1"):
            assert server.gate is not None
            assert server.gate.here == 1

    run(scenario, HttpLimits(per_address=1, proxies=Proxies(["127.0.0.1"])), factory)


@pytest.mark.parametrize("factory", LOOPS)
@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"", b"head"),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nX-A: ", b"head"),
        (b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123", b"body"),
        (b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", b"body"),
    ],
)
def test_what_is_begun_has_to_end(sent: bytes, what: bytes, factory: Callable) -> None:
    async def scenario(server: HttpServer) -> None:
        caller = await call(server)
        caller.writer.write(sent)
        heard = await caller.rest()
        assert heard.startswith(b"HTTP/1.1 408 ")
        assert b"The " + what + b" of your request" in heard
        await caller.close()
        await settled(lambda: server.gate is not None and server.gate.here == 0)

    run(scenario, HttpLimits(header_s=0.2, body_s=0.2), factory)


def test_trickling_does_not_help() -> None:
    async def scenario(server: HttpServer) -> None:
        caller = await call(server)
        assert (await caller.ask())[1] == '"hi"'  # nor does having asked something before

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    caller.writer.write(b"G")
                    await caller.writer.drain()
                    await asyncio.sleep(0.01)

        trickling = asyncio.create_task(trickle())
        assert (await caller.rest()).startswith((b"HTTP/1.1 408 ", b""))
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)
        await caller.close()
        await settled(lambda: server.gate is not None and server.gate.here == 0)

    run(scenario, HttpLimits(header_s=0.3), new_event_loop)


def test_a_body_nobody_reads_has_to_end_as_well() -> None:
    async def scenario(server: HttpServer) -> None:
        caller = await call(server)
        length = b"GET /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        assert (await caller.ask(length))[1] == '"hi"'

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    caller.writer.write(b"x")
                    await caller.writer.drain()
                    await asyncio.sleep(0.01)

        trickling = asyncio.create_task(trickle())
        assert await caller.rest() == b""  # there is one answer to a request
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)
        await caller.close()

    run(scenario, HttpLimits(body_s=0.3), new_event_loop)


def test_requests_sent_behind_one_another_are_all_minded() -> None:
    async def scenario(server: HttpServer) -> None:
        caller = await call(server)
        begun = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
        assert (await caller.ask(GET + GET + begun))[1] == '"hi"'
        assert (await caller.ask(b""))[1] == '"hi"'
        assert (await caller.rest()).startswith(b"HTTP/1.1 408 ")
        await caller.close()

    run(scenario, HttpLimits(body_s=0.2), new_event_loop)


@pytest.mark.parametrize("factory", LOOPS)
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nX-Large: " + b"a" * (1 << 20) + b"\r\n\r\n", b"431"),
        (b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n", b"400"),
        (b"\x00" * 100 + b"\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),  # HTTP/1.1 says which host is meant
        (GET[:-2] + b"Content-Length: -1\r\n\r\n", b"400"),
    ],
)
def test_nonsense_gets_an_answer_that_can_be_read(
    sent: bytes, status: bytes, factory: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: HttpServer) -> None:
        caller = await call(server)
        caller.writer.write(sent)
        head, _, body = (await caller.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status)
        assert json.loads(body)["code"] == "CG503"
        await caller.close()
        late = await call(server)
        assert (await late.ask())[1] == '"hi"'
        await late.close()

    run(scenario, HttpLimits(), factory)
    assert not caplog.records


def test_rubbish_in_the_middle_of_a_body_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(server: HttpServer) -> None:
        for path in (b"/body", b"/hello"):  # one reads it, one has answered already
            caller = await call(server)
            verb = b"POST " if path == b"/body" else b"GET "
            caller.writer.write(
                verb + path + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            await asyncio.sleep(0.05)
            caller.writer.write(b"zz\r\nrubbish\r\n")
            await caller.rest()
            await caller.close()
        gone = await call(server)
        gone.writer.write(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123")
        await asyncio.sleep(0.05)
        await gone.close()
        await settled(lambda: server.gate is not None and server.gate.here == 0)

    run(scenario, HttpLimits(), new_event_loop)
    assert not caplog.records


def test_a_crowd_beyond_the_limit_is_not_told_all_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: HttpServer) -> None:
        first = await call(server)
        assert (await first.ask())[1] == '"hi"'
        crowd = [await call(server) for _ in range(2 * MOST_TOLD)]
        for caller in crowd:
            caller.writer.transport.pause_reading()  # they do not even read it
        assert server.gate is not None
        assert server.gate.told <= MOST_TOLD
        assert server.gate.here == 1
        await settled(lambda: server.gate is not None and server.gate.told == 0)
        for caller in (first, *crowd):
            await caller.close()

    run(scenario, HttpLimits(connections=1), new_event_loop)
    assert not caplog.records


def test_websocket_messages_that_are_none(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: HttpServer) -> None:
        url = f"ws://{server.address}/echo"
        async with connect(url) as socket:
            await socket.send(b"\xff\xfe", text=True)
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1007
        async with connect(url) as socket:
            with contextlib.suppress(ConnectionClosed):
                await socket.send([""] * 5000)
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
        async with connect(url) as socket:
            await socket.send("x" * 2000)
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
        await settled(lambda: server.gate is not None and server.gate.here == 0)

    run(scenario, HttpLimits(), new_event_loop)
    assert not caplog.records


def test_who_leaves_pongs_unread_is_dropped() -> None:
    async def scenario(server: HttpServer) -> None:
        caller = await call(server)
        caller.writer.write(
            b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        await caller.reader.readuntil(b"\r\n\r\n")
        caller.writer.transport.pause_reading()
        ping = b"\x89\xfd\0\0\0\0" + b"p" * 125
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(30):
                while True:
                    caller.writer.write(ping * 500)
                    await caller.writer.drain()
        await settled(lambda: server.gate is not None and server.gate.here == 0)
        caller.writer.transport.abort()

    run(scenario, HttpLimits(), new_event_loop)


def test_descriptors_are_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    had = take_descriptors()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == had
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1000, 1000))

    async def main() -> None:
        async with serving(HttpLimits(connections=5000)) as server:
            assert server.gate is not None
            assert server.gate.limits.connections == 1000 - 256
        async with serving(HttpLimits(connections=10)) as server:
            assert server.gate is not None
            assert server.gate.limits.connections == 10

    asyncio.run(main())


def test_limits_are_limits() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        HttpLimits(connections=0)
