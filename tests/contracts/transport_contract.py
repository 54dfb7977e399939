"""What every carrier of frames promises: subclass it and say how to run, listen and connect."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

import pytest

from crowdgrad.domain.job import Member, Roster
from crowdgrad.errors import (
    ConnectionLost,
    FrameError,
    PeerError,
    PortBusy,
    TurnedAway,
    Unreachable,
)
from crowdgrad.net.framing import MAX_FIRST_BODY_BYTES, NOWHERE, FrameReader, pack
from crowdgrad.net.messages import (
    Blob,
    Exchange,
    GiveBack,
    Heartbeat,
    Leave,
    Message,
    Problem,
    RosterChanged,
    encode,
)
from crowdgrad.net.transport.base import (
    MAX_WAITING_FRAMES,
    MAX_WAITING_PAYLOADS,
    Connection,
    Listener,
    OnConnection,
)

T = TypeVar("T")
HASH = "0" * 64


def giver(number: int) -> GiveBack:
    return GiveBack(unit=number, reason="")


def crowd(count: int) -> RosterChanged:
    members = tuple(Member(position=n, id="0123456789abcdef", name=f"nr {n}") for n in range(count))
    return RosterChanged(roster=Roster(job="j", members=members))


def fresh_memory(message: Message, length: int) -> memoryview:
    return memoryview(bytearray(length))


async def speak(near: Connection) -> None:
    """Send more than anybody takes, until it ends."""
    while True:
        await near.send(Exchange(), bytes(1 << 20))


class TransportContract(ABC):
    host = "127.0.0.1"
    large_bytes = 1 << 20
    bare = True
    """Whether nothing but frames travels."""

    @abstractmethod
    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, on this carrier's kind of loop."""

    @abstractmethod
    async def listen(self, host: str, port: int, handler: OnConnection) -> Listener: ...

    @abstractmethod
    async def connect(self, host: str, port: int) -> Connection: ...

    @contextlib.asynccontextmanager
    async def linked(self) -> AsyncGenerator[tuple[Connection, Connection], None]:
        """Both ends of one connection, the dialler's first."""
        accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        over = asyncio.Event()

        async def handler(connection: Connection) -> None:
            accepted.set_result(connection)
            await over.wait()

        listener = await self.listen(self.host, 0, handler)
        near = await self.connect(*listener.address)
        far = await accepted
        try:
            yield near, far
        finally:
            over.set()
            near.close()
            far.close()
            await near.wait_closed()
            await far.wait_closed()
            await listener.close()

    def test_it_is_a_connection(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                assert isinstance(near, Connection)
                assert near.peer
                assert far.peer

        self.run(main())

    def test_frames_arrive_in_order_and_both_ways_at_once(self) -> None:
        count = 500

        async def speak(connection: Connection, payload: bytes) -> None:
            for number in range(count):
                await connection.send(giver(number), payload * (number % 3))

        async def listen(connection: Connection, payload: bytes) -> None:
            for number in range(count):
                message, data = await connection.receive()
                assert (message, bytes(data)) == (giver(number), payload * (number % 3))

        async def main() -> None:
            async with self.linked() as (near, far):
                near.set_sink(fresh_memory)
                far.set_sink(fresh_memory)
                await asyncio.gather(
                    speak(near, b"to"), listen(far, b"to"), speak(far, b"fro"), listen(near, b"fro")
                )

        self.run(main())

    def test_several_senders_do_not_mix_their_frames(self) -> None:
        async def speak(connection: Connection, letter: bytes) -> None:
            for number in range(20):
                await connection.send(giver(number), letter * 50_000)

        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(fresh_memory)
                letters = [bytes([65 + n]) for n in range(4)]
                speakers = asyncio.gather(*(speak(near, letter) for letter in letters))
                heard: dict[bytes, list[int]] = {letter: [] for letter in letters}
                for _ in range(20 * len(letters)):
                    message, data = await far.receive()
                    letter = bytes(data[:1])
                    assert bytes(data) == letter * 50_000
                    assert isinstance(message, GiveBack)
                    heard[letter].append(message.unit)
                await speakers
                assert all(order == list(range(20)) for order in heard.values())

        self.run(main())

    def test_a_large_payload_lands_whole_in_the_buffer_its_sink_gave(self) -> None:
        async def main() -> None:
            length = self.large_bytes
            sent = bytes(range(256)) * (length // 256)
            room = bytearray(length)
            asked: list[tuple[Message, int]] = []

            def sink(message: Message, announced: int) -> memoryview:
                asked.append((message, announced))
                return memoryview(room)

            async with self.linked() as (near, far):
                far.set_sink(sink)
                sending = asyncio.ensure_future(near.send(Blob(hash=HASH), sent))
                message, payload = await far.receive()
                await sending
                assert asked == [(Blob(hash=HASH), length)]
                assert message == Blob(hash=HASH)
                assert payload.obj is room
                assert room == sent

        self.run(main())

    def test_a_buffer_may_be_reused_once_send_has_returned(self) -> None:
        async def main() -> None:
            buffer = bytearray(3_000_000)

            async def speak(near: Connection) -> None:
                for letter in b"abcdef":
                    buffer[:] = bytes([letter]) * len(buffer)
                    await near.send(Exchange(), memoryview(buffer))
                    buffer[:] = b"!" * len(buffer)

            async with self.linked() as (near, far):
                far.set_sink(fresh_memory)
                speaking = asyncio.ensure_future(speak(near))
                for letter in b"abcdef":
                    _, payload = await far.receive()
                    assert bytes(payload) == bytes([letter]) * len(buffer)
                await speaking

        self.run(main())

    def test_a_receiver_that_does_not_read_makes_send_wait(self) -> None:
        taken = 0

        def sink(message: Message, length: int) -> memoryview:
            nonlocal taken
            taken += 1
            return memoryview(bytearray(length))

        async def speak(near: Connection) -> None:
            for number in range(200):
                await near.send(giver(number), bytes(1 << 20))

        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(sink)
                speaking = asyncio.ensure_future(speak(near))
                done, _ = await asyncio.wait([speaking], timeout=0.3)
                assert not done
                assert 0 < taken <= MAX_WAITING_PAYLOADS
                for number in range(200):
                    assert (await far.receive())[0] == giver(number)
                    assert taken <= number + 1 + MAX_WAITING_PAYLOADS
                await speaking
                assert taken == 200

        self.run(main())

    def test_a_payload_without_room_waits_on_its_way_until_there_is_some(self) -> None:
        """Nothing is allocated, nothing is lost, and the other side notices by waiting."""
        length, count = self.large_bytes, 6
        asked = 0

        def sink(message: Message, announced: int) -> memoryview | None:
            nonlocal asked
            asked += 1
            assert announced == length
            return None

        async def speak(near: Connection) -> None:
            for number in range(count):
                await near.send(giver(number), bytes([65 + number]) * length)
                await near.send(Leave(reason=str(number)))

        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(sink)
                speaking = asyncio.ensure_future(speak(near))
                for number in range(count):
                    while asked == number:  # noqa: ASYNC110 - nobody tells us
                        await asyncio.sleep(0.001)
                    receiving = asyncio.ensure_future(far.receive())
                    done, _ = await asyncio.wait([receiving], timeout=0.02)
                    assert not done
                    assert asked == number + 1, "it is asked for room once"
                    assert far.paused, "silence is our own doing"
                    room = memoryview(bytearray(length))
                    far.make_room(room)
                    message, payload = await receiving
                    assert message == giver(number)
                    assert payload.obj is room.obj
                    assert bytes(payload) == bytes([65 + number]) * length
                    assert (await far.receive())[0] == Leave(reason=str(number))
                await speaking
                while far.paused:  # noqa: ASYNC110 - a cap may hold it for a moment more
                    await asyncio.sleep(0.001)

        self.run(main())

    def test_small_payloads_may_wait_for_room_as_well(self) -> None:
        """Those behind them have arrived already, and are looked at when their turn comes."""
        owed: list[int] = []

        def sink(message: Message, length: int) -> memoryview | None:
            owed.append(length)
            return None if len(owed) % 2 else memoryview(bytearray(length))

        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(sink)
                for number in range(6):
                    await asyncio.wait(
                        [asyncio.ensure_future(near.send(giver(number), b"x" * (number + 1)))],
                        timeout=0.05,
                    )
                for number in range(6):
                    while not far.paused and number % 2 == 0:  # noqa: ASYNC110
                        await asyncio.sleep(0.001)
                    if number % 2 == 0:
                        far.make_room(memoryview(bytearray(owed[-1])))
                    message, payload = await far.receive()
                    assert (message, bytes(payload)) == (giver(number), b"x" * (number + 1))

        self.run(main())

    def test_a_payload_nobody_wants_is_read_and_its_message_comes_alone(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(lambda message, length: NOWHERE)
                for number in range(3):
                    sending = asyncio.ensure_future(
                        near.send(giver(number), b"x" * self.large_bytes)
                    )
                    message, payload = await far.receive()
                    assert (message, bytes(payload)) == (giver(number), b"")
                    await sending

        self.run(main())

    def test_room_that_comes_too_late_does_no_harm(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(lambda message, length: None)
                sending = asyncio.ensure_future(near.send(Exchange(), b"x" * 10))
                while not far.paused:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                far.close(ConnectionLost("Enough."))
                far.make_room(memoryview(bytearray(10)))
                with pytest.raises(ConnectionLost, match="Enough"):
                    await far.receive()
                with contextlib.suppress(ConnectionLost):
                    await sending

        self.run(main())

    def test_nonsense_behind_a_payload_that_waited_ends_it_with_the_reason(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):

                def sink(message: Message, length: int) -> memoryview | None:
                    if isinstance(message, Exchange):
                        return None
                    raise FrameError("Nobody asked for that.")

                far.set_sink(sink)
                sending = asyncio.gather(
                    near.send(Exchange(), b"12345"), near.send(Leave(reason="x"), b"67890")
                )
                while not far.paused:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.01)
                far.make_room(memoryview(bytearray(5)))
                problem, _ = await near.receive()
                assert isinstance(problem, Problem)
                assert problem.message == "Nobody asked for that."
                await asyncio.gather(sending, return_exceptions=True)

        self.run(main())

    def test_bytes_are_counted_on_both_sides(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(fresh_memory)
                before = near.sent_bytes  # what it took to agree
                assert before == far.received_bytes
                whole = len(pack(Exchange(), 1000)) + 1000 + len(pack(Heartbeat()))
                await near.send(Heartbeat())
                await near.send(Exchange(), bytes(1000))
                await far.receive()
                assert near.sent_bytes == far.received_bytes
                if self.bare:
                    assert (before, near.sent_bytes) == (0, whole)
                    assert near.received_bytes == far.sent_bytes == 0
                else:
                    assert before + whole < near.sent_bytes < before + whole + 200

        self.run(main())

    def test_what_was_sent_before_closing_still_arrives(self) -> None:
        """As much as anyone may send while nobody receives: more of it makes `send` wait."""
        count = MAX_WAITING_FRAMES - 1

        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(fresh_memory)
                for number in range(count):
                    payloads = MAX_WAITING_PAYLOADS - 1
                    await near.send(giver(number), b"x" * 1000 if number < payloads else b"")
                near.close()
                await near.wait_closed()
                for number in range(count):
                    assert (await far.receive())[0] == giver(number)
                with pytest.raises(ConnectionLost):
                    await far.receive()

        self.run(main())

    def test_what_had_to_wait_before_closing_still_arrives(self) -> None:
        async def speak(near: Connection) -> None:
            for number in range(3 * MAX_WAITING_FRAMES):
                await near.send(giver(number), b"x" * 1000)
            near.close()

        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(fresh_memory)
                speaking = asyncio.ensure_future(speak(near))
                await asyncio.sleep(0.05)
                for number in range(3 * MAX_WAITING_FRAMES):
                    message, payload = await far.receive()
                    assert (message, bytes(payload)) == (giver(number), b"x" * 1000)
                with pytest.raises(ConnectionLost):
                    await far.receive()
                await speaking

        self.run(main())

    def test_heartbeats_are_swallowed_and_never_stop_the_reader(self) -> None:
        async def main() -> None:
            seen: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

            def sink(message: Message, length: int) -> memoryview:
                seen.set_result(message)
                return memoryview(bytearray(length))

            async with self.linked() as (near, far):
                far.set_sink(sink)
                heard = far.heard_at
                await asyncio.sleep(0.01)
                for _ in range(1000):
                    await near.send(Heartbeat())
                await near.send(Exchange(), b"x")
                assert await seen == Exchange()  # it is read although nobody receives
                assert far.heard_at > heard
                assert await far.receive() == (Exchange(), b"x")
                receiving = asyncio.ensure_future(far.receive())
                await near.send(Heartbeat())
                await near.send(Leave(reason="bye"))
                assert (await receiving)[0] == Leave(reason="bye")

        self.run(main())

    def test_a_large_body_is_refused_before_there_is_a_sink(self) -> None:
        large = crowd(1000)
        assert len(encode(large)) > MAX_FIRST_BODY_BYTES

        async def main() -> None:
            async with self.linked() as (near, far):
                await near.send(large)
                with pytest.raises(FrameError, match=f"a body of {len(encode(large))} bytes"):
                    await far.receive()
                problem, _ = await near.receive()
                assert isinstance(problem, Problem)
                assert problem.code == FrameError.code
                with pytest.raises(ConnectionLost):
                    await near.receive()

        self.run(main())

    def test_a_large_body_arrives_once_there_is_a_sink(self) -> None:
        large = crowd(8000)
        assert len(encode(large)) > 3 * FrameReader.STAGING_BYTES

        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(fresh_memory)
                sending = asyncio.ensure_future(near.send(large, b"x"))
                assert await far.receive() == (large, b"x")
                await sending

        self.run(main())

    def test_refusing_tells_the_other_side_once_and_ends_it(self) -> None:
        error = TurnedAway("The job is full.", advice="Try later.")

        async def main() -> None:
            async with self.linked() as (near, far):
                far.refuse(error)
                far.refuse(ConnectionLost("Too late to say more."))
                far.close()
                with pytest.raises(TurnedAway, match="full") as raised:
                    await far.receive()
                assert str(raised.value) == str(error)
                with pytest.raises(TurnedAway):
                    await far.send(Leave(reason="note"))
                problem, payload = await near.receive()
                assert problem == Problem(
                    code=TurnedAway.code, message="The job is full.", advice="Try later."
                )
                assert len(payload) == 0
                with pytest.raises(ConnectionLost, match="other side"):
                    await near.receive()
                await near.wait_closed()
                await far.wait_closed()

        self.run(main())

    def test_refusing_while_we_do_not_read_is_heard_by_a_sender_that_waits(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(fresh_memory)
                speaking = asyncio.ensure_future(speak(near))
                await asyncio.wait([speaking], timeout=0.1)
                assert not speaking.done()
                far.refuse(TurnedAway("The job is over."))
                problem, _ = await near.receive()
                assert isinstance(problem, Problem)
                assert problem.message == "The job is over."
                with pytest.raises(ConnectionLost, match="other side closed"):
                    await near.receive()
                with pytest.raises(ConnectionLost, match="other side closed"):
                    await speaking

        self.run(main())

    def test_refusing_somebody_who_has_gone_does_no_harm(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                near.close()
                await far.wait_closed()
                far.refuse(TurnedAway("Too late."))
                with pytest.raises(ConnectionLost, match="other side"):
                    await far.receive()

        self.run(main())

    def test_closing_ends_both_sides_for_good(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                waiting = asyncio.ensure_future(far.receive())
                await asyncio.sleep(0)
                near.close()
                with pytest.raises(ConnectionLost, match="other side"):
                    await waiting
                await far.wait_closed()
                await near.wait_closed()
                for end in (near, far):
                    with pytest.raises(ConnectionLost):
                        await end.receive()
                    with pytest.raises(ConnectionLost):
                        await end.send(Leave(reason="note"))
                near.close()  # once more does no harm

        self.run(main())

    def test_whoever_heard_of_the_end_is_not_kept_alive_by_it(self) -> None:
        class Vector(bytearray):
            """What somebody was about to send."""

        async def hear(connection: Connection, vector: Vector) -> None:
            with pytest.raises(ConnectionLost):
                await connection.receive()
            with pytest.raises(ConnectionLost):
                await connection.send(giver(1), memoryview(vector))

        async def main() -> None:
            async with self.linked() as (near, far):
                vector = Vector(1000)
                known = weakref.ref(vector)
                near.close(ConnectionLost("It fell silent."))
                gc.collect()
                gc.disable()
                try:
                    await hear(near, vector)
                    await hear(far, vector)
                    del vector
                    assert known() is None
                finally:
                    gc.enable()

        self.run(main())

    def test_the_error_given_to_close_is_what_our_callers_hear(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                near.close(ConnectionLost("It fell silent."))
                with pytest.raises(ConnectionLost, match="fell silent"):
                    await near.receive()
                with pytest.raises(ConnectionLost, match="fell silent"):
                    await near.send(Leave(reason="note"))
                with pytest.raises(ConnectionLost):
                    await far.receive()

        self.run(main())

    def test_closing_wakes_a_sender_that_waits(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(fresh_memory)
                speaking = asyncio.ensure_future(speak(near))
                await asyncio.wait([speaking], timeout=0.1)
                near.close(ConnectionLost("Enough."))
                with pytest.raises(ConnectionLost, match="Enough"):
                    await speaking

        self.run(main())

    @pytest.mark.parametrize("length", [5, 30_000_000])
    def test_a_payload_nobody_asked_for_ends_it_with_the_reason_on_both_sides(
        self, length: int
    ) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                sending = asyncio.ensure_future(near.send(Leave(reason="bye"), bytes(length)))
                with pytest.raises(FrameError, match=f"{length} bytes that nobody asked for"):
                    await far.receive()
                far.close()  # as every handler does: it must not cut the reason off
                problem, _ = await near.receive()
                assert isinstance(problem, Problem)
                assert problem.code == FrameError.code
                assert "nobody asked for" in problem.message
                with pytest.raises(ConnectionLost):
                    await near.receive()
                with pytest.raises(PeerError):
                    await far.send(Leave(reason="note"))
                with contextlib.suppress(ConnectionLost):
                    await sending

        self.run(main())

    def test_a_refusal_by_the_sink_is_told(self) -> None:
        def sink(message: Message, length: int) -> memoryview:
            raise FrameError(f"{length} bytes are too many.", advice="Send fewer.")

        async def main() -> None:
            async with self.linked() as (near, far):
                far.set_sink(sink)
                await near.send(Leave(reason="bye"), b"123")
                assert await near.receive() == (
                    Problem(code="CG501", message="3 bytes are too many.", advice="Send fewer."),
                    b"",
                )

        self.run(main())

    def test_arriving_and_leaving_bytes_move_the_clocks(self) -> None:
        async def main() -> None:
            async with self.linked() as (near, far):
                heard, sent = far.heard_at, near.sent_at
                await asyncio.sleep(0.01)
                await near.send(Leave(reason="note"))
                await far.receive()
                assert near.sent_at > sent
                assert far.heard_at > heard

        self.run(main())

    def test_a_handler_that_returns_closes_its_connection(self) -> None:
        async def handler(connection: Connection) -> None:
            await connection.send(Leave(reason="done"))

        async def main() -> None:
            listener = await self.listen(self.host, 0, handler)
            near = await self.connect(*listener.address)
            assert (await near.receive())[0] == Leave(reason="done")
            with pytest.raises(ConnectionLost):
                await near.receive()
            await near.wait_closed()
            await listener.close()

        self.run(main())

    def test_a_busy_port_and_an_address_where_nobody_is(self) -> None:
        async def handler(connection: Connection) -> None:
            await connection.receive()

        async def main() -> None:
            listener = await self.listen(self.host, 0, handler)
            with pytest.raises(PortBusy):
                await self.listen(*listener.address, handler)
            await listener.close()
            with pytest.raises(Unreachable) as unreachable:
                await self.connect(*listener.address)
            assert str(listener.address[1]) in unreachable.value.message
            assert unreachable.value.advice
            again = await self.listen(*listener.address, handler)
            await again.close()

        self.run(main())

    def test_a_closed_listener_leaves_its_connections_alone(self) -> None:
        async def echo(connection: Connection) -> None:
            await connection.send((await connection.receive())[0])

        async def main() -> None:
            listener = await self.listen(self.host, 0, echo)
            near = await self.connect(*listener.address)
            await near.send(Leave(reason="note"))  # it is surely accepted once it has been answered
            assert (await near.receive())[0] == Leave(reason="note")
            near.close()
            held: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

            async def wait(connection: Connection) -> None:
                held.set_result(connection)
                await echo(connection)

            await listener.close()
            listener = await self.listen(self.host, 0, wait)
            near = await self.connect(*listener.address)
            await held
            await listener.close()
            await near.send(Leave(reason="still here"))
            assert (await near.receive())[0] == Leave(reason="still here")
            near.close()
            await near.wait_closed()

        self.run(main())
