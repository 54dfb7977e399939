"""Large vectors over real conversations, in virtual time: bounded, fair, and never stuck."""

from __future__ import annotations

import asyncio
import gc
import weakref

import numpy as np
import pytest

from crowdgrad.domain.work import UnitId, Update
from crowdgrad.errors import PeerError
from crowdgrad.host.visit import MAX_QUESTIONS
from crowdgrad.net.heartbeat import Look
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Get, Grant, Message, Wait
from crowdgrad.net.transport.base import Payload
from crowdgrad.net.transport.inproc import Route
from crowdgrad.numerics.vectors import as_bytes
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous
from tests.host import small
from tests.host.house import SILENCE_S, SIZE, House, Person, in_house


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
    assert house.training.parameters.pool.taken == 0


@pytest.mark.parametrize("size", [SIZE, small.SIZE], ids=["large", "small"])
def test_everybody_hears_how_much_of_all_samples_is_theirs(size: int) -> None:
    async def test(house: House) -> None:
        first, second = await house.connect(), await house.connect()
        grants = [await person.exchange() for person in (first, second, first, second, first)]
        ledger = house.training.ledger
        last = grants[-1]
        assert isinstance(last, Grant)
        assert 0 < last.yours < last.given <= ledger.total_samples
        assert last.yours <= ledger[first.name].samples
        assert isinstance(grants[0], Grant)
        assert (grants[0].yours, grants[0].given) == (0, 0)
        await house.server.farewell("over")
        finished = await first.listening
        assert finished.samples == ledger[first.name].samples
        assert finished.given == ledger.total_samples > finished.samples > 0

    in_house(test, size=size)


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
        assert house.training.parameters.pool.taken == 0

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
        gate, pool = house.server._desk.gate, house.training.parameters.pool
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
        pool = house.training.parameters.pool
        pool.take = None  # type: ignore[method-assign, assignment]
        answer = await second.exchange()
        del pool.take
        assert answer.verdict == "already_done"
        assert isinstance(answer, Grant)
        assert (await second.exchange()).verdict == "accepted"

    in_house(test)


def test_a_replica_does_not_go_on_from_an_update_said_twice() -> None:
    async def test(house: House) -> None:
        identity = guest()
        first = await Person.join(house, identity=identity)
        assert isinstance(await first.exchange(), Grant)
        update = first.update
        assert update is not None
        assert (await first.exchange()).verdict == "accepted"
        second = await Person.join(house, identity=identity)
        # As it is where the earlier connection's update was accepted only after the second joined.
        house.training.ledger[second.name].chains[update.unit] = (update.base, 1)
        second.update = update
        answer = await second.exchange()
        assert answer.verdict == "already_done"
        assert isinstance(answer, Grant)
        assert (answer.link, answer.base) == (0, house.training.parameters.version)

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
        pool = house.training.parameters.pool

        def take(size: int) -> memoryview:
            pool.taken += 1
            made = Room(size)
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
