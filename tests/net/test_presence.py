"""A link to a matchmaker that is slow, wrong about the time, busy, forgetful, or gone."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from crowdgrad.domain.job import JobId, JobState, Member
from crowdgrad.domain.matching import Gift, Machine, Wants
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CrowdgradError, MessageError, Replaced, TurnedAway, Unreachable
from crowdgrad.net import bodies, rooms, signing
from crowdgrad.net.identity import guest, signed_by
from crowdgrad.net.matchmaker import HostPresence, Match, publish, wait_for_job
from crowdgrad.net.presence import WEB, Wire
from crowdgrad.net.web import open_socket
from tests.net.scripted import (
    CODE,
    KEY,
    WITHIN_S,
    Answer,
    Scripted,
    Visit,
    a_volunteer,
    a_worker,
    an_offer,
    matched,
    refused,
    says,
    turns_away,
    welcome,
)

ME = guest("a volunteer")
HOST = guest("a host")
HOUR_MS = 3_600_000


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario, 2 * WITHIN_S)

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 (many conditions, none of them an event)
            await asyncio.sleep(0.005)


async def work(
    url: str,
    *,
    wire: Wire | None = None,
    wants: Wants | None = None,
    machine: Machine | None = None,
    on_waiting: Callable[[str], None] | None = None,
    on_ended: Callable[[JobId, JobState], None] | None = None,
    on_credit: Callable[[JobId, Gift], bool] | None = None,
    on_turned_away: Callable[[CrowdgradError], None] | None = None,
) -> Match:
    return await wait_for_job(
        url,
        a_volunteer(ME),
        key=ME,
        wants=wants or Wants(),
        machine=machine or Machine(),
        on_waiting=on_waiting,
        on_ended=on_ended,
        on_credit=on_credit,
        on_turned_away=on_turned_away,
        random01=lambda: 0.0,
        wire=wire,
    )


async def host(url: str, *, wire: Wire | None = None) -> HostPresence:
    return await publish(
        url, an_offer(), key=HOST, worker=a_worker(), random01=lambda: 0.0, wire=wire
    )


def busy(status: int = 429, after: str = "1", *, problem: bool = True) -> Answer:
    body = rooms.encode(rooms.Problem(code="CG506", message="Too many come.", advice="Wait."))
    return status, {"Retry-After": after}, body if problem else b"<html>"


# -- who we are -------------------------------------------------------------------------------


def test_a_volunteer_says_who_it_is_signed_and_what_it_offers_and_wants() -> None:
    wants = Wants(hosts=frozenset({"ab"}), causes=("climate", "games"), only_causes=True)
    machine = Machine(gpu="H200", gflops=3.5)

    async def scenario() -> None:
        async with Scripted(says(welcome(), matched())) as matchmaker:
            match = await work(matchmaker.url, wants=wants, machine=machine)
            assert (match.introduction, match.position) == ("shown to the host", 1)
            (visit,) = matchmaker.visits
            assert visit.path == f"/v1/volunteers/{ME.id}/presence"
            assert visit.hello is not None
            assert visit.hello.key == ME.public.hex()
            said = visit.registered
            assert said.volunteer.volunteer() == a_volunteer(ME)
            assert (said.wants.wants(), said.machine.machine()) == (wants, machine)
            assert (said.working_for, said.avoid) == (None, ())
            assert said.session == match.presence.session
            await match.presence.close()

    run(scenario())


def test_a_host_says_who_it_is_and_learns_code_link_and_key() -> None:
    async def scenario() -> None:
        async with Scripted(says(welcome())) as matchmaker:
            presence = await host(matchmaker.url)
            assert (presence.code, presence.matchmaker_key) == (CODE, KEY.public)
            assert presence.link.endswith("/j/AAA-222")
            assert matchmaker.visits[0].path == "/v1/jobs/mnist-1/presence"
            assert matchmaker.visits[0].published.offer.offer() == an_offer()
            await presence.close()

    run(scenario())


def test_a_host_says_where_it_has_moved() -> None:
    heard: list[rooms.Said] = []

    async def hears(visit: Visit) -> None:
        await visit.greeted()
        await visit.say(welcome())
        heard.append(await visit.hear())
        visit.hang_up()

    ways = ("192.0.2.8:8701", "relay:relay.example.org:8702")

    async def scenario() -> None:
        async with Scripted(hears, says(welcome())) as matchmaker:
            presence = await host(matchmaker.url)
            presence.move("192.0.2.8:8701", ways)
            await until(lambda: len(matchmaker.visits) == 2 and presence.connected)
            assert heard == [rooms.Moved(address="192.0.2.8:8701", routes=ways)]
            offer = matchmaker.visits[1].published.offer
            assert (offer.address, offer.routes) == ("192.0.2.8:8701", ways), "said again"
            await presence.close()

    run(scenario())


def test_a_host_that_was_cut_off_by_moving_comes_anew_at_once() -> None:
    async def scenario() -> None:
        async with Scripted(says(welcome()), says(welcome())) as matchmaker:
            presence = await host(matchmaker.url)
            presence.connection.come_anew()
            presence.move("192.0.2.8:8701")
            await until(lambda: len(matchmaker.visits) == 2 and presence.connected)
            assert matchmaker.visits[1].published.offer.address == "192.0.2.8:8701"
            await presence.close()

    run(scenario())


def test_the_address_may_have_letters_or_six_bytes_more() -> None:
    """What is signed is what the matchmaker reads in the header Host."""

    async def scenario() -> None:
        async with Scripted(says(welcome(), matched()), host="::1") as matchmaker:
            match = await work(matchmaker.url)
            assert matchmaker.visits[0].host.startswith("[::1]:")
            await match.presence.close()
        async with Scripted(says(welcome(), matched())) as matchmaker:
            match = await work(matchmaker.url.replace("127.0.0.1", "LocalHost"))
            assert matchmaker.visits[0].host.startswith("localhost:")
            await match.presence.close()

    run(scenario())


def test_a_host_without_a_code_is_no_host() -> None:
    async def scenario() -> None:
        async with Scripted(says(welcome(code=""))) as matchmaker:
            with pytest.raises(MessageError, match="code"):
                await host(matchmaker.url)

    run(scenario())


def test_a_job_that_cannot_be_told_says_so() -> None:
    offer = an_offer()
    offer.hyperparameters.update({f"{n}": "\U0001f600" * 255 for n in range(64)})

    async def scenario() -> None:
        async with Scripted(says(welcome())) as matchmaker:
            with pytest.raises(MessageError, match="65536") as refusal:
                await publish(matchmaker.url, offer, key=HOST, worker=a_worker())
            assert "Shorten" in refusal.value.advice

    run(scenario())


def test_a_long_roster_is_told_as_far_as_it_fits_beside_a_long_offer() -> None:
    offer = replace(
        an_offer(),
        description='"' * 2000,
        visibility="group",
        invited=frozenset(VolunteerId(f"{n:064x}") for n in range(256)),
    )
    known = [Member(position=n, id=VolunteerId(f"{n:064x}"), name='"' * 64) for n in range(1000)]

    async def scenario() -> None:
        async with Scripted(says(welcome())) as matchmaker:
            presence = await publish(
                matchmaker.url, offer, key=HOST, worker=known[0], members=known[1:]
            )
            told = [member.position for member in matchmaker.visits[0].published.members]
            assert told[0] == 0
            assert told[1:] == list(range(1001 - len(told), 1000))
            assert len(told) > 50
            await presence.close()

    run(scenario())


# -- the time ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, HOUR_MS, -(1 << 52)])
def test_a_clock_that_does_not_fit_is_set_and_all_is_said_again(ahead_ms: int) -> None:
    wire = Wire(connect=open_socket, abort=WEB.abort, wall=lambda: time.time() + ahead_ms / 1000)
    theirs = 1_700_000_000_000

    async def scenario() -> None:
        wrong, right = turns_away(refused(now_ms=theirs)), says(welcome(), matched())
        async with Scripted(wrong, right) as matchmaker:
            match = await work(matchmaker.url, wire=wire)
            first, second = (visit.hello for visit in matchmaker.visits)
            assert first is not None
            assert second is not None
            assert 0 <= second.time_ms - theirs < 1000 * WITHIN_S
            assert second.nonce != first.nonce
            matchmaker.visits[1].hang_up()
            await until(lambda: len(matchmaker.visits) == 3)
            again = matchmaker.visits[2]
            await until(lambda: again.hello is not None)
            assert again.hello is not None
            assert again.hello.time_ms >= second.time_ms, "it stays set"
            await match.presence.close()

    run(scenario())


def test_who_is_never_pleased_with_our_clock_is_not_asked_for_ever() -> None:
    async def scenario() -> None:
        async with Scripted(turns_away(refused(now_ms=1, message="Your clock."))) as matchmaker:
            with pytest.raises(Unreachable, match="Your clock"):
                await work(matchmaker.url)
            assert len(matchmaker.visits) == 2

    run(scenario())


# -- busy -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (busy(429), "Too many come"),
        (busy(503), "Too many come"),
        (busy(503, problem=False), "http://127.0.0.1:0 is busy"),
        (turns_away(refused(retry_after_s=0.3)), "Not now"),
        (
            turns_away(refused(code="CG206", message="A\x1b[2Jdisk.", retry_after_s=0.3)),
            "A [2Jdisk",
        ),
    ],
    ids=["429", "503", "a proxy's", "a word", "its own trouble"],
)
def test_a_first_connection_waits_for_a_matchmaker_that_wants_it_later(
    first: Answer, why: str
) -> None:
    heard: list[str] = []

    async def scenario() -> None:
        async with Scripted(first, says(welcome(), matched())) as matchmaker:
            match = await work(matchmaker.url, on_waiting=heard.append)
            came = matchmaker.came_at
            assert came[1] - came[0] >= (1.0 if isinstance(first, tuple) else 0.3)
            await match.presence.close()

    run(scenario())
    told = [re.sub(r":[0-9]+ is", ":0 is", words) for words in heard]
    assert told == [f"waiting: {why}; trying again in 1 s"]


def test_patience_with_a_busy_matchmaker_ends() -> None:
    async def scenario() -> None:
        async with Scripted(turns_away(refused(retry_after_s=0.01))) as matchmaker:
            with pytest.raises(TurnedAway, match="Not now") as refusal:
                await host(matchmaker.url)
            assert refusal.value.advice == "Wait."
            assert len(matchmaker.visits) == 4, "once, and three times more"
        in_trouble = turns_away(refused(code="CG206", message="Its disk.", retry_after_s=0.01))
        async with Scripted(in_trouble) as matchmaker:
            with pytest.raises(Unreachable, match="Its disk"):
                await work(matchmaker.url)
        async with Scripted(busy(after="31")) as matchmaker:
            with pytest.raises(Unreachable, match="Too many come"):
                await work(matchmaker.url)
            assert len(matchmaker.came_at) == 1, "nobody waits that long"

    run(scenario())


@pytest.mark.parametrize("how", ["handshake", "word", "in the middle"])
def test_a_return_is_never_sooner_than_wished(how: str) -> None:
    heard: list[str] = []
    jobless = says(welcome(), rooms.StillWaiting(reason="waiting: no job is open"))
    sent_off: dict[str, list[Answer]] = {
        "handshake": [busy()],
        "word": [turns_away(refused(retry_after_s=1.0))],  # type: ignore[list-item]
        "in the middle": [],
    }

    async def scenario() -> None:
        last = says(welcome(), matched())
        async with Scripted(jobless, *sent_off[how], last) as matchmaker:
            waiting = asyncio.create_task(work(matchmaker.url, on_waiting=heard.append))
            await until(lambda: len(heard) == 1)
            if how == "in the middle":
                await matchmaker.visits[0].say(refused(retry_after_s=1.0))
            else:
                matchmaker.visits[0].hang_up()
            match = await waiting
            came = matchmaker.came_at
            assert came[-1] - came[-2] >= 1.0
            await match.presence.close()

    run(scenario())
    why = "Too many come" if how == "handshake" else "Not now"
    assert f"waiting: {why}; trying again in 1 s" in heard
    lost = [words for words in heard if "matchmaker" in words]
    assert len(lost) == (0 if how == "in the middle" else 2), "it was lost, and answers again"


def test_those_sent_away_at_once_do_not_come_again_at_once() -> None:
    waits = []
    presence = HostPresence(
        "127.0.0.1:1", an_offer(), key=HOST, known=[a_worker()], state="waiting", on_roster=None,
        random01=lambda: len(waits) / 100,
    )  # fmt: skip
    for _ in range(100):
        waits.append(presence.connection._wait_s(0, 2.0))  # noqa: PERF401 (random01 counts them)
    assert min(waits) >= 2.0
    assert max(waits) - min(waits) > 1.9


# -- turned away, replaced, lost --------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        ((403, {}, b'{"code":"CG506","message":"No.","advice":"Go."}'), TurnedAway, "No"),
        ((404, {}, b"not here"), Unreachable, "no matchmaker is there"),
        ((500, {}, b'{"code":"CG506","message":"Oh.","advice":""}'), Unreachable, "Oh"),
        ((429, {}, b'{"code":"CG506","message":"Oh.","advice":""}'), Unreachable, "Oh"),
        ((301, {"Location": "https://new.example/"}, b""), Unreachable, "new.example"),
        (turns_away(refused(message="Unknown key.")), TurnedAway, "Unknown key"),
        (turns_away(refused(code="CG507")), Replaced, "Not now"),
        (says(rooms.StillHere()), MessageError, "welcome"),
    ],
)
def test_what_a_first_connection_raises(answer: Answer, error: type[Exception], told: str) -> None:
    async def scenario() -> None:
        async with Scripted(answer) as matchmaker:
            with pytest.raises(error, match=told):
                await work(matchmaker.url)
            assert len(matchmaker.came_at) == 1

    run(scenario())


def test_whoever_hangs_up_during_the_greeting_is_told() -> None:
    async def hangs_up(visit: Visit) -> None:
        await visit.greeted()
        visit.hang_up()

    async def scenario() -> None:
        async with Scripted(hangs_up) as matchmaker:
            with pytest.raises(Exception, match="hung up"):
                await work(matchmaker.url)

    run(scenario())


def test_who_works_comes_back_to_its_job_and_to_no_other() -> None:
    ended: list[tuple[str, str]] = []

    async def scenario() -> None:
        async with Scripted(says(welcome(), matched()), says(welcome())) as matchmaker:
            match = await work(
                matchmaker.url,
                wants=Wants(causes=("games",)),
                on_ended=lambda job, state: ended.append((job, state)),
            )
            presence = match.presence
            matchmaker.visits[0].hang_up()
            await until(lambda: presence.connected and len(matchmaker.visits) == 2)
            back = matchmaker.visits[1]
            assert back.registered.working_for == "mnist-1"
            assert back.registered.session == presence.session
            await back.say(matched(introduction="a newer one"))
            await until(lambda: presence.match is not match)
            assert presence.match is not None
            assert presence.match.introduction == "a newer one"
            await back.say(rooms.JobEnded(job="mnist-1", state="finished"))
            await until(lambda: presence.ended == "finished")
            back.hang_up()
            await until(lambda: presence.connected and len(matchmaker.visits) == 3)
            idle = matchmaker.visits[2].registered
            assert idle.working_for is None
            assert idle.wants.wants() == Wants(causes=("games",))
            await presence.close()

    run(scenario())
    assert ended == [("mnist-1", "finished")]


def test_a_match_decided_before_our_last_word_is_declined() -> None:
    said: list[rooms.Said] = []

    async def script(visit: Visit) -> None:
        await visit.greeted()
        await visit.say(welcome(), matched())
        said.append(await visit.hear())
        await visit.until_gone()

    async def scenario() -> None:
        async with Scripted(script) as matchmaker:
            match = await work(matchmaker.url)
            await matchmaker.visits[0].say(matched("other-1"))
            await until(lambda: bool(said))
            assert match.presence.match is not None
            assert match.presence.match.listing.id == "mnist-1"
            await match.presence.close()

    run(scenario())
    assert said == [rooms.Free(wants=bodies.WantsBody(job="mnist-1"), asked=1)]


def test_the_next_job_is_what_we_wanted_but_no_longer_one_certain_job() -> None:
    said: list[rooms.Said] = []

    async def script(visit: Visit) -> None:
        await visit.greeted()
        await visit.say(welcome(), matched())
        while True:
            said.append(await visit.hear())
            if isinstance(said[-1], rooms.Free):
                await visit.say(matched("late-1"), matched(f"other-{len(said)}", asked=len(said)))

    async def scenario() -> None:
        async with Scripted(script) as matchmaker:
            match = await work(matchmaker.url, wants=Wants(job="mnist-1", causes=("games",)))
            presence = match.presence
            assert (await presence.next_job()).listing.id == "other-1"
            assert (await presence.next_job(avoid=[JobId("x-1")])).listing.id == "other-2"
            assert (await presence.next_job(wants=Wants(job="y-1"))).listing.id == "other-3"
            await presence.close()

    run(scenario())
    games = bodies.WantsBody(causes=("games",))
    assert said == [
        rooms.Free(wants=games, avoid=("mnist-1",), asked=1),
        rooms.Free(wants=games, avoid=("x-1",), asked=2),
        rooms.Free(wants=bodies.WantsBody(job="y-1"), asked=3),
        rooms.Leaving(),
    ]


def test_a_wait_that_is_cancelled_leaves_politely() -> None:
    said: list[rooms.Said] = []

    async def script(visit: Visit) -> None:
        await visit.greeted()
        await visit.say(welcome(), rooms.StillWaiting(reason="waiting: no job is open"))
        said.append(await visit.hear())

    async def scenario() -> None:
        heard: list[str] = []
        async with Scripted(script) as matchmaker:
            waiting = asyncio.create_task(work(matchmaker.url, on_waiting=heard.append))
            await until(lambda: bool(heard))
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    run(scenario())
    assert said == [rooms.Leaving()]


def test_who_waits_hears_once_that_the_matchmaker_is_away_and_once_that_it_is_back() -> None:
    heard: list[str] = []
    jobless = says(welcome(), rooms.StillWaiting(reason="waiting: no job is open"))
    away: Answer = (502, {}, b"<html>")

    async def scenario() -> None:
        async with Scripted(jobless, away, away, jobless) as matchmaker:
            waiting = asyncio.create_task(work(matchmaker.url, on_waiting=heard.append))
            await until(lambda: len(heard) == 1)
            matchmaker.visits[0].hang_up()
            await until(lambda: len(matchmaker.visits) == 2)
            await until(lambda: len(heard) >= 4)
            assert len(matchmaker.came_at) == 4
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    run(scenario())
    assert heard == [
        "waiting: no job is open",
        "waiting: the matchmaker does not answer (the connection was lost); trying again",
        "waiting: the matchmaker answers again",
        "waiting: no job is open",
    ]


def test_who_works_is_told_at_once_that_it_was_turned_away() -> None:
    heard: list[CrowdgradError] = []

    async def scenario() -> None:
        async with Scripted(says(welcome(), matched())) as matchmaker:
            match = await work(matchmaker.url, on_turned_away=heard.append)
            await matchmaker.visits[0].say(refused(message="Forgotten, as you asked."))
            await until(lambda: bool(heard))
            assert match.presence.match is not None, "the job goes on"
            with pytest.raises(TurnedAway, match="as you asked"):
                await match.presence.next_job()
            await match.presence.close()

    run(scenario())
    assert [error.message for error in heard] == ["Forgotten, as you asked."]


@pytest.mark.parametrize("before", [[welcome()], []], ids=["once welcomed", "at its hello"])
def test_once_replaced_we_come_back_often_replaced_we_give_up(before: list[rooms.Said]) -> None:
    async def scenario() -> None:
        replaced = says(*before, refused(code="CG507", message="Somebody with your key."))
        async with Scripted(says(welcome(), matched()), replaced) as matchmaker:
            match = await work(matchmaker.url)
            await matchmaker.visits[0].say(refused(code="CG507", message="Somebody."))
            await until(lambda: match.presence.failure is not None)
            assert len(matchmaker.visits) == 4
            with pytest.raises(Replaced, match="your key"):
                await match.presence.next_job()
            await match.presence.close()

    run(scenario())


def test_a_silent_matchmaker_is_left_and_met_again() -> None:
    async def scenario() -> None:
        silent = says(welcome(gone_after_s=0.1), matched())
        async with Scripted(silent, says(welcome())) as matchmaker:
            match = await work(matchmaker.url)
            await until(lambda: len(matchmaker.visits) == 2 and match.presence.connected)
            await match.presence.close()

    run(scenario())


def test_heartbeats_come_as_often_as_wished() -> None:
    beats: list[rooms.Said] = []

    async def script(visit: Visit) -> None:
        await visit.greeted()
        await visit.say(welcome(heartbeat_s=0.02), matched())
        while len(beats) < 3:
            beats.append(await visit.hear())
        await visit.until_gone()

    async def scenario() -> None:
        async with Scripted(script) as matchmaker:
            match = await work(matchmaker.url)
            await until(lambda: len(beats) == 3)
            await match.presence.close()

    run(scenario())
    assert beats == [rooms.StillHere()] * 3


# -- credit -----------------------------------------------------------------------------------


def test_what_we_gave_is_countersigned_and_nothing_else() -> None:
    gift = Gift(units=3, samples=300, flop=1.5e9)
    said: list[rooms.Said] = []

    async def script(visit: Visit) -> None:
        await visit.greeted()
        body = bodies.GiftBody.of(gift)
        offered = rooms.CreditOffered(job="mnist-1", title="Digits", host="ab" * 8, gift=body)
        more = bodies.GiftBody(units=4, samples=400, flop=2e9)
        too_much = rooms.CreditOffered(job="mnist-1", title="Digits", host="ab" * 8, gift=more)
        await visit.say(welcome(), too_much, offered, matched())
        said.append(await visit.hear())
        await visit.until_gone()

    async def scenario() -> None:
        async with Scripted(script) as matchmaker:
            match = await work(
                matchmaker.url, on_credit=lambda job, told: (job, told) == ("mnist-1", gift)
            )
            await until(lambda: bool(said))
            await match.presence.close()

    run(scenario())
    (signed,) = said
    assert isinstance(signed, rooms.CreditSigned)
    assert signed.gift.gift() == gift
    text = signing.credit_text(JobId("mnist-1"), "ab" * 8, ME.id, gift)
    assert signed_by(ME.public, text, bytes.fromhex(signed.signature))


def test_gifts_are_told_in_pieces_and_again_after_a_loss() -> None:
    heard: list[list[rooms.Gave]] = []
    states: list[str] = []

    async def script(visit: Visit) -> None:
        await visit.greeted()
        await visit.say(welcome())
        heard.append([])
        while True:
            message = await visit.hear()
            if isinstance(message, rooms.Credited):
                assert len(rooms.encode(message)) <= rooms.MAX_REQUEST_BYTES
                heard[-1].extend(message.gifts)
            elif isinstance(message, rooms.StateChanged):
                states.append(message.state)

    async def scenario() -> None:
        async with Scripted(script) as matchmaker:
            presence = await host(matchmaker.url)
            gifts = {
                VolunteerId(f"{n:016x}"): Gift(units=n, samples=n, flop=n / 3) for n in range(1000)
            }
            presence.credit(gifts)
            await until(lambda: len(heard[0]) == 1000)
            who = VolunteerId(f"{1:016x}")
            presence.credit({**gifts, who: Gift(units=7, samples=7, flop=7.0)})
            await until(lambda: len(heard[0]) == 1001)
            assert heard[0][-1].volunteer == who, "only what is new"
            presence.set_state("finished")
            await until(lambda: states == ["finished"])
            matchmaker.visits[0].hang_up()
            await until(lambda: len(heard) == 2 and len(heard[1]) == 1000)
            assert {gave.volunteer: gave.gift.units for gave in heard[1]}[who] == 7
            await until(lambda: states == ["finished"] * 2)
            await presence.close()

    run(scenario())
