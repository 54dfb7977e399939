"""What a matchmaker says of us: asked, signed, and read with care."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from crowdgrad.errors import CrowdgradError, MessageError, TargetError, TurnedAway, Unreachable
from crowdgrad.net import reaching, rooms
from crowdgrad.net.identity import guest
from tests.net.answering import Answering, Said

ME = guest("somebody")
NOW = 1_700_000_000


@pytest.fixture
def server() -> Iterator[Answering]:
    with Answering() as running:
        yield running


def said(body: msgspec.Struct, status: int = 200) -> Said:
    return status, {}, rooms.encode(body)


def one(address: str = "*:8701", *, reached: bool = True, why: str = "") -> rooms.Tried:
    return rooms.Tried(address=address, reached=reached, why=why, ms=1.5)


def test_the_question_is_signed_and_the_answer_read(server: Answering) -> None:
    lost = one(":9000", reached=False, why="nobody answers")
    told = rooms.Reachability(observed="192.0.2.7", tried=(one(), lost), now_ms=(NOW + 90) * 1000)
    server.answers = [said(told)]
    found = asyncio.run(
        reaching.ask(server.url, ME, ["*:8701", ":9000"], hosting=True, wall=lambda: NOW)
    )
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v1/reach")
    assert asked.holds
    assert asked.proof.key == ME.public.hex()
    assert msgspec.json.decode(asked.body) == {"addresses": ["*:8701", ":9000"], "hosting": True}
    assert found.observed == "192.0.2.7"
    assert found.any
    assert found == told


def test_nobody_reaches_us_where_nothing_was_tried(server: Answering) -> None:
    server.answers = [said(rooms.Reachability(observed="::1", tried=()))]
    assert not asyncio.run(reaching.ask(server.url, ME)).any


def test_a_clock_that_does_not_fit_is_set(server: Answering) -> None:
    problem = rooms.Problem(code="CG506", message="m", advice="a", now_ms=(NOW + 5000) * 1000)
    server.answers = [said(problem, 401), said(rooms.Reachability(observed="::1", tried=()))]
    asyncio.run(reaching.ask(server.url, ME, wall=lambda: NOW))
    assert server.asked[1].proof.time_ms == (NOW + 5000) * 1000


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (said(rooms.Reachability(observed="", tried=(one("*:1"),))), MessageError),
        (said(rooms.Reachability(observed="", tried=())), MessageError),
        ((200, {}, b"{}"), MessageError),
        ((200, {}, b"\xff"), MessageError),
        (said(rooms.Problem(code="CG506", message="m", advice="a"), 401), TurnedAway),
        ((429, {"Retry-After": "7"}, b""), Unreachable),
        (said(rooms.Problem(code="CG105", message="m", advice="a"), 404), TurnedAway),
        ((404, {}, b"not here"), Unreachable),
    ],
    ids=["another", "fewer", "empty", "no text", "401", "429", "old", "elsewhere"],
)
def test_what_is_no_answer(server: Answering, answer: Said, error: type[CrowdgradError]) -> None:
    server.answers = [answer]
    with pytest.raises(error):
        asyncio.run(reaching.ask(server.url, ME, ["*:8701"]))


def test_no_matchmaker_no_answer() -> None:
    with pytest.raises(TargetError):
        asyncio.run(reaching.ask("ftp://x", ME))


def test_relays_are_those_we_can_dial(server: Answering) -> None:
    known = ("relay:relay.example.org:8702", "relay:wss://match.example.org/r")
    server.answers = [said(rooms.RelayList(relays=(known[0], "192.0.2.7:1", "quic!x", known[1])))]
    assert asyncio.run(reaching.relays(server.url)) == known
    (asked,) = server.asked
    assert (asked.path, asked.authorization) == ("/v1/relays", None)


def test_the_clocks_are_compared_half_way(server: Answering) -> None:
    server.answers = [said(rooms.Health(ok=True, jobs=0, volunteers=0, waiting=0,
                                        now_ms=(NOW + 8) * 1000))]  # fmt: skip
    times = iter([NOW, NOW + 2.0])
    assert asyncio.run(reaching.clock_offset(server.url, wall=lambda: next(times))) == 7


def test_an_old_matchmaker_does_not_tell_the_time(server: Answering) -> None:
    server.answers = [(200, {}, b'{"ok":true,"jobs":0,"volunteers":0,"waiting":0}')]
    with pytest.raises(MessageError, match="time"):
        asyncio.run(reaching.clock_offset(server.url))
