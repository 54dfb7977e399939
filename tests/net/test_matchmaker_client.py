"""Hosts and volunteers against a real matchmaker in its own process, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crowdgrad.domain.job import Member, Roster
from crowdgrad.domain.matching import Code, JobListing
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import Replaced, TargetError, TurnedAway, Unreachable
from crowdgrad.net import rooms
from crowdgrad.net.matchmaker import HostPresence, Match, VolunteerPresence, publish, wait_for_job
from crowdgrad.net.presence import WEB, normalise
from tests.matchmaker.running import Running, offer, volunteer, worker

WITHIN_S = 20.0


@pytest.fixture
def matchmaker(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as running:
        yield running


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario, 3 * WITHIN_S)

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 (many conditions, none of them an event)
            await asyncio.sleep(0.01)


def ids(roster: Roster) -> list[tuple[int, str]]:
    return [(member.position, member.id) for member in roster.members]


async def leave(*all_present: HostPresence | Match) -> None:
    for one in all_present:
        await (one if isinstance(one, HostPresence) else one.presence).close()


def test_everyone_gets_the_same_roster_and_hyperparameters(matchmaker: Running) -> None:
    async def scenario() -> None:
        rosters: list[Roster] = []
        host = await publish(matchmaker.url, offer(), worker=worker(), on_roster=rosters.append)
        a = await wait_for_job(matchmaker.url, volunteer("a"))
        assert ids(a.roster) == [(0, "worker0"), (1, "a")]
        host.set_state("running")
        b = await wait_for_job(matchmaker.url, volunteer("b"), wants=host.code)
        expected = [(0, "worker0"), (1, "a"), (2, "b")]
        await until(lambda: ids(host.roster) == expected)
        await until(
            lambda: a.presence.match is not None and ids(a.presence.match.roster) == expected
        )
        assert ids(b.roster) == expected
        assert b.listing.state == "running", "joined while running"
        assert (a.position, b.position) == (1, 2)
        assert a.listing.offer == b.listing.offer == offer()
        assert rosters[-1] == host.roster
        await leave(a, b, host)

    run(scenario())


def test_a_volunteer_that_leaves_keeps_its_place(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await publish(matchmaker.url, offer(), worker=worker())
        a = await wait_for_job(matchmaker.url, volunteer("a"))
        b = await wait_for_job(matchmaker.url, volunteer("b"))
        await a.presence.close()
        await until(lambda: ids(host.roster) == [(0, "worker0"), (2, "b")])
        c = await wait_for_job(matchmaker.url, volunteer("c"))
        again = await wait_for_job(matchmaker.url, volunteer("a"), token=a.presence.token)
        assert (c.position, again.position) == (3, 1)
        assert [member.id for member in host.members] == ["worker0", "a", "b", "c"]
        await leave(b, c, again, host)

    run(scenario())


def test_waiting_has_reasons_and_the_next_job_follows(matchmaker: Running) -> None:
    async def scenario() -> None:
        reasons: list[str] = []
        waiting = asyncio.create_task(
            wait_for_job(matchmaker.url, volunteer("a"), on_waiting=reasons.append)
        )
        await until(lambda: reasons == ["waiting: no job is open"])
        first = await publish(matchmaker.url, offer("one-1", maximum=1), worker=worker())
        a = await waiting
        assert a.listing.id == "one-1"
        second = await publish(matchmaker.url, offer("two-1", minimum=0), worker=worker())
        first.set_state("finished")
        await until(lambda: a.presence.ended == "finished")
        nxt = await a.presence.next_job()
        assert (nxt.listing.id, nxt.position) == ("two-1", 1)
        # Nobody told the matchmaker that this job is over for us: it is avoided all the same.
        waiting = asyncio.create_task(nxt.presence.next_job())
        await until(lambda: reasons[-1] == "waiting: no job has room besides those you left")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await leave(nxt, first, second)

    run(scenario())


def test_a_full_job_says_so(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await publish(matchmaker.url, offer(maximum=1), worker=worker())
        a = await wait_for_job(matchmaker.url, volunteer("a"))
        reasons: list[str] = []
        b = asyncio.create_task(
            wait_for_job(matchmaker.url, volunteer("b"), on_waiting=reasons.append)
        )
        await until(lambda: reasons == ["waiting: job mnist is full (1 of 1)"])
        await a.presence.close()
        assert (await b).position == 2
        await leave(b.result(), host)

    run(scenario())


def test_a_killed_matchmaker_learns_everything_again(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await publish(matchmaker.url, offer(), worker=worker(), state="running")
        gone = await wait_for_job(matchmaker.url, volunteer("gone"))
        a = await wait_for_job(matchmaker.url, volunteer("a"))
        await gone.presence.close()
        await until(lambda: ids(host.roster) == [(0, "worker0"), (2, "a")])
        code = host.code
        reasons: list[str] = []
        waiting = asyncio.create_task(
            wait_for_job(matchmaker.url, volunteer("c"), wants="later-1", on_waiting=reasons.append)
        )
        await until(lambda: len(reasons) == 1)
        await asyncio.to_thread(matchmaker.kill)
        await until(lambda: not host.connected and not a.presence.connected)
        await until(lambda: "does not answer" in reasons[-1])
        await asyncio.to_thread(matchmaker.start)
        await until(lambda: ids(host.roster) == [(0, "worker0"), (2, "a")] and host.connected)
        await until(lambda: a.presence.connected)
        assert host.code == code
        assert a.presence.match is not None
        assert a.presence.match.position == 2
        b = await wait_for_job(matchmaker.url, volunteer("b"))
        assert b.position == 3, "the place of one who left is not given away"
        later = await publish(matchmaker.url, offer("later-1"), worker=worker())
        c = await waiting
        assert c.listing.id == "later-1"
        await leave(a, b, c, host, later)

    run(scenario())


def test_a_host_may_come_back_with_its_token_and_nobody_else_may(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await publish(matchmaker.url, offer(), worker=worker())
        with pytest.raises(TurnedAway, match="belongs to someone else"):
            await publish(matchmaker.url, offer(), worker=worker())
        a = await wait_for_job(matchmaker.url, volunteer("a"))
        await host.close()
        again = await publish(
            matchmaker.url, offer(), worker=worker(), token=host.token, members=host.members[1:]
        )
        await until(lambda: ids(again.roster) == [(0, "worker0"), (1, "a")])
        assert again.code == host.code
        await leave(a, again)

    run(scenario())


def test_of_the_same_volunteer_twice_one_gives_up(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await publish(matchmaker.url, offer(), worker=worker())
        a = await wait_for_job(matchmaker.url, volunteer("a"))
        with pytest.raises(TurnedAway):
            await wait_for_job(matchmaker.url, volunteer("a"))
        twin = await wait_for_job(matchmaker.url, volunteer("a"), token=a.presence.token)
        assert twin.position == 1
        await until(lambda: bool(a.presence.failure or twin.presence.failure))
        first, last = (a, twin) if a.presence.failure else (twin, a)
        with pytest.raises(Replaced, match="same id"):
            await first.presence.next_job()
        await until(lambda: last.presence.connected)
        assert last.presence.failure is None
        await leave(a, twin, host)

    run(scenario())


def test_whom_its_own_late_hello_replaces_comes_back(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await publish(matchmaker.url, offer(), worker=worker())
        where = f"{matchmaker.url.replace('http', 'ws')}/v1/jobs/{offer().id}/presence"
        for _ in range(2):
            late = await WEB.connect(where)
            await late.send(rooms.encode(rooms.Hello(token=host.token)).decode())
            await until(lambda: not host.connected)
            WEB.abort(late)
            await until(lambda: host.connected)
        assert host.failure is None
        await leave(await wait_for_job(matchmaker.url, volunteer("a")), host)

    run(scenario())


def test_nobody_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def scenario() -> None:
            with pytest.raises(Unreachable) as host:
                await publish(url, offer(), worker=worker())
            with pytest.raises(Unreachable) as guest:
                await wait_for_job(url, volunteer("a"))
            for failure in (host.value, guest.value):
                assert failure.code == "CG202"
                assert "`crowdgrad matchmaker`" in failure.advice

        run(scenario())


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://x:99999", "http://[::1"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(TargetError, match="not the address"):
        normalise(url)


def test_an_address_may_be_typed_short() -> None:
    assert normalise("127.0.0.1:8700") == normalise("http://127.0.0.1:8700/")


def test_who_works_comes_back_to_its_job_and_to_no_other() -> None:
    async def scenario() -> None:
        presence = VolunteerPresence(
            "127.0.0.1:1",
            volunteer("a"),
            wants=None,
            token="t" * 48,
            on_waiting=None,
            on_roster=None,
            on_ended=None,
            random01=lambda: 0.5,
        )
        listing = JobListing(offer=offer(), state="running", published_at=1.0, code=Code("AAA-222"))
        roster = rooms.RosterChanged.of(Roster(job=listing.id, members=(worker(),)), 2)
        presence._receive(
            rooms.Matched(
                listing=rooms.ListingBody.of(listing), roster=roster, position=1, reason="r"
            )
        )
        await presence.matched()
        assert rooms.encode(presence._announcement()).count(b'"wants":"mnist-1"') == 1
        presence._receive(rooms.JobEnded(job="mnist-1", state="finished"))
        assert rooms.encode(presence._announcement()).count(b'"wants":null') == 1

    run(scenario())


def test_a_long_roster_is_told_in_part() -> None:
    async def scenario() -> None:
        members = [
            rooms.MemberBody(position=n, id=f"{n:016x}", name="x" * 60) for n in range(1, 2000)
        ]
        host = HostPresence(
            "127.0.0.1:1",
            offer(),
            known=[worker(), *(member.member() for member in members)],
            state="running",
            token="t" * 48,
            on_roster=None,
            random01=lambda: 0.5,
        )
        host._receive(
            rooms.RosterChanged(job="mnist-1", members=tuple(members[4:5]), next_position=5000)
        )
        body = host._announcement()
        assert isinstance(body, rooms.Publish)
        assert len(rooms.encode(body)) < rooms.MAX_REQUEST_BYTES
        told = [member.position for member in body.members]
        assert told[:2] == [0, 5], "the worker and whoever is here"
        assert told[-1] == 1999, "then the latest"
        assert body.next_position == 5000, "what is not told is not given away either"

    run(scenario())


def test_a_member_is_told_once_though_it_had_two_places() -> None:
    """An earlier host and an earlier matchmaker may have given it different ones."""
    member = Member(position=1, id=VolunteerId("ab"), name="ada")
    presence = HostPresence(
        "http://127.0.0.1:1",
        offer(),
        known=[
            Member(position=0, id=VolunteerId("00"), name="own"),
            member,
            replace(member, position=3),
        ],
        state="running",
        token="t",
        on_roster=None,
        random01=lambda: 0.0,
    )
    told = presence._announcement()
    assert isinstance(told, rooms.Publish)
    assert [(m.position, m.id) for m in told.members] == [(0, "00"), (3, "ab")]
