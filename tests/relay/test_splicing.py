"""Bytes through a relay over real sockets: both ways, bounded, half closed, told when over."""

from __future__ import annotations

import asyncio
import random
import socket
import struct

import pytest
from websockets.asyncio.client import connect

from crowdgrad.net import relay_words as words
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Leave
from crowdgrad.net.relaying import Answering, Calling, Serving
from crowdgrad.net.transport import tcp
from crowdgrad.net.transport.layers import Stack
from crowdgrad.net.transport.websocket import TLS_INSIDE, Dialling
from crowdgrad.relay.pair import Pair
from crowdgrad.relay.serve import Relay
from crowdgrad.relay.wire import READ_BYTES
from tests.relay.world import (
    AT,
    CALLER,
    HOST,
    LOOPS,
    Dialler,
    Host,
    answer,
    call,
    relay,
    run,
    spliced,
    until,
)

every_loop = pytest.mark.parametrize("loop", LOOPS)
SOME = random.Random(1).randbytes(3_000_000)


async def send_all(dialler: Dialler, data: bytes) -> None:
    for at in range(0, len(data), 50_000):
        dialler.write(data[at : at + 50_000])
        await dialler.writer.drain()


def bound_system(pair: Pair) -> None:
    """Else it depends on the system how much it keeps for a slow reader."""
    pair.caller._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)


@every_loop
def test_bytes_go_both_ways_at_once_and_are_the_same(loop: str) -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            sending = asyncio.gather(send_all(theirs, SOME), send_all(ours, SOME[::-1]))
            assert await ours.reader.readexactly(len(SOME)) == SOME
            assert await theirs.reader.readexactly(len(SOME)) == SOME[::-1]
            await sending
            (pair,) = running.board.pairs
            assert (pair.to_host, pair.to_caller) == (len(SOME), len(SOME))
            for each in (theirs, ours, host):
                each.close()

    run(main(), loop)


@every_loop
def test_half_a_connection_may_be_closed_and_the_other_half_goes_on(loop: str) -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            ours.write(b"question")
            ours.writer.write_eof()
            assert await theirs.reader.read() == b"question", "all of it, then the end"
            await send_all(theirs, SOME)
            theirs.writer.write_eof()
            assert await ours.reader.read() == SOME
            await until(lambda: not running.board.pairs)
            assert running.board.events.ends == {"closed": 1}
            assert running.board.book.pairs.all == 0
            for each in (theirs, ours, host):
                each.close()

    run(main(), loop)


@every_loop
def test_a_slow_reader_stops_the_sender_and_costs_one_buffer(loop: str) -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host, receive_bytes=4096)
            (pair,) = running.board.pairs
            bound_system(pair)
            data = SOME * 2
            sending = asyncio.create_task(send_all(theirs, data))
            await until(lambda: pair.caller.kept > 0)
            assert not pair.host.listening
            most, got = 0, 0
            while got < len(data):
                got += len(await ours.reader.read(1 << 16))
                most = max(most, pair.caller.kept)
            await sending
            assert 0 < most <= READ_BYTES
            assert (pair.caller.kept, pair.host.listening) == (0, True)
            for each in (theirs, ours, host):
                each.close()

    run(main(), loop)


@every_loop
@pytest.mark.parametrize("who", ["host", "caller"])
def test_when_one_is_reset_the_other_gets_its_bytes_and_then_the_end(loop: str, who: str) -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            dying, living = (theirs, ours) if who == "host" else (ours, theirs)
            dying.write(b"last words")
            assert await living.reader.readexactly(10) == b"last words"
            sock = dying.writer.get_extra_info("socket")
            linger = struct.pack("ii", 1, 0)  # closing resets it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            dying.writer.transport.abort()
            assert await living.over() == b""
            await until(lambda: not running.board.pairs)
            assert set(running.board.events.ends) <= {f"{who}-gone", "closed"}
            living.close()
            host.close()
            await until(lambda: running.board.wires == 0)

    run(main(), loop)


@every_loop
def test_what_was_said_before_the_end_still_arrives_at_a_slow_reader(loop: str) -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host, receive_bytes=4096)
            sending = asyncio.create_task(send_all(theirs, SOME))
            got = await ours.reader.readexactly(1000)
            (pair,) = running.board.pairs
            await asyncio.gather(sending, _read_rest(ours, len(SOME) - 1000))
            theirs.writer.write_eof()
            assert await ours.reader.read() == b""
            assert got == SOME[:1000]
            ours.close()
            await until(lambda: not running.board.pairs)
            assert pair.to_caller == len(SOME)
            theirs.close()
            host.close()

    async def _read_rest(dialler: Dialler, count: int) -> None:
        assert await dialler.reader.readexactly(count) == SOME[1000:]

    run(main(), loop)


def test_a_pair_that_says_nothing_is_over_after_a_while() -> None:
    async def main() -> None:
        async with relay(idle_s=0.3) as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            assert await theirs.reader.read() == b""
            assert await ours.reader.read() == b""
            assert running.board.events.ends == {"idle": 1}
            for each in (theirs, ours, host):
                each.close()

    run(main())


def test_many_pairs_do_not_mix() -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            keys = [guest(str(number)) for number in range(20)]
            pairs = [await spliced(running, host, key) for key in keys]
            for number, (theirs, ours) in enumerate(pairs):
                theirs.write(f"to {number}.".encode() * 1000)
                ours.write(f"from {number}.".encode() * 1000)
            for number, (theirs, ours) in enumerate(pairs):
                text, back = f"to {number}.".encode() * 1000, f"from {number}.".encode() * 1000
                assert await ours.reader.readexactly(len(text)) == text
                assert await theirs.reader.readexactly(len(back)) == back
                theirs.close()
                ours.close()
            host.close()
            await until(lambda: running.board.wires == 0)

    run(main())


# -- by WebSocket -----------------------------------------------------------------------------


@every_loop
def test_a_caller_by_websocket_reaches_a_host_by_socket(loop: str) -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            url = f"ws://127.0.0.1:{running.port}/relay"
            calling = Stack(Dialling(url), Calling(HOST.id, CALLER, at=AT))
            dialling = asyncio.create_task(tcp.connect("127.0.0.1", running.port, layer=calling))
            layer = Answering(await host.knock())
            theirs = await tcp.connect("127.0.0.1", running.port, layer=layer)
            ours = await dialling
            for number in range(50):
                await ours.send(Leave(reason=f"nr {number}"))
                await theirs.send(Leave(reason=f"back {number}"))
            for number in range(50):
                assert (await theirs.receive())[0] == Leave(reason=f"nr {number}")
                assert (await ours.receive())[0] == Leave(reason=f"back {number}")
            ours.close()
            await asyncio.gather(ours.wait_closed(), theirs.wait_closed())
            await until(lambda: not running.board.pairs)
            assert running.board.events.ends == {"closed": 1}
            host.close()

    run(main(), loop)


def test_pings_are_answered_and_messages_bounded() -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            url = f"ws://127.0.0.1:{running.port}/relay"
            async with connect(
                url, subprotocols=[TLS_INSIDE], compression=None, ping_interval=None
            ) as web:
                await web.send(words.MAGIC + words.pack(words.Hi(version=1)))
                challenge = words.of_relay((await web.recv())[2:])  # type: ignore[arg-type]
                assert isinstance(challenge, words.Challenge)
                asked = words.call(CALLER, challenge.nonce, at=AT, host=HOST.id)
                await web.send(words.pack(asked))
                theirs = await answer(running, await host.knock())
                await theirs.hear(words.Spliced)
                assert await web.recv() == words.pack(words.Spliced())
                await (await web.ping())
                await web.send(SOME[:900_000])
                assert await theirs.reader.readexactly(900_000) == SOME[:900_000]
                theirs.write(SOME)
                got = b""
                while len(got) < len(SOME):
                    got += await web.recv()  # type: ignore[operator]
                assert got == SOME
                await web.send(bytes(2 << 20))
                assert await theirs.over() == b"", "more than a message may have"
            assert running.board.events.ends == {"caller-gone": 1}
            theirs.close()
            host.close()

    run(main())


async def flood(dialler: Dialler, data: bytes, running: Relay) -> None:
    """For as long as it is listened to. Raises ConnectionError."""
    board = running.board
    while True:
        dialler.write(data)
        await dialler.writer.drain()
        wires = [*board._guests, *board._leaving, *(host.wire for host in board._serving())]
        assert all(wire.kept < 1 << 20 for wire in wires)


@pytest.mark.parametrize("registers", [False, True])
def test_whoever_wants_pongs_and_reads_none_is_let_go(registers: bool) -> None:
    ping = b"\x89\xfd" + bytes(4 + 125)

    async def main() -> None:
        async with relay() as running:
            flooding = await Dialler.dial(running, greet=False, receive_bytes=4096)
            web = Dialling("ws://relay.example.org/")
            layer = Stack(web, Serving(HOST, at=AT)) if registers else web
            layer.begin()
            while not layer.ready:
                flooding.write(layer.take())
                layer.feed(memoryview(await flooding.reader.read(4096)))
            with pytest.raises(ConnectionError):
                await flood(flooding, ping * 100, running)
            assert running.board.events.refusals["bad-words"] == 1
            flooding.writer.transport.abort()
            await until(lambda: not running.board.wires)

    run(main())


def test_a_slow_websocket_stops_the_sender_too() -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            caller = await Dialler.dial(running, greet=False, receive_bytes=4096)
            layer = Stack(Dialling("ws://relay.example.org/"), Calling(HOST.id, CALLER, at=AT))
            layer.begin()
            ticket = asyncio.create_task(host.knock())
            while not ticket.done():
                caller.write(layer.take())
                reading = asyncio.ensure_future(caller.reader.read(4096))
                await asyncio.wait([ticket, reading], return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    break
                layer.feed(memoryview(reading.result()))
            theirs = await answer(running, await ticket)
            await theirs.hear(words.Spliced)
            layer.feed(memoryview(await reading))
            (pair,) = running.board.pairs
            bound_system(pair)
            data = SOME * 2
            sending = asyncio.create_task(send_all(theirs, data))
            await until(lambda: pair.caller.kept > 0 and not pair.host.listening)
            got, most, room = 0, 0, memoryview(bytearray(1 << 16))
            while got < len(data):
                if not (count := layer.read_into(room)):
                    layer.feed(memoryview(await caller.reader.read(1 << 16)))
                    most = max(most, pair.caller.kept)
                got += count
            assert most <= READ_BYTES + 4096
            await sending
            for each in (caller, theirs, host):
                each.close()

    run(main())


def test_a_web_request_that_is_no_websocket_is_answered_as_one() -> None:
    async def main() -> None:
        async with relay() as running:
            dialler = await Dialler.dial(running, greet=False)
            dialler.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            said = await dialler.reader.read()
            assert said.startswith(b"HTTP/1.1 4")
            assert running.board.events.refusals == {"bad-words": 1}
            dialler.close()

    run(main())


def test_a_host_may_serve_by_websocket() -> None:
    async def main() -> None:
        async with relay() as running:
            url = f"ws://127.0.0.1:{running.port}/relay"
            async with connect(url, subprotocols=[TLS_INSIDE], compression=None) as web:
                await web.send(words.MAGIC + words.pack(words.Hi(version=1)))
                challenge = words.of_relay((await web.recv())[2:])  # type: ignore[arg-type]
                assert isinstance(challenge, words.Challenge)
                await web.send(words.pack(words.serve(HOST, challenge.nonce, at=AT)))
                said = words.of_relay((await web.recv())[2:])  # type: ignore[arg-type]
                assert isinstance(said, words.Registered)
                caller = await call(running)
                frame = await web.recv()
                assert isinstance(frame, bytes)
                assert frame.startswith(b"cgrd")
                caller.close()
            await until(lambda: not running.board.hosts)

    run(main())
