"""Every update once and on all servers or on none, also when one of them is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from crowdgrad.domain.work import UnitId, Version, VolunteerId
from crowdgrad.errors import ConnectionLost, PeerError, TurnedAway
from crowdgrad.net.messages import Push
from crowdgrad.numerics.rules import Adam
from tests.host.servers.specs import spec_of
from tests.host.servers.town import BEGIN, Town, Volunteer, alone, gradient, in_town, same, saved

SPEC = spec_of([(300,), (40, 5)])
WHO = ("ada", "ben", "cleo")


def test_nothing_happens_before_every_part_is_there() -> None:
    async def test(town: Town) -> None:
        ada = await town.volunteer("ada")
        waiting = town.begin(town.receive("ada", 0))
        push = Push(unit=UnitId(0), granted=BEGIN)
        first = await ada.push_to(0, push, gradient(SPEC, 1))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        assert not first.done()
        await ada.push_to(1, push, gradient(SPEC, 1))
        arrival = await waiting
        assert arrival.sound
        assert not first.done()  # the host has not decided yet
        assert await town.parameters.apply(arrival, BEGIN, rate=0.1) == 0
        assert (await first)[0].base == BEGIN.next()

    in_town(SPEC, 2, test)


def test_one_part_that_is_not_finite_spoils_all_and_changes_nothing() -> None:
    async def test(town: Town) -> None:
        ada, before = await town.volunteer("ada"), await saved(town.parameters)
        update = gradient(SPEC, 1)
        update[-1] = np.inf
        answers = await ada.push(0, update)
        arrival = await town.receive("ada", 0)
        assert not await town.parameters.acceptable(arrival)
        town.parameters.let_go(arrival)
        assert [(await answer)[0].base for answer in answers] == [BEGIN, BEGIN]
        same(await saved(town.parameters), before)
        assert await town.parameters.sound()

    in_town(SPEC, 2, test)


def test_an_update_is_applied_once_however_often_it_is_pushed() -> None:
    async def test(town: Town) -> None:
        ada, one = await town.volunteer("ada"), alone(town)
        update = gradient(SPEC, 1)
        twice = [await ada.push(0, update), await ada.push(0, update)]
        await asyncio.sleep(0.1)
        arrival = await town.receive("ada", 0)
        assert await town.parameters.apply(arrival, BEGIN, rate=0.1) == 0
        assert await town.parameters.apply(arrival, BEGIN, rate=0.1) is None
        town.parameters.let_go(arrival)
        await one.apply(update, BEGIN, rate=0.1)
        await asyncio.sleep(0.1)
        assert all(answer.done() for answers in twice for answer in answers)
        state, _ = await town.parameters.copy()
        assert state.tobytes() == (await one.copy())[0].tobytes()

    in_town(SPEC, 2, test)


def test_whoever_goes_is_waited_for_no_longer_and_leaves_nothing() -> None:
    async def test(town: Town) -> None:
        ada = await town.volunteer("ada")
        waiting = town.begin(town.receive("ada", 0))
        push = Push(unit=UnitId(0), granted=BEGIN)
        first = await ada.push_to(0, push, gradient(SPEC, 1))
        await asyncio.sleep(0.1)
        town.parameters.left(VolunteerId("ada"))
        with pytest.raises(ConnectionLost):
            await waiting
        assert (await first)[0].base == BEGIN  # refused, so that nobody waits for ever
        with pytest.raises(PeerError):
            await (await ada.push_to(1, push, gradient(SPEC, 1)))
        assert not town.holder(0)._staged
        assert len(town.parameters.arrivals) == 0

    in_town(SPEC, 2, test)


def test_a_volunteer_that_pushes_too_much_is_read_no_further() -> None:
    async def test(town: Town) -> None:
        ada = await town.volunteer("ada")
        pushing = town.begin(_push_many(ada, 4))
        await asyncio.sleep(1.0)
        holder_bound = town.local.overlap + 1
        staged = [
            a
            for a in (0, 1, 2, 3)
            if town.parameters.arrivals.of(VolunteerId("ada"), UnitId(a)).pushes
        ]
        assert len(staged) == holder_bound == 2
        for unit in range(4):
            arrival = await town.receive("ada", unit, BEGIN)
            await town.parameters.apply(arrival, BEGIN, rate=0.1)
        await pushing
        assert town.parameters.version.count == 4

    in_town(SPEC, 1, test)


async def _push_many(person: Volunteer, count: int) -> None:
    for unit in range(count):
        push = Push(unit=UnitId(unit), granted=BEGIN)
        await person.push_to(0, push, gradient(SPEC, unit))


# -- going back, and servers that are lost --------------------------------------------------------


def test_after_going_back_nobody_waits_for_what_was_before() -> None:
    async def test(town: Town) -> None:
        ada, before = await town.volunteer("ada"), await saved(town.parameters)
        waiting = town.begin(town.receive("ada", 0))
        push = Push(unit=UnitId(0), granted=BEGIN)
        first = await ada.push_to(0, push, gradient(SPEC, 1))
        await asyncio.sleep(0.1)
        version = Version(incarnation=1, count=0)
        await town.parameters.go_back(before, version)
        arrival = await waiting
        assert arrival.over
        assert await town.parameters.apply(arrival, BEGIN, rate=0.1) is None
        assert (await first)[0].base == version
        late = await ada.push_to(1, push, gradient(SPEC, 1))
        assert (await late)[0].base == version  # of an incarnation that is over: answered at once
        assert not (await town.receive("ada", 0, BEGIN)).pushes  # nothing to wait for, either
        again = await ada.push(0, gradient(SPEC, 2))
        arrival = await town.receive("ada", 0, version)
        assert await town.parameters.apply(arrival, version, rate=0.1) == 0
        assert [(await answer)[0].base for answer in again] == [version.next()] * 2

    in_town(SPEC, 2, test)


def test_a_lost_server_stops_everything_until_all_have_gone_back() -> None:
    async def test(town: Town) -> None:
        ada, before = await town.volunteer("ada"), await saved(town.parameters)
        answers = await ada.push(0, gradient(SPEC, 1))
        await town.parameters.apply(await town.receive("ada", 0), BEGIN, rate=0.1)
        await asyncio.gather(*answers)
        await town.stop_server(1)
        assert len(town.lost) == 1
        assert "parameter server 2" in town.parameters.away
        with pytest.raises(PeerError):
            await saved(town.parameters)
        version = Version(incarnation=1, count=0)
        await town.parameters.go_back(before, version)
        assert town.parameters.away
        await town.start_server(1)
        await asyncio.sleep(6.0)
        assert not town.parameters.away
        same(await saved(town.parameters), replace(before, version=version))
        assert len(town.lost) == 1

    in_town(SPEC, 2, test, rule=Adam())


def test_a_server_that_is_back_before_all_went_back_waits_for_it() -> None:
    async def test(town: Town) -> None:
        before = await saved(town.parameters)
        await town.stop_server(0)
        await town.start_server(0)
        await asyncio.sleep(6.0)
        assert "no numbers" in town.parameters.away
        version = Version(incarnation=1, count=0)
        await town.parameters.go_back(before, version)
        assert not town.parameters.away
        same(await saved(town.parameters), replace(before, version=version))

    in_town(SPEC, 2, test)


def test_a_server_that_knows_another_secret_is_not_used() -> None:
    async def test(town: Town) -> None:
        await town.stop_server(0)
        await town.start_server(0, secret=b"another secret!!")
        await asyncio.sleep(6.0)
        assert "secret" in town.parameters.away

    in_town(SPEC, 2, test)


def test_nobody_enters_without_the_hosts_token() -> None:
    async def test(town: Town) -> None:
        with pytest.raises(TurnedAway, match="token"):
            await Volunteer.enter(town, "ada", token="0" * 64)

    in_town(SPEC, 2, test)


def test_a_push_of_the_wrong_length_is_refused() -> None:
    async def test(town: Town) -> None:
        ada = await town.volunteer("ada")
        ada.part_of = lambda number, update: memoryview(bytes(12))  # type: ignore[method-assign]
        push = Push(unit=UnitId(0), granted=BEGIN)
        with pytest.raises(PeerError, match="12 bytes"):
            await (await ada.push_to(0, push, gradient(SPEC, 1)))

    in_town(SPEC, 2, test)
