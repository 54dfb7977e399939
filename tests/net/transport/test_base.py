"""What waits for `receive` is bounded: when reading stops, and when it goes on."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import ConnectionLost
from crowdgrad.net.framing import pack
from crowdgrad.net.messages import Exchange, Heartbeat, Leave, Message
from crowdgrad.net.transport.base import MAX_WAITING_FRAMES, MAX_WAITING_PAYLOADS, Inbox
from tests.virtual_time import run_virtual


class Reading:
    """An inbox, and whether its carrier would be reading."""

    def __init__(self) -> None:
        self.on = True
        self.inbox = Inbox(pause=self._pause, resume=self._resume)
        self.inbox.reader.sink = lambda message, length: memoryview(bytearray(length))

    def _pause(self) -> None:
        assert self.on, "paused twice"
        self.on = False

    def _resume(self) -> None:
        assert not self.on, "resumed twice"
        self.on = True

    def arrive(self, message: Message, payload: bytes = b"") -> None:
        data = pack(message, len(payload)) + payload
        room = self.inbox.reader.buffer()
        room[: len(data)] = data
        self.inbox.filled(len(data))


def test_reading_stops_at_so_many_frames_and_goes_on_below() -> None:
    async def main() -> None:
        reading = Reading()
        for number in range(MAX_WAITING_FRAMES):
            assert reading.on
            reading.arrive(Leave(reason=str(number)))
        assert not reading.on
        for number in range(MAX_WAITING_FRAMES):
            assert await reading.inbox.get() == (Leave(reason=str(number)), b"")
            assert reading.on

    run_virtual(main())


def test_reading_stops_at_so_many_payloads_and_goes_on_below() -> None:
    async def main() -> None:
        reading = Reading()
        reading.arrive(Leave(reason="before"))
        for _ in range(MAX_WAITING_PAYLOADS):
            assert reading.on
            reading.arrive(Exchange(), b"x")
        assert not reading.on
        await reading.inbox.get()
        assert not reading.on  # that was not a payload
        await reading.inbox.get()
        assert reading.on

    run_virtual(main())


def test_heartbeats_take_no_place_and_wake_nobody() -> None:
    async def main() -> None:
        reading = Reading()
        for _ in range(MAX_WAITING_FRAMES - 1):
            reading.arrive(Leave(reason=""))
        for _ in range(1000):
            reading.arrive(Heartbeat())
        assert reading.on
        for _ in range(MAX_WAITING_FRAMES - 1):
            await reading.inbox.get()
        waiting = asyncio.ensure_future(reading.inbox.get())
        await asyncio.sleep(0)
        reading.arrive(Heartbeat())
        await asyncio.sleep(1)
        assert not waiting.done()
        reading.arrive(Leave(reason="now"))
        assert (await waiting)[0] == Leave(reason="now")

    run_virtual(main())


def test_what_waits_is_handed_over_before_the_end_is() -> None:
    async def main() -> None:
        reading = Reading()
        reading.arrive(Leave(reason="last words"))
        reading.inbox.end(ConnectionLost("It ended."))
        reading.inbox.end(ConnectionLost("It ended again."))
        assert (await reading.inbox.get())[0] == Leave(reason="last words")
        for _ in range(2):
            with pytest.raises(ConnectionLost, match=r"It ended\."):
                await reading.inbox.get()

    run_virtual(main())


def test_at_the_end_buffers_and_whoever_they_were_for_are_let_go_at_once() -> None:
    class Room(bytearray):
        """Of a payload, and what its receiver is known by."""

    class Receiver:
        def sink(self, message: Message, length: int) -> memoryview:
            return memoryview(Room(length))

    reading, receiver = Reading(), Receiver()
    reading.inbox.reader.sink = receiver.sink
    half = pack(Exchange(), 100_000) + b"x" * 50
    reading.inbox.reader.buffer()[: len(half)] = half
    gc.disable()  # the ends of a connection know each other: a collector may take its time
    try:
        reading.inbox.filled(len(half))
        room = weakref.ref(reading.inbox.reader._payload.obj)
        assert isinstance(room(), Room)
        known = weakref.ref(receiver)
        del receiver
        assert known() is not None
        reading.inbox.end(ConnectionLost("It ended."))
        assert room() is None
        assert known() is None
        assert len(reading.inbox.reader._staging) == 0
    finally:
        gc.enable()


@given(st.lists(st.sampled_from(["words", "payload", "heartbeat", "get"]), max_size=120))
def test_reading_goes_on_exactly_while_there_is_room(events: list[str]) -> None:
    async def main() -> None:
        reading = Reading()
        model: list[tuple[Message, bytes]] = []
        numbers = itertools.count()
        for event in events:
            if event == "get":
                if model:
                    assert await reading.inbox.get() == model.pop(0)
            elif event == "heartbeat":
                reading.arrive(Heartbeat())
            else:
                payload = b"x" if event == "payload" else b""
                model.append((Leave(reason=str(next(numbers))), payload))
                reading.arrive(*model[-1])
            payloads = sum(1 for _, payload in model if payload)
            room = len(model) < MAX_WAITING_FRAMES and payloads < MAX_WAITING_PAYLOADS
            assert reading.on == room

    run_virtual(main())


def test_an_ear_hears_what_arrives_while_somebody_waits_and_nothing_else() -> None:
    heard: list[Message] = []

    def ear(message: Message, payload: memoryview) -> bool:
        heard.append(message)
        return isinstance(message, Exchange)

    async def main() -> None:
        reading = Reading()
        reading.inbox.ear = ear
        reading.arrive(Exchange(ticket=1))
        assert heard == [], "nobody waits: who is at work on one frame must not be given the next"
        assert (await reading.inbox.get())[0] == Exchange(ticket=1)
        waiting = asyncio.create_task(reading.inbox.get())
        await asyncio.sleep(0)
        reading.arrive(Exchange(ticket=2))
        reading.arrive(Heartbeat())
        assert heard == [Exchange(ticket=2)]
        assert not waiting.done()
        reading.arrive(Leave(reason="bye"))
        reading.arrive(Exchange(ticket=3))  # behind another, so not before it
        assert heard == [Exchange(ticket=2), Leave(reason="bye")]
        assert (await waiting)[0] == Leave(reason="bye")
        assert (await reading.inbox.get())[0] == Exchange(ticket=3)
        reading.inbox.end(ConnectionLost("Gone."))
        assert reading.inbox.ear is None

    run_virtual(main())
