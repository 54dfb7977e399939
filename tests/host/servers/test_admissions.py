"""Who may push and pull, how much of it, and what becomes of pushes whose volunteer has gone."""

from __future__ import annotations

import asyncio

import pytest

from crowdgrad.domain.work import UnitId, Version, VolunteerId
from crowdgrad.errors import MessageError, PeerError, TurnedAway
from crowdgrad.host.parameters import Parameters
from crowdgrad.host.servers.arrivals import MAX_OPEN, Arrivals
from crowdgrad.net.heartbeat import keep_alive
from crowdgrad.net.messages import Enter, Push, Staged
from crowdgrad.numerics.rules import DelayCompensated
from tests.host.servers.specs import spec_of
from tests.host.servers.town import BEGIN, SERVING, Town, Volunteer, begins, gradient, in_town

SPEC = spec_of([(300,), (40, 5)])
ADA = VolunteerId("ada")


def staged(push: int, unit: int, admission: int = 1) -> Staged:
    return Staged(
        push=push, volunteer=ADA, unit=UnitId(unit), incarnation=0, sound=True, admission=admission
    )


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("stale", [(0,), (1,), (0, 1)])
def test_parts_of_before_are_not_taken_for_those_pushed_again(
    stale: tuple[int, ...], steps: int
) -> None:
    """Whenever the host hears that its volunteer has gone and come back: `steps` of the loop."""

    async def test(town: Town) -> None:
        ada = await town.volunteer("ada")
        push = Push(unit=UnitId(5), granted=BEGIN)
        for number in stale:
            await ada.push_to(number, push, gradient(SPEC, 1))
        for _ in range(steps):
            await asyncio.sleep(0)
        town.parameters.left(ADA)
        back = await town.volunteer("ada")
        waiting = town.begin(town.receive("ada", 5))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        answers = await back.push(5, gradient(SPEC, 2))
        assert await town.parameters.apply(await waiting, BEGIN, rate=0.1) == 0
        assert [(await answer)[0].base for answer in answers] == [BEGIN.next()] * 2
        one = Parameters(begins(SPEC), town.rule, BEGIN, SERVING, SPEC)
        await one.apply(gradient(SPEC, 2), BEGIN, rate=0.1)
        assert (await town.parameters.copy())[0].tobytes() == (await one.copy())[0].tobytes()
        assert not any(town.holder(number)._staged for number in (0, 1))

    in_town(SPEC, 2, test)


def test_an_old_admission_is_refused_also_where_its_push_is_heard_of_late() -> None:
    refused: list[tuple[int, int]] = []
    arrivals = Arrivals(lambda who: (0, 1), lambda server, push: refused.append((server, push)))
    arrivals.joined(ADA, 1)
    arrivals.left(ADA)
    arrivals.joined(ADA, 2)
    arrivals.staged(0, staged(7, unit=5, admission=1))
    assert refused == [(0, 7)]
    assert len(arrivals) == 0


def test_what_a_lost_server_had_is_never_asked_for_by_its_old_number() -> None:
    arrivals = Arrivals(lambda who: (0, 1), lambda server, push: None)
    arrivals.joined(ADA, 1)
    arrivals.staged(0, staged(7, unit=5))
    arrivals.staged(1, staged(8, unit=5))
    arrivals.lost(0)
    assert arrivals.take(arrivals.of(ADA, UnitId(5))) == {1: 8}


def test_one_volunteer_has_only_so_many_updates_under_way() -> None:
    refused: list[int] = []
    arrivals = Arrivals(lambda who: (0,), lambda server, push: refused.append(push))
    arrivals.joined(ADA, 1)
    for number in range(MAX_OPEN + 3):
        arrivals.staged(0, staged(number, unit=number))
    assert (len(arrivals), refused) == (MAX_OPEN, [MAX_OPEN, MAX_OPEN + 1, MAX_OPEN + 2])
    with pytest.raises(MessageError):
        arrivals.of(ADA, UnitId(999))
    arrivals.left(ADA)
    assert len(arrivals) == 0


def test_coming_again_and_again_gives_nobody_more_room() -> None:
    async def test(town: Town) -> None:
        eve = await town.volunteer("eve")
        for unit in range(6):
            push = Push(unit=UnitId(unit), granted=BEGIN)
            town.begin(eve.push_to(0, push, gradient(SPEC, 1)))
            await asyncio.sleep(0.1)
            if unit < 5:
                eve.go()
                await asyncio.sleep(0.1)
                eve = await Volunteer.enter(town, "eve")
        most = town.local.overlap + 1
        assert len(town.holder(0)._staged) == len(town.parameters.arrivals) == most
        # What is decided makes room on the connection it has now.
        first = town.parameters.arrivals.of(VolunteerId("eve"), UnitId(0))
        town.parameters.let_go(first)
        await asyncio.sleep(0.1)
        assert {p.push.unit for p in town.holder(0)._staged.values()} == {1, 5}

    in_town(SPEC, 1, test)


def test_who_has_left_is_let_go_and_in_again_only_when_admitted_anew() -> None:
    async def test(town: Town) -> None:
        ada = await town.volunteer("ada")
        old = town.parameters.admission_of(ADA)
        town.parameters.left(ADA)
        with pytest.raises(PeerError, match="over"):
            await ada.pull()
        with pytest.raises(TurnedAway, match="over"):
            await Volunteer.enter(town, "ada", admission=old)
        await (await town.volunteer("ada")).pull()
        with pytest.raises(TurnedAway, match="over"):  # it does not replace the later one, either
            await Volunteer.enter(town, "ada", admission=old)

    in_town(SPEC, 2, test)


def test_a_server_that_was_started_again_knows_which_admissions_are_over() -> None:
    async def test(town: Town) -> None:
        await town.volunteer("ada")
        old = town.parameters.admission_of(ADA)
        before, _ = await town.parameters.save(lambda: None)
        town.parameters.left(ADA)
        await town.stop_server(0)
        await town.start_server(0)
        await asyncio.sleep(6.0)
        await town.parameters.go_back(before, Version(incarnation=1, count=0))
        await asyncio.sleep(0.1)
        with pytest.raises(TurnedAway, match="over"):
            await Volunteer.enter(town, "ada", admission=old)

    in_town(SPEC, 1, test)


def test_admissions_of_the_next_host_are_higher_than_all_of_this_one() -> None:
    town_of = [Town(SPEC, 1), Town(SPEC, 1)]
    for number in range(5):
        town_of[0].parameters.joined(VolunteerId(f"v{number}"))
    town_of[1].parameters.version = Version(incarnation=1, count=0)  # as it goes on
    assert town_of[1].parameters.next_admission > town_of[0].parameters.next_admission


def test_an_entrance_is_written_down_without_its_token() -> None:
    assert "5eccre7" not in repr(Enter(volunteer=ADA, token="5eccre7", admission=3))


# -- what one volunteer can keep from changing ----------------------------------------------------


async def one_update(town: Town, ada: Volunteer, unit: int) -> None:
    base = town.parameters.version
    answers = await ada.push(unit, gradient(SPEC, unit))
    arrival = await town.receive("ada", unit)
    await town.parameters.apply(arrival, base, rate=0.1)
    await asyncio.gather(*answers)


def test_who_asks_much_and_reads_nothing_keeps_only_a_few_states() -> None:
    async def test(town: Town) -> None:
        eve, ada = await town.volunteer("eve"), await town.volunteer("ada")
        for link in (*eve.links.values(), *ada.links.values()):
            town.begin(keep_alive(link, beat_s=1, silence_s=50))
        for listening in eve._listening:
            listening.cancel()
        pinned = []
        for unit in range(12):
            town.begin(eve.push_to(0, Push(lane=unit % 2)))
            await asyncio.sleep(0.01)
            await one_update(town, ada, unit)
            pinned.append(town.holder(0).parameters.pinned)
        assert max(pinned) == town.local.overlap + 1
        assert pinned[-1] == 0  # it asked too much, and had to go

    in_town(SPEC, 1, test)


def test_there_are_only_the_lanes_of_the_job() -> None:
    async def test(town: Town) -> None:
        eve = await town.volunteer("eve")
        for lane in range(town.local.overlap + 1):
            await (await eve.push_to(0, Push(lane=lane)))
        with pytest.raises(PeerError, match="lane 2"):
            await (await eve.push_to(0, Push(lane=2)))

    in_town(SPEC, 1, test)


def test_what_is_of_an_incarnation_that_is_over_makes_room_for_what_follows() -> None:
    async def test(town: Town) -> None:
        ada, before = await town.volunteer("ada"), await town.parameters.save(lambda: None)
        version = Version(incarnation=1, count=0)
        await town.parameters.go_back(before[0], version)
        await ada.pull(since=version)
        asking = [
            ada.push_to(0, Push(unit=UnitId(unit), granted=BEGIN), gradient(SPEC, unit))
            for unit in range(4)
        ]
        answers = await asyncio.gather(*asking)
        assert [(await answer)[0].base for answer in answers] == [version] * 4

    in_town(SPEC, 1, test)


def test_who_is_broken_off_while_its_start_is_kept_leaves_nothing() -> None:
    spec = spec_of([(400_000,)])

    async def test(town: Town) -> None:
        await town.volunteer("eve")
        eve, holder = VolunteerId("eve"), town.holder(0)

        async def asks() -> None:
            async with holder.published(eve, Push()):
                await asyncio.sleep(9)

        asking = town.begin(asks())
        while BEGIN not in holder.parameters._wanted:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        holder.gone(eve)
        assert not holder.parameters._held
        assert not holder.parameters._wanted

    in_town(spec, 1, test, rule=DelayCompensated())
