"""The matchmaker's load: that it says what it sees. Against a matchmaker of a few lines."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest
from websockets.asyncio.server import serve
from websockets.datastructures import Headers
from websockets.http11 import Response

from crowdgrad.net import bodies, rooms, signing

FOLDER = Path(__file__).parents[2] / "benchmarks"
MODULES = ("socket", "figures", "people", "callers", "load", "service")


@pytest.fixture
def bench(monkeypatch):
    """The benchmark's modules by their last word, as its scripts import them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = {name: f"_matchmaker_{name}" for name in MODULES} | {"matchmaker": "matchmaker"}
    yield {name: __import__(module) for name, module in names.items()}
    for module in [*names.values(), "_processes", "_report"]:
        sys.modules.pop(module, None)


# Frames and answers


def server_frame(payload, opcode=1, fin=0x80):
    size = len(payload)
    if size < 126:
        return bytes([fin | opcode, size]) + payload
    if size < 1 << 16:
        return bytes([fin | opcode, 126]) + size.to_bytes(2, "big") + payload
    return bytes([fin | opcode, 127]) + size.to_bytes(8, "big") + payload


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_frames_of_every_size_are_read_whole_or_not_at_all(bench, size):
    read = bench["socket"].read_frames
    whole = server_frame(b"x" * size) + server_frame(b"next")
    assert read(whole) == ([(1, b"x" * size), (1, b"next")], b"")
    for cut in {1, 2, 3, len(whole) // 2, len(whole) - 5, len(whole) - 1}:
        frames, rest = read(whole[:cut])
        again, nothing = read(rest + whole[cut:])
        assert frames + again == [(1, b"x" * size), (1, b"next")]
        assert nothing == b""


def test_what_no_matchmaker_sends_is_not_read(bench):
    with pytest.raises(ValueError, match="frame"):
        bench["socket"].read_frames(server_frame(b"half", fin=0))
    with pytest.raises(ValueError, match="frame"):
        bench["socket"].read_frames(bytes([0x81, 127]) + (1 << 40).to_bytes(8, "big"))


def test_an_answer_says_when_to_come_again_or_does_not(bench):
    read = bench["socket"].read_answer
    assert read(b"HTTP/1.1 429 Too Many\r\nRetry-After: 7").retry_after_s == 7
    assert read(b"HTTP/1.1 429 Too Many\r\nretry-after: soon").retry_after_s is None
    assert read(b"HTTP/1.1 500 Oh\r\nServer: x").status == 500
    with pytest.raises(ValueError, match="not HTTP"):
        read(b"SSH-2.0 something\r\n")


# What attempts come to


def attempt(bench, at_s, took_s=0.01, outcome=None, again=False):
    figures = bench["figures"]
    return figures.Attempt(at_s, took_s, outcome or figures.WELCOMED, again)


def test_only_a_refusal_that_says_when_to_come_again_is_polite(bench):
    figures, answer = bench["figures"], bench["socket"].Answer
    assert figures.outcome_of(answer(429, 3.0)) == figures.REFUSED
    assert figures.outcome_of(answer(503, 3.0)) == figures.REFUSED
    for rude in (answer(429, None), answer(500, 3.0), answer(403, None), None):
        outcome = figures.outcome_of(rude)
        assert attempt(bench, 0, outcome=outcome).impolite


def test_quantiles_are_values_that_were_seen(bench):
    quantile = bench["figures"].quantile
    values = [float(n) for n in range(1, 201)]
    assert quantile(values, 0.5) == 100
    assert quantile(values, 0.99) == 198
    assert quantile(values, 1.0) == 200
    assert quantile([5.0], 0.99) == 5


def test_a_second_counts_who_knocked_in_it(bench):
    refused = bench["figures"].REFUSED
    found = bench["figures"].by_second(
        [
            attempt(bench, 0.2, 0.5),
            attempt(bench, 0.9, outcome=refused),
            attempt(bench, 2.0, outcome="hung up", again=True),
            attempt(bench, 3.0),
        ],
        3,
    )
    assert [second.offered for second in found] == [2, 0, 1]
    assert (found[0].admitted, found[0].refused, found[0].p99_s) == (1, 1, 0.5)
    assert (found[2].impolite, found[2].again, found[2].p99_s) == (1, 1, None)


def recovery(bench, slow_until, refused_at=None, before_s=0.01):
    """Ten seconds of calm, ten of surge, thirty of calm; slow from the surge on."""
    took = [before_s if at < 10 else 5.0 if at < slow_until else 0.02 for at in range(50)]
    attempts = [attempt(bench, at + 0.5, took[at]) for at in range(50)]
    if refused_at is not None:
        attempts.append(attempt(bench, refused_at, outcome=bench["figures"].REFUSED))
    return bench["figures"].recovery_s(attempts, before_s=10, over_at_s=20, end_s=50)


def test_recovered_is_from_when_on_all_is_as_before(bench):
    assert recovery(bench, slow_until=27) == 7
    assert recovery(bench, slow_until=20) == 0
    assert recovery(bench, slow_until=20, refused_at=31.5) == 12
    assert recovery(bench, slow_until=50) is None
    assert recovery(bench, slow_until=50, before_s=2.6) == 0  # it was as slow before


# Callers, and a matchmaker of a few lines


class Matchmaker:
    """Lets people in, and gives every host the first who wait; refuses the first `refuse`."""

    def __init__(self, refuse=0, deaf=False):
        self.refuse, self.deaf = refuse, deaf
        self.volunteers, self.hellos, self.said = [], [], []

    def handshake(self, connection, request):
        self.path = request.path
        if self.refuse:
            self.refuse -= 1
            return Response(429, "busy", Headers({"Retry-After": "1", "Content-Length": "0"}))
        return None

    async def visit(self, socket):
        path, authority = socket.request.path, socket.request.headers["Host"]
        hello = rooms.from_volunteer.decode(await socket.recv())
        proof = signing.Proof(
            key=hello.key, time_ms=hello.time_ms, nonce=hello.nonce, signature=hello.signature
        )
        assert signing.verify(
            proof, method="GET", authority=authority, path=path, body=hello.body.encode()
        )
        if self.deaf:
            await socket.wait_closed()
            return
        welcome = rooms.Welcome(heartbeat_s=0.05, gone_after_s=1, key="0" * 64)
        await socket.send(rooms.encode(welcome).decode())
        if "/jobs/" in path:
            await self.help(hello)
        else:
            self.volunteers.append(socket)
        with contextlib.suppress(Exception):
            async for text in socket:
                self.said.append(text)

    async def help(self, hello):
        body = rooms.publish_body.decode(hello.body)
        roster = rooms.RosterChanged(job=body.offer.id, members=(), next_position=1)
        listing = bodies.ListingBody(
            offer=body.offer, state="waiting", published_at=1.0, code="K7Q-2MP"
        )
        said = rooms.Matched(listing=listing, roster=roster, position=1, reason="you waited")
        for socket in self.volunteers[: body.offer.maximum]:
            await socket.send(rooms.encode(said).decode())


@contextlib.asynccontextmanager
async def running(matchmaker, bench):
    async with serve(
        matchmaker.visit, "127.0.0.1", 0, process_request=matchmaker.handshake
    ) as server:
        port = server.sockets[0].getsockname()[1]
        yield bench["callers"].Stage(f"127.0.0.1:{port}", 0)


async def until(condition):
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_volunteers_come_sign_beat_and_leave(bench):
    async def run():
        matchmaker = Matchmaker()
        async with running(matchmaker, bench) as stage:
            people = bench["people"].Town(0).volunteers(5)
            come = [bench["callers"].Volunteer(stage, person) for person in people]
            for volunteer in come:
                volunteer.come()
            await until(lambda: len(stage.here) == 5)
            await until(lambda: len(matchmaker.said) >= 10)
            for volunteer in come:
                volunteer.leave()
            await until(lambda: matchmaker.said.count('{"type":"Leaving"}') == 5)
            assert not stage.here
            return stage.book

    book = asyncio.run(run())
    assert [one.outcome for one in book.attempts] == [bench["figures"].WELCOMED] * 5
    assert book.lost == 0


def test_who_is_refused_comes_again_as_told(bench):
    async def run():
        async with running(Matchmaker(refuse=1), bench) as stage:
            (person,) = bench["people"].Town(0).volunteers(1)
            volunteer = bench["callers"].Volunteer(stage, person)
            volunteer.come()
            await until(lambda: len(stage.here) == 1)
            volunteer.leave()
            return stage.book.attempts

    first, second = asyncio.run(run())
    assert (first.outcome, first.again) == (bench["figures"].REFUSED, False)
    assert (second.outcome, second.again) == (bench["figures"].WELCOMED, True)
    assert second.at_s - first.at_s >= 1.0


def test_no_answer_and_a_lost_socket_are_counted(bench, monkeypatch):
    monkeypatch.setattr(bench["callers"], "ANSWER_S", 0.2)

    async def run():
        (person, other) = bench["people"].Town(0).volunteers(2)
        async with running(Matchmaker(deaf=True), bench) as stage:
            bench["callers"].Volunteer(stage, person).come()
            await until(lambda: stage.book.attempts)
            deaf = stage.book
        matchmaker = Matchmaker()
        async with running(matchmaker, bench) as stage:
            bench["callers"].Volunteer(stage, other).come()
            await until(lambda: matchmaker.volunteers and stage.here)
            await matchmaker.volunteers[0].close()
            await until(lambda: not stage.here)
            return deaf, stage.book

    deaf, lost = asyncio.run(run())
    assert deaf.attempts[0].impolite
    assert "no answer" in deaf.attempts[0].outcome
    assert lost.lost == 1


def test_a_host_is_helped_when_the_eighth_has_been_told(bench):
    async def run(waiting):
        matchmaker = Matchmaker()
        async with running(matchmaker, bench) as stage:
            town = bench["people"].Town(0)
            come = [bench["callers"].Volunteer(stage, one) for one in town.volunteers(waiting)]
            for volunteer in come:
                volunteer.come()
            await until(lambda: len(matchmaker.volunteers) == waiting)
            host = bench["callers"].Host(stage, town.hosts(1)[0], hold_s=0.05)
            host.come()
            await host.done
            for volunteer in come:
                volunteer.leave()
            return stage.book, matchmaker.said

    book, said = asyncio.run(run(9))
    assert len(book.filled) == 1
    assert book.filled[0] > 0
    assert '{"type":"StateChanged","state":"stopped"}' in said
    bench["callers"].FILLED_S = 0.3
    book, _ = asyncio.run(run(7))
    assert (book.filled, book.unfilled) == ([], 1)


def test_everybody_is_somebody_else(bench):
    people = bench["people"].Town(0).volunteers(600)
    assert len({person.id for person in people}) == 600
    assert len({person.address for person in people}) == 600
    bodies = [rooms.register_body.decode(person.body) for person in people]
    assert 20 < sum(bool(body.machine.gpu) for body in bodies) < 120
    assert 60 < sum(bool(body.wants.causes) for body in bodies) < 300
    again = bench["people"].Town(0).volunteers(600)
    assert [person.body for person in again] == [person.body for person in people]
    for body in bodies:
        body.machine.machine(), body.wants.wants(), body.volunteer.volunteer()


# The whole


def test_the_worse_database_is_told(bench):
    script = bench["matchmaker"]
    kinds = {
        "sqlite": {"waiting": [10.0], "match_p99_s": [0.5, 0.2]},
        "postgresql": {"waiting": [12.0], "match_p99_s": [0.3, 0.3]},
    }
    assert script.worse(kinds) == {"waiting": [10.0], "match_p99_s": [0.5, 0.2]}
    assert "joins_per_s" in script.limits()


@pytest.mark.slow
def test_a_small_load_on_a_real_matchmaker(bench, tmp_path):
    script, service = bench["matchmaker"], bench["service"]
    with service.database("sqlite") as base, service.service(base.url) as running_service:
        plan = bench["load"].Plan(
            where=running_service.where, pid=running_service.pid, waiting=60, joins_per_s=100.0,
            rest_s=0.5, repetitions=1, requests=3, unhelped=2, calm_s=2, calm_per_s=20.0,
            surge_s=1, surge_per_s=40.0, after_s=6, stay_s=1.0,
        )  # fmt: skip
        found = script.run_load(plan)
    table = script.figures(plan, found)
    assert table["waiting"][0] >= 60
    assert table["requests"] == [3]
    assert table["match_unfilled"] == table["surge_lost"] == [0]
    assert found.fill.admitted >= 60
    assert sum(second.admitted for second in found.seconds) > 0
    assert table["waiting_bytes"][0] > 0
    script.draw({"sqlite": found.seconds}, plan, tmp_path / "surge.png")
    assert (tmp_path / "surge.png").stat().st_size > 1000
