"""Who is here, in doubt or gone, and why, over real conversations in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from crowdgrad.errors import ConnectionLost, FrameError, PeerError
from crowdgrad.host.server import departure, roster_every_s
from crowdgrad.net.heartbeat import Look
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Fetch, Get, Grant, Leave, Message
from crowdgrad.net.transport.inproc import InprocConnection
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.simulator.virtual_time import Node, VirtualLoop
from tests.host import small
from tests.host.house import SILENCE_S, House, Person, in_house
from tests.virtual_time import run_virtual


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
