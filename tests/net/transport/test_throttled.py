"""Connections under a cap keep all their promises, and the cap, by the throttle's own clock."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, ClassVar, TypeVar

import pytest
import uvloop

from crowdgrad.errors import PeerError, TurnedAway
from crowdgrad.net import identity
from crowdgrad.net.messages import Blob, Exchange, GiveBack, Heartbeat, Leave, Problem
from crowdgrad.net.throttle import BURST_S, Throttle
from crowdgrad.net.transport import secure, stream, tcp, tls
from crowdgrad.net.transport.base import Connection, Listener, OnConnection
from crowdgrad.net.transport.pacing import bound_buffers
from tests.contracts.transport_contract import TransportContract, fresh_memory
from tests.net.test_throttle import excess

T = TypeVar("T")
KEY = identity.guest("a listener")
PIN = identity.digest_of(KEY.public)
LOOPS: list[Any] = [
    pytest.param(asyncio.SelectorEventLoop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uv"),
]
on_both_loops = pytest.mark.parametrize("loop", LOOPS)
bare_and_encrypted = pytest.mark.parametrize("encrypted", [False, True], ids=["bare", "tls"])
RATE = 8_000_000
PART = int(RATE * 0.05)
FRAMING = 1.01
"""What heads and TLS records add."""


def run(loop: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


class Noted(Throttle):
    """Writes down what has passed, and when by its own clock."""

    def __init__(self, bytes_per_s: float | None) -> None:
        super().__init__(bytes_per_s)
        self.passed: list[tuple[float, int]] = []

    def take(self, now: float, count: int) -> float:
        self.passed.append((now, count))
        return super().take(now, count)

    @property
    def bytes(self) -> int:
        return sum(count for _, count in self.passed)

    def check(self, parts_bytes: float) -> None:
        """`parts_bytes`: of all that may pass at once."""
        assert excess(self.passed, RATE) <= RATE * BURST_S + FRAMING * parts_bytes


class Throttled(TransportContract):
    """All that a connection promises it promises under a cap, too."""

    large_bytes = 30_000_128
    encrypted: ClassVar[bool]
    loop_factory: ClassVar[Callable[[], asyncio.AbstractEventLoop]]

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        self.up, self.down = Throttle(1e8), Throttle(1e8)
        return run(type(self).loop_factory, main)

    async def listen(self, host: str, port: int, handler: OnConnection) -> Listener:
        caps = {"up": self.up, "down": self.down}
        if self.encrypted:
            return await secure.listen(host, port, handler, KEY, **caps)
        return await tcp.listen(host, port, handler, **caps)

    async def connect(self, host: str, port: int) -> Connection:
        layer = tls.dialler(PIN) if self.encrypted else None
        return await tcp.connect(host, port, layer=layer, up=self.up, down=self.down)


class TestBareOnAsyncio(Throttled):
    encrypted = False
    loop_factory = asyncio.SelectorEventLoop


class TestTlsOnUvloop(Throttled):
    encrypted = True
    bare = False
    loop_factory = staticmethod(uvloop.new_event_loop)


@contextlib.asynccontextmanager
async def linked(
    count: int = 1,
    *,
    encrypted: bool = False,
    up: Throttle | None = None,
    down: Throttle | None = None,
) -> AsyncGenerator[list[tuple[tcp.TcpConnection, Connection]], None]:
    """Both ends of so many connections; those who dial share what they may send and read."""
    accepted: asyncio.Queue[Connection] = asyncio.Queue()

    async def handler(connection: Connection) -> None:
        connection.set_sink(fresh_memory)
        accepted.put_nowait(connection)
        await connection.wait_closed()

    listener = await secure.listen("127.0.0.1", 0, handler, KEY, always=encrypted)
    pairs = []
    for _ in range(count):
        layer = tls.dialler(PIN) if encrypted else None
        near = await tcp.connect(*listener.address, layer=layer, up=up, down=down)
        near.set_sink(fresh_memory)
        await near.send(Leave(reason="hello"))
        far = await accepted.get()
        await far.receive()
        pairs.append((near, far))
    try:
        yield pairs
    finally:
        for near, far in pairs:
            near.close()
            far.close()
            await near.wait_closed()
            await far.wait_closed()
        await listener.close()


def data(seed: int, length: int) -> bytes:
    return hashlib.shake_128(bytes([seed])).digest(length)


async def carry(sender: Connection, receiver: Connection, payload: bytes) -> None:
    sending = asyncio.ensure_future(sender.send(Exchange(), payload))
    _, found = await receiver.receive()
    assert found == payload
    await sending


# -- the cap --------------------------------------------------------------------------------------


@on_both_loops
@bare_and_encrypted
def test_a_payload_is_sent_within_the_cap(loop: Any, encrypted: bool) -> None:
    async def main() -> None:
        up = Noted(RATE)
        async with linked(encrypted=encrypted, up=up) as [(near, far)]:
            await carry(near, far, data(1, 2_500_000))
            assert up.bytes == near.sent_bytes >= 2_500_000
        up.check(PART)

    run(loop, main())


@on_both_loops
@bare_and_encrypted
def test_a_payload_is_read_within_the_cap(loop: Any, encrypted: bool) -> None:
    async def main() -> None:
        down = Noted(RATE)
        async with linked(encrypted=encrypted, down=down) as [(near, far)]:
            await carry(far, near, data(2, 2_500_000))
            assert down.bytes == near.received_bytes >= 2_500_000
            assert max(count for _, count in down.passed) <= stream.READ_BYTES
        down.check(stream.READ_BYTES)

    run(loop, main())


@on_both_loops
@bare_and_encrypted
def test_several_connections_share_both_caps(loop: Any, encrypted: bool) -> None:
    async def main() -> None:
        up, down = Noted(RATE), Noted(RATE)
        async with linked(4, encrypted=encrypted, up=up, down=down) as pairs:
            await asyncio.gather(
                *(carry(near, far, data(n, 600_000)) for n, (near, far) in enumerate(pairs)),
                *(carry(far, near, data(9 + n, 600_000)) for n, (near, far) in enumerate(pairs)),
            )
        assert min(up.bytes, down.bytes) >= 2_400_000
        up.check(4 * PART)
        down.check(4 * stream.READ_BYTES)

    run(loop, main())


@on_both_loops
def test_everybody_has_a_turn(loop: Any) -> None:
    async def main() -> None:
        up = Noted(RATE)
        async with linked(4, up=up) as pairs:
            carried = [
                asyncio.ensure_future(carry(near, far, data(n, 1_500_000)))
                for n, (near, far) in enumerate(pairs)
            ]
            await asyncio.wait(carried, return_when=asyncio.FIRST_COMPLETED)
            assert min(near.sent_bytes for near, _ in pairs) > 500_000
            await asyncio.gather(*carried)

    run(loop, main())


@on_both_loops
@bare_and_encrypted
def test_a_stream_of_small_frames_keeps_the_cap_too(loop: Any, encrypted: bool) -> None:
    async def main() -> None:
        up, small = Noted(RATE), data(3, 4096)

        async def speak(near: Connection) -> None:
            for number in range(500):
                await near.send(GiveBack(unit=number, reason=""), small)

        async with linked(encrypted=encrypted, up=up) as [(near, far)]:
            speaking = asyncio.ensure_future(speak(near))
            for number in range(500):
                assert await far.receive() == (GiveBack(unit=number, reason=""), small)
            await speaking
        up.check(2 * len(small))

    run(loop, main())


@on_both_loops
def test_what_is_sent_without_waiting_is_owed_and_drained_waits_for_it(loop: Any) -> None:
    async def main() -> None:
        up = Noted(RATE)
        async with linked(up=up) as [(near, far)]:
            assert near.free
            assert not near.send_at_once(Exchange(), bytes(2_000_000))
            assert not near.free
            receiving = asyncio.ensure_future(far.receive())
            await near.drained()
            now = asyncio.get_running_loop().time()
            assert up.wait_s(now) == 0
            assert now - up.passed[-1][0] >= 2_000_000 / RATE - 2 * BURST_S
            assert (await receiving)[0] == Exchange()

    run(loop, main())


# -- while nothing moves --------------------------------------------------------------------------


async def soon(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody tells us
        await asyncio.sleep(0.005)


@on_both_loops
def test_while_nothing_moves_heartbeats_do_and_the_rest_follows_when_it_may(loop: Any) -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        up = Throttle(1e6)
        async with linked(up=up) as [(near, far)]:
            up.set_rate(clock(), 0)
            sending = asyncio.ensure_future(near.send(Blob(hash="0" * 64), data(4, 50_000)))
            await asyncio.sleep(0)
            before = near.sent_bytes
            # The frame's turn has not come: others may still speak.
            for _ in range(3):
                near.send_at_once(Heartbeat())
            await soon(lambda: near.sent_bytes > before)
            assert not sending.done()
            up.set_rate(clock(), 1e8)
            assert (await far.receive())[1] == data(4, 50_000)
            await sending
            up.set_rate(clock(), 0)
            for _ in range(3):
                await near.send(Heartbeat())
            assert not near.free
            up.set_rate(clock(), None)
            await near.send(Leave(reason="again"))
            assert await far.receive() == (Leave(reason="again"), b"")

    run(loop, main())


@on_both_loops
@bare_and_encrypted
def test_who_waits_hears_that_the_connection_has_ended(loop: Any, encrypted: bool) -> None:
    async def main() -> None:
        up = Throttle(1e6)
        async with linked(2, encrypted=encrypted, up=up) as [(near, far), (other, _)]:
            up.set_rate(asyncio.get_running_loop().time(), 0)
            small = asyncio.ensure_future(near.send(Leave(reason="small")))
            large = asyncio.ensure_future(near.send(Exchange(), bytes(1_000_000)))
            given_up = asyncio.ensure_future(other.send(Leave(reason="small")))
            await far.receive()
            far.close()
            for waiting in (small, large):
                with pytest.raises(PeerError):
                    await waiting
            assert not given_up.done()
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up

    run(loop, main())


@on_both_loops
@bare_and_encrypted
def test_silence_is_our_own_doing_while_we_do_not_read(loop: Any, encrypted: bool) -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        down = Throttle(1e6)
        async with linked(encrypted=encrypted, down=down) as [(near, far)]:
            assert not near.paused
            down.set_rate(clock(), 0)
            sending = asyncio.ensure_future(far.send(Exchange(), data(5, 300_000)))
            await soon(lambda: near.paused)
            so_far = near.received_bytes
            await asyncio.sleep(0.05)
            assert near.paused
            assert near.received_bytes == so_far < 100_000
            down.set_rate(clock(), 1e8)
            assert (await near.receive())[1] == data(5, 300_000)
            await sending
            await soon(lambda: not near.paused)

    run(loop, main())


@on_both_loops
@bare_and_encrypted
def test_reading_goes_on_only_when_neither_frames_nor_the_cap_are_in_the_way(
    loop: Any, encrypted: bool
) -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        down = Throttle(1e8)
        async with linked(encrypted=encrypted, down=down) as [(near, far)]:
            assert near._transport is not None

            async def speak() -> None:
                for number in range(40):
                    await far.send(GiveBack(unit=number, reason=""), bytes(100_000))

            speaking = asyncio.ensure_future(speak())
            await soon(lambda: near._inbox.paused)
            down.set_rate(clock(), 0)  # frames wait, and from the next byte on the cap does, too
            await near.receive()
            await near.receive()
            await soon(lambda: near._slowed)
            assert not near._transport.is_reading()
            down.set_rate(clock(), None)
            for number in range(2, 40):
                assert await near.receive() == (GiveBack(unit=number, reason=""), bytes(100_000))
            await speaking

    run(loop, main())


@on_both_loops
def test_whoever_is_refused_hears_why_although_we_may_not_read(loop: Any) -> None:
    async def main() -> None:
        down = Throttle(1e6)
        async with linked(down=down) as [(near, far)]:
            down.set_rate(asyncio.get_running_loop().time(), 0)
            sending = asyncio.ensure_future(far.send(Exchange(), bytes(300_000)))
            await soon(lambda: near.paused)
            near.refuse(TurnedAway("Not you."))
            message, _ = await far.receive()
            assert isinstance(message, Problem)
            assert message.message == "Not you."
            await asyncio.gather(sending, return_exceptions=True)

    run(loop, main())


# -- the system's buffers -------------------------------------------------------------------------


def sizes(sock: socket.socket) -> tuple[int, int]:
    return tuple(  # type: ignore[return-value]
        sock.getsockopt(socket.SOL_SOCKET, option)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
    )


def test_the_system_holds_little_under_a_small_cap_and_is_left_alone_otherwise() -> None:
    with socket.socket() as sock:
        before = sizes(sock)
        for rate in (None, 0.0, 1e8):
            bound_buffers(sock, up=Throttle(rate), down=Throttle(rate))
        bound_buffers(sock, up=None, down=None)
        assert sizes(sock) == before
        bound_buffers(sock, up=Throttle(100_000), down=Throttle(600_000))
        up, down = sizes(sock)
        assert 64 << 10 <= up <= 128 << 10  # Linux counts its own book-keeping, too
        assert 150_000 <= down <= 300_000
