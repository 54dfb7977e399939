"""Who is let in: the introduced, the known and our own; everybody else hears what does not fit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import SettingError, TurnedAway
from crowdgrad.host.door import Admit, Door, anyone, chosen
from crowdgrad.host.workers import Workers, helper, helpers_ids
from crowdgrad.net import handshake, introduction
from crowdgrad.net import messages as said
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.introduction import SKEW_S, VALID_S, Introduction, write
from crowdgrad.net.messages import Hello, Join, Welcome, expect
from crowdgrad.volunteer.conversation import Conversation
from tests.host import small
from tests.host.house import ADDRESS, House, in_house

MATCHMAKER, HOST, ADA = guest("matchmaker"), guest("host"), guest("ada")
JOB = JobId("digits-1")
NOW = 1e9
GOOD = Introduction(job=JOB, host=HOST.id, volunteer=ADA.id, position=1, written_at=NOW)


def introduced(by: Identity = MATCHMAKER, **changes: object) -> str:
    return write(by, msgspec.structs.replace(GOOD, **changes))


def door(
    *,
    known: tuple[str, ...] = (),
    ours: tuple[str, ...] = (),
    matchmaker: Callable[[], bytes] = lambda: MATCHMAKER.public,
    now: float = NOW,
) -> Door:
    return Door(
        job=JOB,
        host=HOST.id,
        known=tuple(map(VolunteerId, known)),
        ours=tuple(map(VolunteerId, ours)),
        matchmaker=matchmaker,
        wall=lambda: now,
    )


def test_who_is_introduced_may_come_in() -> None:
    door()(ADA.id, introduced())


@pytest.mark.parametrize("now", [NOW - SKEW_S, NOW + VALID_S + SKEW_S])
def test_clocks_may_differ(now: float) -> None:
    door(now=now)(ADA.id, introduced())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "you bring none"),
        ("nonsense", "it cannot be read"),
        ("a.b.c", "it cannot be read"),
        (introduced(by=guest("mallory")), "not signed by our matchmaker"),
        (introduced(by=HOST), "not signed by our matchmaker"),
        (introduced(job="digits-2"), "for another job"),
        (introduced(host=guest("other").id), "for another job"),
        (introduced(volunteer=guest("ben").id), "for somebody else"),
        (introduced(written_at=NOW + SKEW_S + 1), "out of date"),
        (introduced(written_at=NOW - VALID_S - SKEW_S - 1), "out of date"),
        (introduced() + "x" * introduction.MAX_CHARACTERS, "read|signed"),
    ],
)
def test_others_are_turned_away_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(TurnedAway, match=why) as refused:
        door()(ADA.id, text)
    assert "code" in refused.value.advice


@pytest.mark.parametrize("text", ["", "nonsense", introduced(job="digits-2")])
def test_who_was_here_before_and_who_is_ours_needs_no_word(text: str) -> None:
    door(known=(ADA.id,))(ADA.id, text)
    door(ours=(ADA.id,))(ADA.id, text)


def test_before_the_matchmaker_is_known_only_they_come_in() -> None:
    early = door(matchmaker=lambda: b"", known=(ADA.id,))
    early(ADA.id, "")
    with pytest.raises(TurnedAway, match="has not reached it yet"):
        early(guest("ben").id, introduced(volunteer=guest("ben").id))


def test_the_matchmakers_key_is_looked_up_each_time() -> None:
    """One that was started anew without its memory has another."""
    now = [guest("before")]
    moving = door(matchmaker=lambda: now[0].public)
    with pytest.raises(TurnedAway, match="not signed"):
        moving(ADA.id, introduced())
    now[0] = MATCHMAKER
    moving(ADA.id, introduced())


@pytest.mark.parametrize(
    ("admit", "matchmaker", "found"),
    [
        (None, None, "anyone"),
        (None, "http://m", "introduced"),
        ("anyone", None, "anyone"),
        ("anyone", "http://m", "anyone"),
        ("introduced", "http://m", "introduced"),
    ],
)
def test_what_is_chosen(admit: Admit | None, matchmaker: str | None, found: Admit) -> None:
    assert chosen(admit, matchmaker) == found


def test_nobody_introduces_without_a_matchmaker() -> None:
    with pytest.raises(SettingError, match="no matchmaker") as refused:
        chosen("introduced", None)
    assert "--matchmaker" in refused.value.advice


# -- at the server --------------------------------------------------------------------------------


async def come(house: House, who: Identity, *, token: str = "", introduction: str = "") -> None:
    me = replace(small.volunteer("someone"), id=who.id)
    connection = await house.network.connect(*ADDRESS)
    try:
        await Conversation(connection).join(me, who, token=token, introduction=introduction)
    finally:
        connection.close()
        await asyncio.sleep(0.5)


def guarded(house: House) -> None:
    """The same house with a door."""
    here = Door(
        job=house.training.job.id,
        host=HOST.id,
        known=house.training.ledger,
        ours=frozenset({guest("local-1").id}),
        matchmaker=lambda: MATCHMAKER.public,
        wall=lambda: NOW,
    )
    house.server._admits = here


def test_who_has_been_let_in_once_may_come_back_without_a_word() -> None:
    async def scenario(house: House) -> None:
        guarded(house)
        job = house.training.job.id
        with pytest.raises(TurnedAway, match="you bring none"):
            await come(house, ADA)
        assert ADA.id not in house.training.ledger
        await come(house, ADA, introduction=introduced(job=job))
        assert ADA.id in house.training.ledger
        await come(house, ADA)
        with pytest.raises(TurnedAway, match="for somebody else"):
            await come(house, guest("ben"), introduction=introduced(job=job))

    in_house(scenario)


def test_worker_0_and_helpers_come_in() -> None:
    async def scenario(house: House) -> None:
        guarded(house)
        await come(house, guest("worker"), token="secret")
        await come(house, guest("local-1"))
        for token in ("", "guessed"):
            with pytest.raises(TurnedAway):
                await come(house, guest("local-2"), token=token)

    in_house(scenario)


def test_a_host_that_is_not_published_takes_whoever_comes() -> None:
    anyone(ADA.id, "")
    in_house(lambda house: come(house, ADA))


def test_a_volunteer_of_the_last_protocol_is_understood() -> None:
    """It knows of no introductions, so its Join has none."""
    old = (said.PROTOCOL[0], said.PROTOCOL[1] - 1)

    async def scenario(house: House) -> None:
        connection = await house.network.connect(*ADDRESS)
        await connection.send(Hello(protocol=old, software="last year's", challenge=b"c" * 32))
        welcome = expect(await handshake.hear(connection), Welcome)
        me = replace(small.volunteer("someone"), id=ADA.id)
        join = Join(volunteer=me, key=ADA.public, signature=ADA.sign(welcome.challenge))
        await connection.send(join)
        expect(await handshake.hear(connection), said.Admit)
        connection.close()
        await asyncio.sleep(0.5)

    in_house(scenario)


def test_a_host_knows_the_helpers_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the seeds it gives them, in every life of a run."""
    started: list[dict[str, str]] = []
    monkeypatch.setattr(
        "crowdgrad.host.workers.Child", lambda *what, secrets, **how: started.append(secrets)
    )
    workers = Workers(
        ("127.0.0.1", 1), token="t", logs=tmp_path, home=tmp_path, seed=lambda name: f"of {name}"
    )
    workers.start_helpers(2)
    (seeds,) = {tuple(known) for known in started}
    ids = {guest(known[seeds[0]]).id for known in started}
    assert ids == helpers_ids(2, lambda name: f"of {name}")
    assert len(ids) == 2
    assert helpers_ids(0, str) == frozenset()
    assert helper(2) == "local-2"
