"""Hosts and volunteers against a real matchmaker in its own process, over real sockets."""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from crowdgrad.domain.job import JobId, JobState, Member, Roster
from crowdgrad.domain.matching import ANYONE, Code, Gift, Hours, JobListing, Machine, Offer, Wants
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import Replaced, TurnedAway, Unreachable
from crowdgrad.net import bodies, introduction, reaching, rooms, signing
from crowdgrad.net.identity import signed_by
from crowdgrad.net.matchmaker import HostPresence, Match, VolunteerPresence, publish, wait_for_job
from crowdgrad.net.presence import WEB, Socket, Wire
from crowdgrad.net.web import ask, authority, open_socket, path_of
from tests.matchmaker.running import Running, key_of, offer, volunteer, worker

WITHIN_S = 20.0
HOST = key_of("host")


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
    """Places, and the names their owners' keys were made from."""
    names = {key_of(name).id: name for name in ("a", "b", "c", "gone")}
    return [(member.position, names.get(member.id, member.id)) for member in roster.members]


async def hosting(
    url: str,
    offered: Offer | None = None,
    *,
    key: str = "host",
    state: JobState = "waiting",
    members: Iterable[Member] = (),
    on_roster: Callable[[Roster], None] | None = None,
    random01: Callable[[], float] = random.random,
    wire: Wire | None = None,
) -> HostPresence:
    return await publish(
        url,
        offered or offer(),
        key=key_of(key),
        worker=worker(),
        state=state,
        members=members,
        on_roster=on_roster,
        random01=random01,
        wire=wire,
    )


async def work(
    url: str,
    name: str,
    *,
    wants: Wants = ANYONE,
    on_waiting: Callable[[str], None] | None = None,
    on_credit: Callable[[JobId, Gift], bool] | None = None,
    session: str | None = None,
    wire: Wire | None = None,
) -> Match:
    return await wait_for_job(
        url,
        volunteer(name),
        key=key_of(name),
        wants=wants,
        on_waiting=on_waiting,
        on_credit=on_credit,
        session=session,
        wire=wire,
    )


async def leave(*all_present: HostPresence | Match) -> None:
    for one in all_present:
        await (one if isinstance(one, HostPresence) else one.presence).close()


def test_everyone_gets_the_same_roster_and_hyperparameters(matchmaker: Running) -> None:
    async def scenario() -> None:
        rosters: list[Roster] = []
        host = await hosting(matchmaker.url, on_roster=rosters.append)
        a = await work(matchmaker.url, "a")
        assert ids(a.roster) == [(0, "worker0"), (1, "a")]
        host.set_state("running")
        b = await work(matchmaker.url, "b", wants=Wants(job=host.code))
        expected = [(0, "worker0"), (1, "a"), (2, "b")]
        await until(lambda: ids(host.roster) == expected)
        await until(
            lambda: a.presence.match is not None and ids(a.presence.match.roster) == expected
        )
        assert ids(b.roster) == expected
        assert b.listing.state == "running", "joined while running"
        assert (a.position, b.position) == (1, 2)
        assert (
            a.listing.offer
            == b.listing.offer
            == replace(offer(), key=HOST.id, public=HOST.public.hex())
        )
        assert rosters[-1] == host.roster
        await leave(a, b, host)

    run(scenario())


def test_a_volunteer_that_leaves_keeps_its_place(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await hosting(matchmaker.url)
        a = await work(matchmaker.url, "a")
        b = await work(matchmaker.url, "b")
        await a.presence.close()
        await until(lambda: ids(host.roster) == [(0, "worker0"), (2, "b")])
        c = await work(matchmaker.url, "c")
        again = await work(matchmaker.url, "a")
        assert (c.position, again.position) == (3, 1)
        assert [member.name for member in host.members] == [
            worker().name, "a's PC", "b's PC", "c's PC",
        ]  # fmt: skip
        await leave(b, c, again, host)

    run(scenario())


def test_waiting_has_reasons_and_the_next_job_follows(matchmaker: Running) -> None:
    async def scenario() -> None:
        reasons: list[str] = []
        waiting = asyncio.create_task(work(matchmaker.url, "a", on_waiting=reasons.append))
        await until(lambda: reasons == ["waiting: no job is open"])
        first = await hosting(matchmaker.url, offer("one-1", maximum=1))
        a = await waiting
        assert a.listing.id == "one-1"
        second = await hosting(matchmaker.url, offer("two-1", minimum=0))
        first.set_state("finished")
        await until(lambda: a.presence.ended == "finished")
        nxt = await a.presence.next_job()
        assert (nxt.listing.id, nxt.position) == ("two-1", 1)
        # Nobody told the matchmaker that this job is over for us: it is avoided all the same.
        waiting = asyncio.create_task(nxt.presence.next_job())
        left = "waiting: no job has room besides 1 that you left or will not do"
        await until(lambda: reasons[-1] == left)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await leave(nxt, first, second)

    run(scenario())


def test_hours_that_change_while_it_waits_are_learned(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await hosting(matchmaker.url)
        minute = int(time.time() / 60) % 1440
        later = Hours(start=(minute + 120) % 1440, end=(minute + 180) % 1440)
        reasons: list[str] = []
        present: list[VolunteerPresence] = []
        waiting = asyncio.create_task(
            wait_for_job(
                matchmaker.url,
                volunteer("a"),
                key=key_of("a"),
                machine=Machine(hours=later),
                on_waiting=reasons.append,
                on_present=present.append,
            )
        )
        await until(lambda: any("your hours begin" in reason for reason in reasons))
        told = len(reasons)
        present[0].offer(Machine(hours=later))  # nothing new
        present[0].offer(Machine(hours=None))
        match = await waiting
        assert ids(match.roster) == [(0, "worker0"), (1, "a")]
        assert not any("does not answer" in reason for reason in reasons[told:])
        before = match.presence.connection._socket
        match.presence.offer(Machine(hours=later))  # who works keeps its job
        await until(lambda: match.presence.connection._socket not in (before, None))
        assert match.presence.match is not None
        await leave(host, match)

    run(scenario())


def test_a_full_job_says_so(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await hosting(matchmaker.url, offer(maximum=1))
        a = await work(matchmaker.url, "a")
        reasons: list[str] = []
        b = asyncio.create_task(work(matchmaker.url, "b", on_waiting=reasons.append))
        await until(lambda: reasons == ["waiting: job “mnist” is full (1 of 1)"])
        await a.presence.close()
        assert (await b).position == 2
        await leave(b.result(), host)

    run(scenario())


def test_a_killed_matchmaker_learns_everything_again(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await hosting(matchmaker.url, state="running")
        gone = await work(matchmaker.url, "gone")
        a = await work(matchmaker.url, "a")
        await gone.presence.close()
        await until(lambda: ids(host.roster) == [(0, "worker0"), (2, "a")])
        code = host.code
        reasons: list[str] = []
        waiting = asyncio.create_task(
            work(matchmaker.url, "c", wants=Wants(job="later-1"), on_waiting=reasons.append)
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
        b = await work(matchmaker.url, "b")
        assert b.position == 3, "the place of one who left is not given away"
        later = await hosting(matchmaker.url, offer("later-1"))
        c = await waiting
        assert c.listing.id == "later-1"
        await leave(a, b, c, host, later)

    run(scenario())


def test_a_host_may_come_back_with_its_key_and_nobody_else_may(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await hosting(matchmaker.url)
        with pytest.raises(TurnedAway, match="belongs to another key"):
            await hosting(matchmaker.url, key="somebody else")
        a = await work(matchmaker.url, "a")
        await host.close()
        with pytest.raises(TurnedAway, match="belongs to another key"):
            await hosting(matchmaker.url, key="somebody else")
        again = await hosting(matchmaker.url, members=host.members[1:])
        await until(lambda: ids(again.roster) == [(0, "worker0"), (1, "a")])
        assert again.code == host.code
        await leave(a, again)

    run(scenario())


def test_of_two_processes_with_one_key_the_second_is_refused(
    matchmaker: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crowdgrad.net.presence.POLITE_S", 0.0)

    async def scenario() -> None:
        host = await hosting(matchmaker.url)
        a = await work(matchmaker.url, "a")
        with pytest.raises(TurnedAway) as refused:
            await work(matchmaker.url, "a")
        assert "--guest" in str(refused.value)
        assert a.presence.connected
        await a.presence.close()
        again = await work(matchmaker.url, "a")
        assert again.position == 1
        await leave(again, host)

    run(scenario())


def test_of_the_same_process_twice_one_gives_up(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await hosting(matchmaker.url)
        a = await work(matchmaker.url, "a")
        try:
            twin = await work(matchmaker.url, "a", session=a.presence.session)
        except Replaced:  # the other was back before this one was welcomed
            last = a
        else:
            assert twin.position == 1
            await until(lambda: bool(a.presence.failure or twin.presence.failure))
            first, last = (a, twin) if a.presence.failure else (twin, a)
            with pytest.raises(Replaced, match="same key"):
                await first.presence.next_job()
            await leave(first)
        await until(lambda: last.presence.connected)
        assert last.presence.failure is None
        await leave(last, host)

    run(scenario())


async def hello(url: str, announced: bodies.Body) -> Socket:
    """Somebody with the host's key, at the host's door."""
    where = f"{url.replace('http', 'ws')}/v1/jobs/{offer().id}/presence"
    socket, body = await WEB.connect(where), rooms.encode(announced)
    proof = signing.sign(
        HOST,
        method=signing.SOCKET,
        authority=authority(where),
        path=path_of(where),
        body=body,
        time_ms=int(time.time() * 1000),
        random_bytes=secrets.token_bytes,
    )
    said = rooms.Hello(
        key=proof.key,
        time_ms=proof.time_ms,
        nonce=proof.nonce,
        signature=proof.signature,
        body=body.decode(),
    )
    await socket.send(rooms.encode(said).decode())
    return socket


def test_whom_its_own_late_hello_replaces_comes_back(matchmaker: Running) -> None:
    async def scenario() -> None:
        # It is away for long enough to be seen away.
        host = await hosting(matchmaker.url, random01=lambda: 0.99)
        for _ in range(2):
            late = await hello(matchmaker.url, host._announcement())
            await until(lambda: not host.connected)
            WEB.abort(late)
            await until(lambda: host.connected)
        assert host.failure is None
        await leave(await work(matchmaker.url, "a"), host)

    run(scenario())


def test_a_clock_that_is_hours_off_does_not_matter(matchmaker: Running) -> None:
    off = Wire(connect=open_socket, abort=WEB.abort, wall=lambda: time.time() - 7200.0)

    async def scenario() -> None:
        host = await hosting(matchmaker.url, wire=off)
        a = await work(matchmaker.url, "a", wire=off)
        assert a.position == 1
        await leave(a, host)

    run(scenario())
    assert b'"gave":[]' in ask(matchmaker.url, "GET", "/v1/me", key=HOST, wall=lambda: 1e9)


def test_an_introduction_can_be_checked_offline(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await hosting(matchmaker.url)
        a = await work(matchmaker.url, "a")
        said = introduction.check(
            a.introduction,
            public=host.matchmaker_key,
            job=a.listing.id,
            host=HOST.id,
            volunteer=key_of("a").id,
            now=time.time(),
        )
        assert said.position == a.position
        assert str(host.code) in host.link
        await leave(a, host)

    run(scenario())


def test_how_far_a_job_is_is_told_and_shown_to_everybody(matchmaker: Running) -> None:
    async def scenario() -> None:
        host = await hosting(matchmaker.url)

        def shown() -> float | None:
            raw = ask(matchmaker.url, "GET", f"/v1/jobs/{host.code}")
            return rooms.decode(msgspec.json.Decoder(rooms.JobSummary), raw).progress

        assert await asyncio.to_thread(shown) is None
        host.set_progress(0.5)
        async with asyncio.timeout(WITHIN_S):
            while (found := await asyncio.to_thread(shown)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert found == 0.5
        await leave(host)

    run(scenario())


def test_credit_is_told_countersigned_and_shown(matchmaker: Running) -> None:
    gift = Gift(units=3, samples=300, flop=1.5e9)
    asked: list[tuple[str, Gift]] = []

    def agree(job: JobId, told: Gift) -> bool:
        asked.append((job, told))
        return told == gift

    async def scenario() -> None:
        host = await hosting(matchmaker.url)
        a = await work(matchmaker.url, "a", on_credit=agree)
        host.credit({key_of("a").id: replace(gift, units=4)})
        host.credit({key_of("a").id: gift})
        await until(lambda: len(asked) == 2)

        def shown() -> tuple[rooms.CreditBody, ...]:
            raw = ask(matchmaker.url, "GET", f"/v1/keys/{key_of('a').id}")
            return rooms.decode(msgspec.json.Decoder(rooms.KeySummary), raw).gave

        while not (gave := await asyncio.to_thread(shown)) or not gave[0].agreed:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        (credit,) = gave
        assert credit.reported.gift() == gift
        text = signing.credit_text(a.listing.id, HOST.id, key_of("a").id, gift)
        assert signed_by(key_of("a").public, text, bytes.fromhex(credit.signature))
        await leave(a, host)

    run(scenario())
    assert [job for job, _ in asked] == ["mnist-1"] * 2


def test_who_was_away_is_asked_for_its_signature_when_it_comes(matchmaker: Running) -> None:
    gift = Gift(units=3, samples=300, flop=1.5e9)
    asked: list[Gift] = []

    async def scenario() -> None:
        host = await hosting(matchmaker.url)
        a = await work(matchmaker.url, "a")
        await a.presence.close()
        host.credit({key_of("a").id: gift})
        again = await work(
            matchmaker.url, "a", on_credit=lambda _, told: asked.append(told) or True
        )
        await until(lambda: asked == [gift])
        await leave(again, host)

    run(scenario())


def test_nobody_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def scenario() -> None:
            with pytest.raises(Unreachable) as host:
                await hosting(url)
            with pytest.raises(Unreachable) as guest:
                await work(url, "a")
            for failure in (host.value, guest.value):
                assert failure.code == "CG202"
                assert "`crowdgrad matchmaker`" in failure.advice

        run(scenario())


def test_who_works_comes_back_to_its_job_and_to_no_other() -> None:
    async def scenario() -> None:
        presence = VolunteerPresence(
            "127.0.0.1:1",
            volunteer("a"),
            key=key_of("a"),
            machine=Machine(),
            wants=ANYONE,
            session="this",
            on_waiting=None,
            on_roster=None,
            on_ended=None,
            on_credit=None,
            random01=lambda: 0.5,
        )
        listing = JobListing(offer=offer(), state="running", published_at=1.0, code=Code("AAA-222"))
        roster = rooms.RosterChanged.of(Roster(job=listing.id, members=(worker(),)), 2)
        presence._receive(
            rooms.Matched(
                listing=bodies.ListingBody.of(listing), roster=roster, position=1, reason="r"
            )
        )
        await presence.matched()
        assert presence._announcement().working_for == "mnist-1"
        presence._receive(rooms.JobEnded(job="mnist-1", state="finished"))
        assert presence._announcement().working_for is None
        assert presence._announcement().wants == bodies.WantsBody()

    run(scenario())


def test_a_long_roster_is_told_in_part() -> None:
    async def scenario() -> None:
        members = [
            bodies.MemberBody(position=n, id=f"{n:016x}", name="x" * 60) for n in range(1, 2000)
        ]
        host = HostPresence(
            "127.0.0.1:1",
            offer(),
            known=[worker(), *(member.member() for member in members)],
            key=HOST,
            state="running",
            on_roster=None,
            random01=lambda: 0.5,
        )
        host._receive(
            rooms.RosterChanged(job="mnist-1", members=tuple(members[4:5]), next_position=5000)
        )
        body = host._announcement()
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
        key=HOST,
        state="running",
        on_roster=None,
        random01=lambda: 0.0,
    )
    told = presence._announcement()
    assert [(m.position, m.id) for m in told.members] == [(0, "00"), (3, "ab")]


# -- ways -------------------------------------------------------------------------------------

WAYS = ("192.0.2.7:8701", "relay:relay.example.org:8702")


def test_a_host_that_moves_is_found_again_also_after_a_loss(tmp_path: Path) -> None:
    async def scenario(matchmaker: Running) -> None:
        host = await hosting(matchmaker.url)
        a = await work(matchmaker.url, "a")
        assert a.listing.offer.routes == ()
        assert a.listing.offer.public == HOST.public.hex()

        def told() -> tuple[str, tuple[str, ...]]:
            assert a.presence.match is not None
            offered = a.presence.match.listing.offer
            return offered.address, offered.routes

        host.move("192.0.2.7:8701", WAYS)
        await until(lambda: told() == ("192.0.2.7:8701", WAYS))
        assert a.presence.match is not None
        assert a.presence.match.position == a.position
        matchmaker.kill()
        await until(lambda: not host.connected)
        host.move("192.0.2.8:8701", WAYS[1:])
        matchmaker.start()
        await until(lambda: told() == ("192.0.2.8:8701", WAYS[1:]))
        b = await work(matchmaker.url, "b")
        assert b.listing.offer.routes == WAYS[1:]
        await leave(host, a, b)

    with Running(tmp_path) as matchmaker:
        run(scenario(matchmaker))


def test_where_a_host_cannot_be_it_does_not_move() -> None:
    def turned(_: object) -> None:
        raise AssertionError

    presence = HostPresence(
        "http://127.0.0.1:1", offer(), key=HOST, known=(worker(),), state="waiting",
        on_roster=turned, random01=lambda: 0.5,
    )  # fmt: skip
    for address, routes in (("nowhere", ()), ("h:1", ("nowhere",)), ("h:1", WAYS[:1] * 9)):
        with pytest.raises(ValueError, match=r"HOST:PORT|ways"):
            presence.move(address, routes)
    assert presence._announcement().offer.address == offer().address


def test_whoever_asks_is_told_of_relays(tmp_path: Path) -> None:
    async def scenario(matchmaker: Running) -> None:
        expected = ("relay:relay.example.org:8702", "relay:wss://match.example.org/relay")
        assert await reaching.relays(matchmaker.url) == expected

    named = ("--relay", "relay.example.org:8702", "--relay", "wss://match.example.org/relay")
    with Running(tmp_path, *named) as matchmaker:
        run(scenario(matchmaker))


def test_a_real_matchmaker_dials_nobody_on_its_own_machine_and_says_what_time_it_is(
    tmp_path: Path,
) -> None:
    async def scenario(matchmaker: Running) -> None:
        found = await reaching.ask(matchmaker.url, HOST, ["192.0.2.1:8701", "*:22"])
        assert found.observed == "", "it may be a proxy, and anybody behind it"
        assert not found.any
        assert all(one.why.startswith("not dialled") for one in found.tried)
        assert abs(await reaching.clock_offset(matchmaker.url)) < 600

    with Running(tmp_path) as matchmaker:
        run(scenario(matchmaker))
