"""Looking at others, who are real here: a host behind TLS, a server of HTTP, nobody at all."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest

from crowdgrad.doctor import dialling, judging, seen
from crowdgrad.domain.codes import code_of
from crowdgrad.domain.routes import Route, route_of
from crowdgrad.errors import NoNeighbours, RouterError, Unreachable
from crowdgrad.net import lan, reaching
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.links import pin_of
from crowdgrad.net.nearby import Nearby
from crowdgrad.net.rooms import Reachability, Tried
from crowdgrad.net.transport import secure
from crowdgrad.net.transport.base import Connection
from tests.doctor.played_relay import Relay, played
from tests.net.answering import Answering
from tests.relay.world import Host, run
from tests.relay.world import relay as real_relay

KEY = guest("a host")


def with_host(look: Callable[[int], Awaitable[None]]) -> None:
    """While a host listens; nobody is left with it at the end."""

    async def main() -> None:
        here: set[Connection] = set()
        alone = asyncio.Event()
        alone.set()

        async def welcome(connection: Connection) -> None:
            here.add(connection)
            alone.clear()
            await connection.wait_closed()
            here.remove(connection)
            if not here:
                alone.set()

        listener = await secure.listen("127.0.0.1", 0, welcome, KEY)
        try:
            await look(listener.address[1])
        finally:
            await listener.close()
            await alone.wait()

    asyncio.run(main())


@pytest.fixture
def web() -> Iterator[Answering]:
    with Answering() as server:
        server.answers = [(500, {}, b"")]
        yield server


@pytest.fixture
def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        return int(somebody.getsockname()[1])


def test_the_host_with_the_right_key_is_reached() -> None:
    async def look(port: int) -> None:
        route = Route(host="127.0.0.1", port=port)
        for pin in (pin_of(KEY.public), ""):
            found = await dialling.way(route, pin)
            assert found.trouble is None
            assert found.key == KEY.id
            assert found.addresses == ("127.0.0.1",)

    with_host(look)


def test_somebody_else_is_told_from_it() -> None:
    async def look(port: int) -> None:
        found = await dialling.way(Route(host="127.0.0.1", port=port), "0" * 32)
        assert found.trouble is not None
        assert KEY.id in found.trouble.message
        assert found.trouble.advice

    with_host(look)


def test_where_nobody_is_it_is_said(free: int) -> None:
    found = asyncio.run(dialling.way(Route(host="127.0.0.1", port=free), ""))
    assert found.trouble is not None
    assert found.key == ""
    nowhere = asyncio.run(dialling.way(Route(host="no-such-name.invalid", port=1), ""))
    assert nowhere.trouble is not None
    assert "no-such-name.invalid" in nowhere.trouble.message


def health(**more: object) -> bytes:
    return json.dumps({"ok": True, "jobs": 0, "volunteers": 0, "waiting": 0, **more}).encode()


def test_a_matchmaker_is_asked_some_times_and_its_clock_compared(web: Answering) -> None:
    web.answers = [(200, {}, health(now_ms=1))]
    found = asyncio.run(dialling.matchmaker(web.url, True))
    assert len(found.answers_ms) == len(web.asked) == dialling.ROUNDS
    assert found.offset_s is not None
    assert found.offset_s < -1e9, "it believes in 1970"


def test_a_matchmaker_that_stops_answering_has_still_answered(web: Answering) -> None:
    web.answers = [(200, {}, health(now_ms=1)), (500, {}, b"")]
    found = asyncio.run(dialling.matchmaker(web.url, True))
    assert len(found.answers_ms) == 1
    web.answers = [(500, {}, b"")]
    found = asyncio.run(dialling.matchmaker(web.url, False))
    assert found.trouble is not None
    assert not found.chosen


def test_who_listens_at_a_port_is_found_out(web: Answering, free: int) -> None:
    async def look(port: int) -> None:
        assert await dialling.port(port) == seen.Port(number=port, whose="host")
        assert await dialling.port(free) == seen.Port(number=free, whose="")
        async with played(Relay()) as relay:
            assert (await dialling.port(relay.port)).whose == "relay"
        number = int(web.url.rpartition(":")[2])
        web.answers = [(200, {}, health())]
        assert (await dialling.port(number)).whose == "matchmaker"
        web.answers = [(200, {}, b"<html>")]
        assert (await dialling.port(number)).whose == "else"

    with_host(look)


def test_relays_are_those_named_or_those_of_the_matchmaker(
    web: Answering, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with played(Relay()) as relay:
            there, gone = str(relay), f"relay:127.0.0.1:{free}"
            first, second = await dialling.relays(None, (there, gone))
            assert first.trouble is None
            assert first.up_mbps > 0
            assert second.trouble is not None
            web.answers = [(200, {}, json.dumps({"relays": [there]}).encode())]
            (told,) = await dialling.relays(web.url, ())
            assert told.route == there
        assert await dialling.relays(None, ()) == ()

    asyncio.run(main())


def test_a_relay_is_measured_with_no_more_bytes_than_it_takes() -> None:
    async def main() -> None:
        quick, tired, full = Relay(), Relay(often=1), Relay(often=0)
        for relay in (quick, tired):
            async with played(relay) as route:
                found = await dialling.relay(str(route))
            assert found.trouble is None
            assert min(found.down_mbps, found.up_mbps, found.answer_ms) > 0
            assert relay.asked[0] == dialling.FEW_BYTES
            assert all(count <= dialling.MOST_BYTES for count in relay.asked)
        async with played(full) as route:
            found = await dialling.relay(str(route))
            assert (await dialling.port(route.port)).whose == "relay", "whoever refuses is there"
        assert found.trouble is None
        assert found.refused is not None
        assert "Too many" in found.refused.message
        assert found.refused.advice == "Come later."

    asyncio.run(main())


def test_a_relay_that_is_never_measured_is_told_from_one_that_is_busy() -> None:
    async def main() -> None:
        async with real_relay(measure_bytes=0) as running:
            never = await dialling.relay(f"relay:127.0.0.1:{running.port}")
        async with real_relay() as running:
            running.board.book.measures.add("127.0.0.1")  # somebody of this address is at it
            busy = await dialling.relay(f"relay:127.0.0.1:{running.port}")
        (found,) = judging.relays([never], named=True)
        assert (found.state, found.advice) == ("good", "")
        (found,) = judging.relays([busy], named=True)
        assert (found.state, found.advice) == ("warn", "Try again in a moment.")

    run(main())


def test_through_a_relay_the_job_is_asked_for() -> None:
    async def main() -> None:
        async with real_relay() as running:
            route = route_of(f"relay:127.0.0.1:{running.port}")
            host = await Host.serve(running, KEY, job="digits-1")
            try:
                found = await dialling.way(route, pin_of(KEY.public), "other-2")
                assert found.trouble is not None
                assert "is not at this relay" in found.trouble.message
                asking = asyncio.create_task(dialling.way(route, pin_of(KEY.public), "digits-1"))
                assert await host.knock()
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            finally:
                host.close()

    run(main())


def summary(**more: object) -> bytes:
    told = {
        "id": "digits-1", "title": "Digits\x1b[2J", "cause": "", "key": KEY.id, "code": "K7Q-2MP",
        "state": "running", "presence": "alive", "minimum": 1, "maximum": 4, "volunteers": 0,
        "published_at": 1.0, "hyperparameters": {}, "description": "", "contact": "",
        "requirements": {}, "visibility": "public", "link": "",
    }  # fmt: skip
    return json.dumps({**told, **more}).encode()


def test_a_job_is_what_the_matchmaker_says_of_it(web: Answering) -> None:
    web.answers = [(200, {}, summary())]
    found = asyncio.run(dialling.job(web.url, "K7Q-2MP"))
    assert web.asked[0].path == "/v1/jobs/K7Q-2MP"
    assert found.key == KEY.id
    assert found.present
    assert found.title.isprintable()
    web.answers = [(200, {}, summary(presence="gone"))]
    assert not asyncio.run(dialling.job(web.url, "K7Q-2MP")).present
    web.answers = [(404, {}, b'{"code": "CG506", "message": "No such job.", "advice": "Look."}')]
    trouble = asyncio.run(dialling.job(web.url, "K7Q-2MP")).trouble
    assert trouble is not None


NEAR = Nearby(key="ab" * 32, job="a", title="A", cause="", routes=(route_of("192.168.1.7:1"),))


def test_neighbours_are_looked_for_by_code(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hear(
        seconds: float, *, until: Callable[[Nearby], bool], tell: Callable[[NoNeighbours], None]
    ) -> list[Nearby]:
        return [NEAR, Nearby(key="cd" * 32, job="b", title="B", cause="", routes=NEAR.routes)]

    monkeypatch.setattr(lan, "look", hear)
    assert len(asyncio.run(dialling.neighbours())) == 2
    assert asyncio.run(dialling.neighbours(code_of(NEAR.key))) == (NEAR,)
    assert asyncio.run(dialling.neighbours(code_of("ef" * 32))) == ()


def test_a_machine_that_hears_nobody_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hear(
        seconds: float, *, until: Callable[[Nearby], bool], tell: Callable[[NoNeighbours], None]
    ) -> list[Nearby]:
        tell(NoNeighbours("There is no network."))
        return []

    monkeypatch.setattr(lan, "look", hear)
    with pytest.raises(NoNeighbours):
        asyncio.run(dialling.neighbours())


# -- the way in from outside ----------------------------------------------------------------------


class Outside:
    """A matchmaker that dials back, and a router in between."""

    def __init__(self, *reached: bool, router: bool = False) -> None:
        self.answers = list(reached)
        self.router = router
        self.asked: list[str] = []
        self.closed = False
        self.address, self.port, self.protocol = "198.51.100.7", 41000, "UPnP"

    async def ask(self, url: str, key: Identity, addresses: list[str]) -> Reachability:
        (address,) = addresses
        self.asked.append(address)
        if not self.asked[1:]:  # what we listen with is there, and has this key
            port = int(address.rpartition(":")[2])
            assert await secure.knock("127.0.0.1", port, key.public) == key.public
        reached = self.answers.pop(0)
        tried = Tried(address=address, reached=reached, why="" if reached else "silent", ms=1.0)
        return Reachability(observed="198.51.100.7", tried=(tried,))

    async def open_port(self, port: int, *, lifetime_s: int) -> Outside:
        if not self.router:
            raise RouterError("It opens no port.")
        return self

    async def close_quietly(self, mapping: Outside) -> None:
        self.closed = True


def seen_from(outside: Outside, monkeypatch: pytest.MonkeyPatch, url: str = "") -> seen.Network:
    monkeypatch.setattr(reaching, "ask", outside.ask)
    monkeypatch.setattr(dialling, "open_port", outside.open_port)
    monkeypatch.setattr(dialling, "close_quietly", outside.close_quietly)
    monkeypatch.setattr(dialling.measuring, "local_addresses", lambda: ("192.168.1.5",))
    return asyncio.run(dialling.network(url or "https://match.example.org", 0))


def test_a_machine_that_is_dialled_asks_no_router(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = Outside(True, router=True)
    found = seen_from(outside, monkeypatch)
    assert (found.reached, found.by, found.observed) == (True, "", "198.51.100.7")
    assert not outside.closed


def test_else_the_router_is_asked_for_a_port_and_gets_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = Outside(False, True, router=True)
    found = seen_from(outside, monkeypatch)
    assert (found.reached, found.by, found.external) == (True, "UPnP", "198.51.100.7")
    assert outside.asked[1] == "*:41000"
    assert outside.closed
    firewalled = seen_from(Outside(False, False, router=True), monkeypatch)
    assert (firewalled.reached, firewalled.why) == (False, "silent")


def test_a_router_that_opens_nothing_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = seen_from(Outside(False), monkeypatch)
    assert (found.reached, found.why, found.router) == (False, "silent", "It opens no port.")


def test_a_matchmaker_that_does_not_dial_back_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Outside):
        async def ask(self, url: str, key: Identity, addresses: list[str]) -> Reachability:
            raise Unreachable("Nobody answers.")

    found = seen_from(Silent(), monkeypatch)
    assert found.reached is None
    assert found.trouble is not None


def test_a_matchmaker_on_this_machine_says_nothing_about_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = Outside()
    found = seen_from(outside, monkeypatch, "http://127.0.0.1:8700")
    assert found.reached is None
    assert not outside.asked
    assert asyncio.run(dialling.network(None, 0)) == seen.Network(local=("192.168.1.5",))


def test_a_matchmaker_that_does_not_see_us_has_not_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hidden(Outside):
        async def ask(self, url: str, key: Identity, addresses: list[str]) -> Reachability:
            tried = Tried(address=addresses[0], reached=False, why="not dialled", ms=0.0)
            return Reachability(observed="", tried=(tried,))

    found = seen_from(Hidden(router=True), monkeypatch)
    assert (found.reached, found.trouble) == (None, dialling.PASSED_ON)
