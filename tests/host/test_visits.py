"""Large vectors over real conversations, in virtual time: bounded, fair, and never stuck."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from crowdgrad.domain.work import UnitId, Update, VolunteerId
from crowdgrad.errors import ConnectionLost, FrameError, PeerError
from crowdgrad.host.gate import LARGE_BYTES
from crowdgrad.host.server import Server, departure, roster_every_s
from crowdgrad.host.training import Training
from crowdgrad.host.visit import MAX_QUESTIONS
from crowdgrad.net.framing import pack
from crowdgrad.net.heartbeat import Look
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Fetch, Get, Grant, Leave, Message, Wait
from crowdgrad.net.transport.base import Payload
from crowdgrad.net.transport.inproc import InprocConnection, InprocNetwork, Route, straight
from crowdgrad.numerics.vectors import as_bytes
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous
from crowdgrad.simulator.virtual_time import Node, VirtualLoop
from crowdgrad.volunteer.conversation import Conversation
from tests.host import small
from tests.host.people import SAMPLES
from tests.virtual_time import run_virtual

SIZE = LARGE_BYTES // 4 + 1
"""Numbers of a vector that needs a place, and is still worked on without a thread."""
ADDRESS = ("host", 1)
SILENCE_S = 10.0


class House:
    """A host of a large model, its listener, and a watch on what it holds."""

    def __init__(
        self, recipe: Recipe, *, exchanges: int, epochs: int = 4, size: int = SIZE
    ) -> None:
        data, blobs = small.manifest(validation=False, test=False)
        job = small.job(epochs=epochs, of=data, recipe=recipe)
        self.training: Training = small.training(recipe=recipe, data=data, the_job=job, size=size)
        self.blobs = {**blobs, job.program: b"p", job.manifest: b"m"}
        self.server = Server(
            self.training,
            self.blobs,
            token="secret",
            max_volunteers=100,
            heartbeat_s=2.0,
            silence_s=SILENCE_S,
            clock=asyncio.get_running_loop().time,
            exchanges=exchanges,
        )
        self.network = InprocNetwork()
        self.most = 0
        self.reasons: dict[str, str] = {}

    async def open(self) -> None:
        await self.network.listen(*ADDRESS, self.server.serve)
        self._tick = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        while self.training.course.phase != "over":
            await self.training.tick(asyncio.get_running_loop().time())
            await asyncio.sleep(0.1)

    def slow_down(self, seconds: float) -> None:
        """Arithmetic takes its time, and whatever is made is counted."""
        pool, parameters = self.server._desk.pool, self.training.parameters
        take = pool.take

        def count() -> None:
            held = pool.taken + pool.spare + parameters.pinned + parameters.spare
            self.most = max(self.most, held)

        def counted() -> memoryview:
            taken = take()
            count()
            return taken

        async def slowly(work: Callable[[], None]) -> None:
            await asyncio.sleep(seconds)
            count()
            work()

        pool.take = counted  # type: ignore[method-assign]
        parameters._do = slowly  # type: ignore[method-assign]

    @property
    def over(self) -> bool:
        return self.training.course.phase == "over"

    async def connect(self, *, there: Route = straight, back: Route = straight) -> Person:
        return await Person.join(self, there=there, back=back)


class Person:
    """A volunteer without a trainer."""

    def __init__(self, house: House, talk: Conversation, name: VolunteerId) -> None:
        self.house = house
        self.talk = talk
        self.name = name
        self.into = np.empty(house.training.spec.size, np.float32)
        self.waits: list[str] = []
        self.update: Update | None = None

    @classmethod
    async def join(
        cls, house: House, *, there: Route = straight, back: Route = straight, identity: Any = None
    ) -> Person:
        identity = identity or guest()
        me = small.volunteer("someone")
        object.__setattr__(me, "id", identity.id)
        connection = await house.network.connect(*ADDRESS, there=there, back=back)
        talk = Conversation(connection)
        await talk.join(me, identity)
        person = cls(house, talk, identity.id)
        person.listening = asyncio.create_task(talk.run(beat_s=2.0, silence_s=SILENCE_S))
        person.listening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return person

    listening: asyncio.Task[Any]

    @property
    def state(self) -> str:
        return self.house.training.ledger[self.name].state

    @property
    def connection(self) -> InprocConnection:
        assert isinstance(self.talk.connection, InprocConnection)
        return self.talk.connection

    async def exchange(self) -> Grant | Wait:
        payload = as_bytes(np.ones_like(self.into)) if self.update is not None else b""
        answer = await self.talk.exchange(
            Exchange(update=self.update), payload, as_bytes(self.into)
        )
        self.update = None
        if isinstance(answer, Wait):
            self.waits.append(answer.reason)
        else:
            unit = answer.unit
            numbers = range(unit.first_batch, unit.first_batch + unit.batches)
            self.update = Update(
                unit=unit.id, base=answer.base, samples=sum(SAMPLES[n] for n in numbers),
                loss=1.0, metrics={}, compute_s=0.1, link=answer.link,
            )  # fmt: skip
        return answer

    async def work(self, pause_s: float = 0.01) -> None:
        while not self.house.over:
            answer = await self.exchange()
            await asyncio.sleep(answer.seconds if isinstance(answer, Wait) else pause_s)

    async def begin_upload(self, part: int) -> None:
        """The first `part` bytes of an update, and no more."""
        assert self.update is not None
        head = pack(Exchange(update=self.update, ticket=99), 4 * len(self.into))
        assert self.connection._twin is not None
        self.connection._twin._arrive(head + bytes(part))
        await asyncio.sleep(0)


def in_house(
    test: Callable[[House], Coroutine[Any, Any, None]],
    *,
    exchanges: int = 3,
    recipe: Recipe | None = None,
    epochs: int = 4,
    size: int = SIZE,
) -> House:
    async def main() -> House:
        house = House(
            recipe or AsyncSGD(lr=0.01, batch_size=10, overlap=0),
            exchanges=exchanges,
            epochs=epochs,
            size=size,
        )
        await house.open()
        try:
            await test(house)
        finally:
            await house.server.farewell("over")
            await asyncio.sleep(0.1)
        return house

    return run_virtual(main())


@pytest.mark.parametrize("exchanges", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "recipe",
    [
        AsyncSGD(lr=0.01, batch_size=10, overlap=1),
        Synchronous(batch_size=10),
        Downpour(batch_size=10, push_every=1, fetch_every=3, warm_start_batches=4),
    ],
    ids=lambda recipe: recipe.name,
)
def test_a_crowd_gets_through_a_narrow_gate(recipe: Recipe, exchanges: int) -> None:
    """Links of every speed, lanes that overlap, rounds that wait: all is done, within bounds."""

    async def test(house: House) -> None:
        def late(seconds: float) -> Route:
            return lambda message: (seconds,)

        house.slow_down(0.05)
        people = [await house.connect(there=late(0.3 * n), back=late(0.1 * n)) for n in range(6)]
        lanes = [
            asyncio.create_task(person.work())
            for person in people
            for _ in range(recipe.local().overlap + 1)
        ]
        done, _ = await asyncio.wait(lanes, timeout=600.0, return_when=asyncio.FIRST_EXCEPTION)
        for lane in done:
            lane.result()
        assert house.over

    house = in_house(test, exchanges=exchanges, recipe=recipe)
    assert 0 < house.most <= exchanges
    assert house.training.course.ending is not None
    assert house.training.course.ending.state == "finished"
    gate = house.server._desk.gate
    assert gate is not None
    assert (gate.free, gate.waiting) == (exchanges, 0)
    assert house.server._desk.pool.taken == 0


def test_small_vectors_need_no_place() -> None:
    async def test(house: House) -> None:
        assert house.server._desk.gate is None
        person = await house.connect()
        await person.work()

    in_house(test, size=small.SIZE)


def test_an_update_that_waits_for_a_place_says_so_and_its_silence_counts_for_nothing() -> None:
    async def test(house: House) -> None:
        first, second = await house.connect(), await house.connect()
        assert isinstance(await first.exchange(), Grant)
        assert isinstance(await second.exchange(), Grant)
        await first.begin_upload(1000)
        await second.begin_upload(1000)
        for _ in range(3 * int(SILENCE_S)):  # it gets on, if slowly
            await asyncio.sleep(1.0)
            assert first.connection._twin is not None
            first.connection._twin._arrive(bytes(17_000))
        assert second.state == "waiting: 1 exchange is under way; yours is next"
        assert house.training.ledger[second.name].connected
        first.connection.close()
        await asyncio.sleep(0.1)
        visit = house.server._talking[second.name]
        assert not visit.connection.paused, "there is room now"

    in_house(test, exchanges=1)


def test_whoever_goes_while_it_waits_for_a_place_leaves_none_behind() -> None:
    async def test(house: House) -> None:
        people = [await house.connect() for _ in range(3)]
        for person in people:
            assert isinstance(await person.exchange(), Grant)
        for person in people:
            await person.begin_upload(1000)
        gate = house.server._desk.gate
        assert gate is not None
        assert (gate.free, gate.waiting) == (0, 2)
        first, second, third = (person.connection for person in people)
        second.close()
        await asyncio.sleep(0.1)
        assert (gate.free, gate.waiting) == (0, 1)
        first.close()
        third.close()  # just when a place is given to it
        await asyncio.sleep(0.1)
        assert (gate.free, gate.waiting) == (1, 0)
        assert house.server._desk.pool.taken == 0

    in_house(test, exchanges=1)


def test_whoever_waits_for_us_is_not_in_doubt_and_loses_no_unit() -> None:
    async def test(house: House) -> None:
        first, second = await house.connect(), await house.connect()
        for _ in range(3):  # both have a usual time
            for person in (first, second):
                assert isinstance(await person.exchange(), Grant)
                await asyncio.sleep(0.1)
        await first.begin_upload(1000)
        await second.begin_upload(1000)
        for _ in range(25):  # longer than a lease
            await asyncio.sleep(1.0)
            assert first.connection._twin is not None
            first.connection._twin._arrive(bytes(17_000))
            assert not house.training.attendance.in_doubt
            assert house.training.book.holding(first.name) == 1, "it gets on"
            assert house.training.book.holding(second.name) == 1
        await asyncio.sleep(2 * small.LEASE_S)
        assert house.training.book.holding(second.name) == 0, "but not for ever"

    in_house(test, exchanges=1)


def test_a_round_waits_for_an_update_that_waits_for_a_place() -> None:
    async def test(house: House) -> None:
        first, second = await house.connect(), await house.connect()
        for _ in range(3):
            await asyncio.gather(first.exchange(), second.exchange())
        size = 4 * len(first.into)
        await first.begin_upload(size // 30)
        answer = asyncio.create_task(second.exchange())
        for _ in range(28):
            await asyncio.sleep(1.0)
            assert first.connection._twin is not None
            first.connection._twin._arrive(bytes(size // 30))
        first.connection._twin._arrive(bytes(size - 29 * (size // 30)))
        assert (await answer).verdict == "accepted"
        assert not house.training.ledger[first.name].ignored

    in_house(test, exchanges=1, recipe=Synchronous(batch_size=10))


def test_nobody_keeps_a_place_while_it_waits_for_a_round() -> None:
    async def test(house: House) -> None:
        people = [await house.connect() for _ in range(4)]
        for person in people:
            assert isinstance(await person.exchange(), Grant)
        before = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(person.exchange() for person in people))
        assert [answer.verdict for answer in answers] == ["accepted"] * 4
        assert asyncio.get_running_loop().time() - before < 0.5, "nobody ran out of patience"

    in_house(test, exchanges=1, recipe=Synchronous(batch_size=10))


def test_a_transfer_is_not_blamed_for_our_own_sleep() -> None:
    async def test(house: House) -> None:
        first, second = await house.connect(), await house.connect()
        for person in (first, second):
            assert isinstance(await person.exchange(), Grant)
        for person in (first, second):
            await person.begin_upload(1000)
        visit, now = house.server._talking[first.name], asyncio.get_running_loop().time()
        visit.look(Look(now + 300.0, now, 299.0))
        await asyncio.sleep(0.1)
        assert house.training.ledger[first.name].connected
        visit.look(Look(now + 300.0 + SILENCE_S, now, 299.0 + SILENCE_S))
        await asyncio.sleep(0.1)
        assert house.training.ledger[first.name].connected
        visit.look(Look(now + 300.0 + 2 * SILENCE_S, now + 300.0 + 2 * SILENCE_S, 0.0))
        await asyncio.sleep(0.1)
        assert not house.training.ledger[first.name].connected

    in_house(test, exchanges=1)


def test_a_question_that_waits_for_a_place_is_answered_with_the_reason() -> None:
    async def test(house: House) -> None:
        first, second = await house.connect(), await house.connect()
        assert isinstance(await first.exchange(), Grant)
        await first.begin_upload(1000)
        answer = await second.exchange()
        assert isinstance(answer, Wait)
        assert answer.reason == "1 exchange is under way; yours is next"
        assert second.state == f"waiting: {answer.reason}"
        first.connection.close()
        assert isinstance(await second.exchange(), Grant)

    in_house(test, exchanges=1)


def test_a_trickle_is_ended_while_others_wait_and_only_then() -> None:
    async def test(house: House) -> None:
        first = await house.connect()
        assert isinstance(await first.exchange(), Grant)
        await first.begin_upload(1000)

        async def trickle() -> None:
            while True:
                await asyncio.sleep(1.0)
                assert first.connection._twin is not None
                first.connection._twin._arrive(b"x")

        trickling = asyncio.create_task(trickle())
        await asyncio.sleep(5 * SILENCE_S)
        assert house.training.ledger[first.name].connected, "nobody waits"
        second = await house.connect()
        working = asyncio.create_task(second.work())
        await asyncio.sleep(3 * SILENCE_S)
        assert not house.training.ledger[first.name].connected
        assert first.state.startswith("too slow: only ")
        assert first.state.endswith("while others waited")
        with pytest.raises(PeerError, match="Too slow"):
            await first.listening
        trickling.cancel()
        await working

    in_house(test, exchanges=1)


def test_a_trickle_is_ended_also_while_others_are_told_to_ask_again() -> None:
    async def test(house: House) -> None:
        first, second = await house.connect(), await house.connect()
        assert isinstance(await first.exchange(), Grant)
        await first.begin_upload(1000)
        visit, gate = house.server._talking[first.name], house.server._desk.gate
        assert gate is not None
        now = asyncio.get_running_loop().time()
        assert isinstance(await second.exchange(), Wait)
        assert gate.waiting == 0, "nobody waits now"
        visit.look(Look(now + SILENCE_S, now + SILENCE_S, 0.0))
        await asyncio.sleep(0.1)
        assert first.state.startswith("too slow: only ")

    in_house(test, exchanges=1)


def test_one_member_never_takes_all_places() -> None:
    async def test(house: House) -> None:
        greedy, other = await house.connect(), await house.connect()
        visit, gate = house.server._talking[greedy.name], house.server._desk.gate
        assert gate is not None
        taken = asyncio.Event()

        async def never(message: Message, payload: Payload = b"") -> None:
            await taken.wait()

        visit.connection.send = never  # type: ignore[method-assign]
        for _ in range(MAX_QUESTIONS):
            await greedy.connection.send(Exchange())
        await asyncio.sleep(0.5)
        assert (gate.free, gate.waiting) == (2, MAX_QUESTIONS - 2), "it has two lanes"
        for _ in range(3):
            assert isinstance(await other.exchange(), Grant)
        taken.set()

    in_house(test, exchanges=4, recipe=AsyncSGD(lr=0.01, batch_size=10, overlap=1))


def test_an_update_of_a_unit_its_sender_never_had_takes_no_place() -> None:
    async def test(house: House) -> None:
        update = Update(
            unit=UnitId(0), base=house.training.parameters.version, samples=1, loss=1.0,
            metrics={}, compute_s=0.1,
        )  # fmt: skip
        strangers = [await house.connect() for _ in range(5)]
        gate, pool = house.server._desk.gate, house.server._desk.pool
        assert gate is not None
        for stranger in strangers:
            stranger.update = update
        for stranger in strangers[1:]:
            await stranger.begin_upload(1000)
        answer = await strangers[0].exchange()
        assert answer.verdict == "unknown_unit"
        assert house.training.ledger[strangers[0].name].refused == {"unknown_unit": 1}
        assert isinstance(answer, Grant), "it is a member like others"
        assert (gate.free, pool.taken, pool.spare) == (3, 0, 0)

    in_house(test)


def test_an_update_sent_again_is_answered_and_goes_on() -> None:
    """Its answer was lost: the volunteer comes back with it, large as it is, and is not cut off."""

    async def test(house: House) -> None:
        identity = guest()
        first = await Person.join(house, identity=identity)
        assert isinstance(await first.exchange(), Grant)
        update = first.update
        assert (await first.exchange()).verdict == "accepted"
        second = await Person.join(house, identity=identity)
        second.update = update
        pool = house.server._desk.pool
        pool.take = None  # type: ignore[method-assign, assignment]
        answer = await second.exchange()
        del pool.take
        assert answer.verdict == "already_done"
        assert isinstance(answer, Grant)
        assert (await second.exchange()).verdict == "accepted"

    in_house(test)


def test_slow_uploads_leave_room_for_the_quick() -> None:
    async def test(house: House) -> None:
        slow = [await house.connect() for _ in range(4)]
        for person in slow:
            assert isinstance(await person.exchange(), Grant)
        quick = await house.connect()
        for _ in range(3):  # it is known to be quick now
            assert isinstance(await quick.exchange(), Grant)
        for person in slow:
            await person.begin_upload(1000)
        await asyncio.sleep(3.0)
        before = asyncio.get_running_loop().time()
        for _ in range(5):
            assert isinstance(await quick.exchange(), Grant)
        assert asyncio.get_running_loop().time() - before < 1.0

    in_house(test, exchanges=5)


def test_data_is_sent_beside_the_conversation() -> None:
    """Somebody who does not take its data does not keep its own update waiting in a place."""

    async def test(house: House) -> None:
        person = await house.connect()
        assert isinstance(await person.exchange(), Grant)
        far = person.connection
        person.listening.cancel()
        await asyncio.gather(person.listening, return_exceptions=True)
        far.set_sink(lambda message, length: memoryview(bytearray(length)))
        for name in house.blobs:  # and nobody reads: `send` on the other side waits
            for _ in range(20):
                await far.send(Get(hash=name))
        assert far.paused
        assert person.update is not None
        await far.send(
            Exchange(update=person.update, ticket=7), as_bytes(np.ones_like(person.into))
        )
        await asyncio.sleep(1.0)
        assert house.training.ledger[person.name].units == 1

    in_house(test, exchanges=1)


def test_whoever_asks_without_end_is_turned_away() -> None:
    async def test(house: House) -> None:
        first, second = await house.connect(), await house.connect()
        assert isinstance(await first.exchange(), Grant)
        await first.begin_upload(1000)
        for _ in range(MAX_QUESTIONS + 1):
            await second.connection.send(Exchange())
        await asyncio.sleep(0.1)
        assert second.state == (
            f"turned away: {MAX_QUESTIONS} questions wait for their answers already"
        )

    in_house(test, exchanges=1)


def test_a_fetch_in_the_middle_of_a_unit_waits_for_its_place() -> None:
    async def test(house: House) -> None:
        first, second = await house.connect(), await house.connect()
        assert isinstance(await first.exchange(), Grant)
        assert isinstance(await second.exchange(), Grant)
        await first.begin_upload(1000)
        fetching = asyncio.create_task(second.talk.fetch(as_bytes(second.into)))
        await asyncio.sleep(3.0)
        assert not fetching.done()
        first.connection.close()
        fresh = await fetching
        assert fresh.base == house.training.parameters.version

    in_house(
        test,
        exchanges=1,
        recipe=Downpour(batch_size=10, push_every=2, fetch_every=1),
    )


def test_bytes_are_credited_as_they_come_and_go() -> None:
    async def test(house: House) -> None:
        person = await house.connect()
        await person.exchange()
        await person.exchange()
        await asyncio.sleep(0.1)
        account = house.training.ledger[person.name]
        assert account.bytes_received == person.connection.sent_bytes > 4 * SIZE
        person.connection.close()
        await asyncio.sleep(0.1)
        assert account.bytes_sent == person.connection.received_bytes > 2 * 4 * SIZE
        assert account.bytes_received == person.connection.sent_bytes

    in_house(test)


class Room(bytearray):
    """Memory of which one can tell whether somebody still has it."""


def test_no_update_is_kept_alive_by_whoever_waits_for_the_next_one() -> None:
    rooms: list[weakref.ref[Room]] = []

    async def test(house: House) -> None:
        pool = house.server._desk.pool

        def take() -> memoryview:
            pool.taken += 1
            made = Room(4 * SIZE)
            rooms.append(weakref.ref(made))
            return memoryview(made)

        pool.take = take  # type: ignore[method-assign]
        for person in [await house.connect() for _ in range(3)]:
            for _ in range(2):
                assert isinstance(await person.exchange(), Grant)
        gc.collect()
        assert len(rooms) == 3
        assert sum(room() is not None for room in rooms) == pool.spare

    in_house(test, exchanges=1)


# -- presence -----------------------------------------------------------------------------------


def test_what_somebody_silent_was_at_is_offered_at_once_and_taken_back_when_it_is_heard_of() -> (
    None
):
    async def test(house: House) -> None:
        dead = False

        def link(message: Message) -> tuple[float, ...]:
            return () if dead else (0.0,)

        person, other = await house.connect(there=link), await house.connect()
        answer = await person.exchange()
        assert isinstance(answer, Grant)
        dead = True
        await asyncio.sleep(0.6 * SILENCE_S)
        assert person.state.startswith("in doubt: nothing heard for ")
        assert house.training.book.holding(person.name) == 0
        again = await other.exchange()
        assert isinstance(again, Grant)
        assert again.unit == answer.unit
        dead = False
        await asyncio.sleep(4.5)
        assert person.state == "back after a silence"
        assert (await person.exchange()).verdict == "accepted", "the first valid update counts"
        assert (await other.exchange()).verdict == "already_done"

    in_house(test)


def test_somebody_who_beats_but_gets_nothing_done_loses_its_unit_but_not_its_place() -> None:
    async def test(house: House) -> None:
        person, other = await house.connect(), await house.connect()
        for _ in range(4):
            answer = await person.exchange()
            await asyncio.sleep(0.1)
        assert isinstance(answer, Grant)
        await asyncio.sleep(8.0)
        assert person.state.startswith("in doubt: at a unit for ")
        assert person.state.endswith(", usually 0.1 s")
        again = await other.exchange()
        assert isinstance(again, Grant)
        assert again.unit == answer.unit
        await asyncio.sleep(5 * SILENCE_S)
        assert house.training.ledger[person.name].connected
        assert (await person.exchange()).verdict == "accepted"
        assert person.state == "training"

    in_house(test)


def test_who_falls_silent_for_good_goes_with_the_reason() -> None:
    async def test(house: House) -> None:
        dead = False
        person = await house.connect(there=lambda message: () if dead else (0.0,))
        dead = True
        await asyncio.sleep(1.5 * SILENCE_S)
        assert not house.training.ledger[person.name].connected
        assert person.state.startswith("fell silent: nothing heard for 10 s (")

    in_house(test)


def test_a_host_that_slept_takes_nobody_for_gone() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        node = Node("host")
        house = House(AsyncSGD(lr=0.01, batch_size=10, overlap=0), exchanges=3)
        await node.spawn(house.open())
        asleep = False
        person = await node.spawn(house.connect(there=lambda message: () if asleep else (0.0,)))
        await asyncio.sleep(3.1)
        loop.freeze(node)
        asleep = True  # what is sent meanwhile waits on the way
        await asyncio.sleep(300.0)
        loop.thaw(node)
        asleep = False
        await asyncio.sleep(5.0)
        assert house.training.ledger[person.name].connected
        assert person.state == "joined"
        await house.server.farewell("over")
        await asyncio.sleep(0.1)

    run_virtual(main())


def test_a_host_that_slept_leaves_everybody_its_units() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        node = Node("host")
        house = House(AsyncSGD(lr=0.01, batch_size=10, overlap=0), exchanges=3)
        await node.spawn(house.open())
        person = await node.spawn(house.connect())
        for _ in range(3):  # it has a usual time
            assert isinstance(await node.spawn(person.exchange()), Grant)
            await asyncio.sleep(0.1)
        loop.freeze(node)
        await asyncio.sleep(300.0)
        loop.thaw(node)
        for _ in range(20):
            await asyncio.sleep(0.1)
            assert house.training.book.holding(person.name) == 1
            assert house.training.ledger[person.name].asked
            assert not house.training.attendance.in_doubt
        await asyncio.sleep(small.LEASE_S)
        assert house.training.book.holding(person.name) == 0, "awake, time counts again"
        await house.server.farewell("over")
        await asyncio.sleep(0.1)

    run_virtual(main())


def test_our_sleep_is_noticed_by_whoever_looks_first() -> None:
    """A beat that waited for us is heard just now, long after the unit was given."""

    async def test(house: House) -> None:
        person = await house.connect()
        for _ in range(3):  # it has a usual time
            assert isinstance(await person.exchange(), Grant)
            await asyncio.sleep(0.1)
        visit, now = house.server._talking[person.name], asyncio.get_running_loop().time()
        await house.training.tick(now)
        visit.look(Look(now + 300.0, now + 300.0, 0.0))
        assert not house.training.attendance.in_doubt
        await house.training.tick(now + 300.0)
        assert house.training.book.holding(person.name) == 1
        for seconds in range(1, 10):  # awake, time counts again
            visit.look(Look(now + 300.0 + seconds, now + 300.0 + seconds, 0.0))
        assert house.training.attendance.in_doubt == {person.name}

    in_house(test)


def test_a_volunteer_that_comes_back_from_another_address_takes_over_at_once() -> None:
    async def test(house: House) -> None:
        identity = guest()
        first = await Person.join(house, identity=identity)
        answer = await first.exchange()
        assert isinstance(answer, Grant)
        second = await Person.join(house, identity=identity)
        [gone] = house.training.ledger.departures.last(5)
        assert gone.reason.startswith("came back on another connection, from ")
        again = await second.exchange()
        assert isinstance(again, Grant)
        assert again.unit == answer.unit, "its old connection does not work on it any more"
        with pytest.raises(PeerError, match="same key"):
            await first.listening
        await asyncio.sleep(3 * SILENCE_S)
        assert house.training.ledger[second.name].connected
        assert house.training.ledger.departures.total == 1

    in_house(test)


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        (lambda link: link.send(Leave(reason="dinner")), "left: dinner"),
        (lambda link: link.send(Fetch()), "turned away: There is nothing to fetch for"),
        (lambda link: link.send(Exchange(), b"123"), "turned away: A Exchange came with 3 bytes"),
        (lambda link: link.send(Get(hash="0" * 64)), "turned away: There are no bytes with"),
    ],
)
def test_every_departure_has_its_reason(
    deed: Callable[[InprocConnection], Coroutine[Any, Any, None]], reason: str
) -> None:
    async def test(house: House) -> None:
        person = await house.connect()
        await deed(person.connection)
        await asyncio.sleep(0.1)
        assert person.state.startswith(reason)
        assert person.state == house.training.ledger.departures.last(1)[0].reason

    in_house(test)


def test_reasons_are_words_for_a_list() -> None:
    assert departure(ConnectionLost("Connection reset by peer (a:1).")) == (
        "connection reset by peer (a:1)"
    )
    assert departure(FrameError("Nonsense.")) == "turned away: Nonsense"


# -- many ---------------------------------------------------------------------------------------


def test_news_of_the_roster_are_rarer_the_more_there_are() -> None:
    assert roster_every_s(10) == roster_every_s(1) < 1.0
    for members in (100, 1000):
        assert members * members / roster_every_s(members) <= 20_000, "lines a second"


def test_one_who_does_not_listen_to_news_keeps_nobody_waiting() -> None:
    async def test(house: House) -> None:
        people = [await house.connect() for _ in range(3)]
        deaf, *others = people
        deaf.listening.cancel()
        heard: list[int] = []
        for person in others:
            person.talk._route = lambda message, payload: heard.append(1)  # type: ignore[method-assign]
        for _ in range(30):
            (await house.connect()).connection.close()
            await asyncio.sleep(1.0)
        assert len(heard) > 2 * 20
        assert isinstance(await (await house.connect()).exchange(), Grant)

    in_house(test)
