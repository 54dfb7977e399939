"""How others come to a host: what is found out, what is told, and what happens when it changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, cast

import pytest

from crowdgrad.errors import CrowdgradError, RouterError, Unreachable
from crowdgrad.host.relays import AWAY_S, Relays
from crowdgrad.host.ways import AGAIN_S, LOOK_S, RELAY_S, Ways, Wishes
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.rooms import Reachability, Tried
from crowdgrad.net.routers.keeper import PortKeeper
from crowdgrad.net.transport.base import Connection
from crowdgrad.planner.relaying import ranked
from tests.host.played_relays import World as PlayedRelays
from tests.virtual_time import run_virtual

KEY = guest("the host")
MATCHMAKER = "https://match.example.org"
OUTSIDE, HOME = "203.0.113.7", "192.168.1.7"
RELAYS = ranked(KEY.id, [f"relay:r{n}.example.org:8702" for n in range(3)])


@dataclass
class Mapping:
    address: str = OUTSIDE
    port: int = 40123

    def judge(self, observed: str = "") -> tuple[str, str]:
        return ("mapped", "") if self.address == OUTSIDE else ("behind", "it is behind another")


class Router:
    """A keeper, as `PortKeeper`; what it opens is the world's to say."""

    def __init__(self, world: World, changed: Callable[[Any], None]) -> None:
        self._world, self._changed = world, changed
        self.mapping: Mapping | None = None
        self.looked = 0

    async def __aenter__(self) -> Router:
        self._world.routers += 1
        await asyncio.sleep(1.0)
        if self._world.opens is None:
            raise RouterError("No router answers.")
        self.mapping = self._world.opens
        self._world.open.append(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._world.open.remove(self)

    def look_now(self) -> None:
        self.looked += 1

    def opens(self, mapping: Mapping | None) -> None:
        self.mapping = mapping
        self._changed(mapping)


@dataclass
class World:
    """What is outside the host: its networks, its router, a matchmaker and relays."""

    reachable: set[str] = field(default_factory=set)
    """Addresses, as a matchmaker is asked for them, at which we are reached."""
    addresses: tuple[str, ...] = (HOME,)
    opens: Mapping | None = None
    """What a router opens; None: there is none."""
    observed: str = OUTSIDE
    relays: tuple[str, ...] = RELAYS
    away: bool = False
    """The matchmaker does not answer."""
    asked: list[tuple[str, ...]] = field(default_factory=list)
    routers: int = 0
    open: list[Router] = field(default_factory=list)
    played: PlayedRelays = field(default_factory=PlayedRelays)
    told: list[tuple[str, ...]] = field(default_factory=list)

    async def ask(
        self, url: str, key: Identity, addresses: tuple[str, ...], *, hosting: bool
    ) -> Reachability:
        assert (url, key, hosting) == (MATCHMAKER, KEY, True)
        self.asked.append(addresses)
        await asyncio.sleep(0.5)
        if self.away:
            raise Unreachable("The matchmaker does not answer.")
        tried = tuple(
            Tried(address=one, reached=one in self.reachable, why="no answer", ms=1.0)
            for one in addresses
        )
        return Reachability(observed=self.observed, tried=tried)

    async def relays_of(self, url: str) -> tuple[str, ...]:
        if self.away:
            raise Unreachable("The matchmaker does not answer.")
        return self.relays

    def keeper(self, port: int, *, changed: Callable[[Any], None]) -> PortKeeper:
        assert port == 8701
        return cast(PortKeeper, Router(self, changed))

    @contextlib.asynccontextmanager
    async def ways(self, **changes: Any) -> AsyncIterator[Ways]:
        wishes: dict[str, Any] = {"host": "0.0.0.0", "port": 8701, "matchmaker": MATCHMAKER}

        async def serve(connection: Connection) -> None:
            raise AssertionError("nobody calls")

        ways = Ways(
            Wishes(**(wishes | changes)),
            KEY,
            serve,
            random01=lambda: 0.5,
            ask=self.ask,
            relays_of=self.relays_of,
            addresses=lambda: self.addresses,
            keeper=self.keeper,
        )
        async with ways:
            ways.changed = lambda: self.told.append(told(ways))
            yield ways
        assert self.open == [], "the router is not left with an open port"
        assert self.played.running == []


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(
        Relays, "at_relay", lambda self, route, on_change: made.played.at_relay(route, on_change)
    )
    return made


def told(ways: Ways) -> tuple[str, ...]:
    return tuple(map(str, ways.routes))


# -- finding out ----------------------------------------------------------------------------------


def test_who_can_be_dialled_asks_for_nothing_else(world: World) -> None:
    async def main() -> None:
        world.reachable = {"*:8701"}
        async with world.ways() as ways:
            assert told(ways) == (f"{OUTSIDE}:8701", f"{HOME}:8701")
            assert ways.words == f"others reach this machine at {OUTSIDE}:8701"
            assert world.asked == [("*:8701",)]
            assert world.routers == 0
            assert world.played.running == []

    run_virtual(main())


def test_addresses_of_the_newer_kind_are_dialled_too(world: World) -> None:
    async def main() -> None:
        six = "[2a02:8071::7]:8701"
        world.addresses = (HOME, "2a02:8071::7", "fe80::1")
        world.reachable = {six}
        async with world.ways() as ways:
            assert world.asked == [("*:8701", six)]
            assert told(ways) == (six, f"{HOME}:8701")

    run_virtual(main())


def test_a_port_that_the_router_opens_is_dialled_before_it_is_told(world: World) -> None:
    async def main() -> None:
        world.opens, world.reachable = Mapping(), {"*:40123"}
        async with world.ways() as ways:
            assert told(ways) == (f"{OUTSIDE}:40123", f"{HOME}:8701")
            assert "the router has opened a port" in ways.words
            assert world.asked == [("*:8701",), ("*:40123", f"{OUTSIDE}:40123")]
            assert world.played.running == []

    run_virtual(main())


def test_behind_two_routers_a_port_helps_nobody_and_relays_do(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        world.opens, world.played.up = Mapping(address="10.0.0.2"), set(RELAYS)
        async with world.ways() as ways:
            await asyncio.sleep(1)
            assert told(ways) == (f"{HOME}:8701", *RELAYS[:2])
            assert "through a relay" in ways.words

    run_virtual(main())
    assert "the router opened a port, but it is behind another" in caplog.text


def test_without_a_router_that_answers_relays_are_asked(world: World) -> None:
    async def main() -> None:
        world.played.up = {RELAYS[1]}
        async with world.ways() as ways:
            assert told(ways) == (f"{HOME}:8701", RELAYS[1])
            assert world.routers == 1
            world.told.clear()
            await asyncio.sleep(AWAY_S)
        async with world.ways(router=False):
            assert world.routers == 1, "its owner does not want that"

    run_virtual(main())


def test_where_no_relay_is_known_that_is_said(world: World) -> None:
    async def main() -> None:
        world.relays = ()
        async with world.ways() as ways:
            assert told(ways) == (f"{HOME}:8701",)
            assert ways.words.startswith("nobody outside this network can dial this machine")
            assert "no relay is known: name one with --relay" in ways.words

    run_virtual(main())


def test_where_no_relay_answers_that_is_said_and_it_is_not_waited_for_ever(world: World) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with world.ways(router=False) as ways:
            assert loop.time() - began == pytest.approx(RELAY_S + 0.5)
            assert "no relay answers: Nobody answers at relay:r" in ways.words
            world.played.set(RELAYS[0], up=True)
            await asyncio.sleep(1)
            assert world.told == [(f"{HOME}:8701", RELAYS[0])]

    run_virtual(main())


def test_relays_of_the_owners_choice_are_used_whatever_else_works(world: World) -> None:
    async def main() -> None:
        mine = ("relay:mine.example.org:1",)
        world.reachable, world.played.up = {"*:8701"}, set(mine)
        async with world.ways(relays=mine) as ways:
            assert told(ways) == (f"{OUTSIDE}:8701", f"{HOME}:8701", *mine)
        async with world.ways(host="127.0.0.1", relays=mine, matchmaker=None) as ways:
            assert told(ways) == mine

    run_virtual(main())


@pytest.mark.parametrize(
    ("wishes", "routes"),
    [
        ({"host": "127.0.0.1"}, ("127.0.0.1:8701",)),
        ({"host": "127.0.0.1", "matchmaker": None}, ("127.0.0.1:8701",)),
        ({"advertise": "home.example.org"}, ("home.example.org:8701", f"{HOME}:8701")),
        ({"advertise": "2001:db8::1"}, ("[2001:db8::1]:8701", f"{HOME}:8701")),
        ({"matchmaker": None}, (f"{HOME}:8701",)),
        ({"matchmaker": "http://127.0.0.1:8700"}, (f"{HOME}:8701",)),
        ({"matchmaker": None, "host": "home.example.org"}, ("home.example.org:8701",)),
    ],
)
def test_where_nobody_needs_to_be_asked_nobody_is(
    world: World, wishes: dict[str, Any], routes: tuple[str, ...]
) -> None:
    async def main() -> None:
        async with world.ways(**wishes) as ways:
            assert told(ways) == routes
            await asyncio.sleep(3 * AGAIN_S)
            assert (world.asked, world.routers, world.told) == ([], 0, [])

    run_virtual(main())


@pytest.mark.parametrize("router", [True, False])
def test_while_the_matchmaker_is_away_those_nearby_are_told(world: World, router: bool) -> None:
    async def main() -> None:
        world.away = True
        world.opens = Mapping()
        async with world.ways(router=router) as ways:
            assert told(ways) == (f"{HOME}:8701",)
            assert "on the same network can come" in ways.words
            world.away, world.reachable = False, {"*:8701"}
            ways.look_again()
            await asyncio.sleep(5)
            assert world.told == [(f"{OUTSIDE}:8701", f"{HOME}:8701")]
            assert OUTSIDE in ways.words

    run_virtual(main())


@pytest.mark.parametrize("observed", ["", "nonsense !", "x" * 64, "a:b:c d"])
def test_a_matchmaker_that_says_nonsense_does_no_harm(world: World, observed: str) -> None:
    async def main() -> None:
        world.observed, world.reachable, world.relays = observed, {"*:8701"}, ()
        async with world.ways() as ways:
            assert f"{HOME}:8701" in told(ways)

    run_virtual(main())


# -- afterwards -----------------------------------------------------------------------------------


def test_another_address_is_noticed_looked_at_and_said_once(world: World) -> None:
    async def main() -> None:
        world.reachable = {"*:8701"}
        async with world.ways() as ways:
            await asyncio.sleep(100)
            assert world.told == []
            world.addresses, world.observed = ("10.0.0.9",), "198.51.100.4"
            await asyncio.sleep(LOOK_S + 1)
            assert world.told == [("198.51.100.4:8701", "10.0.0.9:8701")]
            assert told(ways) == world.told[0]
            await asyncio.sleep(AGAIN_S - 10)
            assert len(world.told) == 1

    run_virtual(main())


def test_it_is_looked_again_now_and_then_and_nothing_is_said_where_nothing_changed(
    world: World,
) -> None:
    async def main() -> None:
        world.opens, world.reachable = Mapping(), {"*:40123"}
        async with world.ways() as ways:
            before = told(ways)
            await asyncio.sleep(3 * AGAIN_S + 60)
            assert len(world.asked) == 2 + 3 * 2
            assert told(ways) == before, "the router's port is still known"
            assert world.told == []
            assert world.played.running == []
            assert world.routers == 1

    run_virtual(main())


def test_a_port_that_the_router_gives_elsewhere_is_looked_at_and_told(world: World) -> None:
    async def main() -> None:
        world.opens, world.reachable = Mapping(), {"*:40123", "*:40999"}
        world.played.up = set(RELAYS)
        async with world.ways() as ways:
            (router,) = world.open
            router.opens(Mapping(port=40999))
            await asyncio.sleep(5)
            assert world.told == [(f"{OUTSIDE}:40999", f"{HOME}:8701")]
            router.opens(None)
            await asyncio.sleep(5)
            assert told(ways) == (f"{HOME}:8701", *RELAYS[:2]), "then through relays"
            router.opens(Mapping(port=40999))
            await asyncio.sleep(5)
            assert told(ways)[0] == f"{OUTSIDE}:40999"
            assert "the router has opened a port" in ways.words

    run_virtual(main())


def test_on_another_network_the_router_there_is_asked(world: World) -> None:
    """Also where the one before had not answered; and whatever it opens is closed at the end."""

    async def main() -> None:
        world.played.up = set(RELAYS)
        async with world.ways() as ways:
            assert world.routers == 1
            await asyncio.sleep(2 * AGAIN_S)
            assert world.routers == 1, "not over and over"
            world.addresses, world.opens = ("192.168.9.9",), Mapping()
            world.reachable = {"*:40123"}
            await asyncio.sleep(LOOK_S + 5)
            assert world.routers == 2
            assert told(ways)[:2] == (f"{OUTSIDE}:40123", "192.168.9.9:8701")
            assert len(world.open) == 1

    run_virtual(main())


def test_a_router_that_is_there_hears_of_another_address_at_once(world: World) -> None:
    async def main() -> None:
        world.opens, world.reachable = Mapping(), {"*:40123"}
        async with world.ways():
            (router,) = world.open
            world.addresses = ("192.168.1.8",)
            await asyncio.sleep(LOOK_S + 1)
            assert router.looked == 1

    run_virtual(main())


def test_when_an_address_has_gone_so_has_all_that_was_dialled_from_it(world: World) -> None:
    async def main() -> None:
        moves: list[int] = []
        world.played.up = set(RELAYS)
        async with world.ways(router=False) as ways:
            ways.moved = lambda: moves.append(1)
            await asyncio.sleep(LOOK_S)
            world.addresses = (HOME, "192.168.9.9")
            await asyncio.sleep(LOOK_S + 1)
            assert (moves, world.played.came_anew) == ([], []), "one more cuts nobody off"
            world.addresses = ("192.168.9.9",)
            await asyncio.sleep(3 * LOOK_S)
            assert moves == [1]
            assert sorted(world.played.came_anew) == sorted(RELAYS[:2])

    run_virtual(main())


def test_a_relay_that_is_lost_is_no_longer_told_and_another_is(world: World) -> None:
    async def main() -> None:
        world.played.up = set(RELAYS)
        async with world.ways(router=False) as ways:
            await asyncio.sleep(1)
            assert told(ways)[1:] == RELAYS[:2]
            world.told.clear()
            world.played.set(RELAYS[0], up=False)
            await asyncio.sleep(1)
            assert world.told == [(f"{HOME}:8701", RELAYS[1])]
            await asyncio.sleep(AWAY_S)
            assert world.told[1:] == [(f"{HOME}:8701", RELAYS[1], RELAYS[2])]

    run_virtual(main())


def test_what_was_found_out_is_kept_while_the_matchmaker_is_away(world: World) -> None:
    async def main() -> None:
        world.opens, world.reachable = Mapping(), {"*:40123"}
        async with world.ways() as ways:
            before, words = told(ways), ways.words
            world.away = True
            await asyncio.sleep(2 * AGAIN_S + 60)
            assert (told(ways), ways.words, world.told) == (before, words, [])
            world.addresses = ("10.0.0.9",)
            await asyncio.sleep(LOOK_S + 5)
            assert told(ways) == ("10.0.0.9:8701",), "that was of another network"

    run_virtual(main())


def test_relays_are_kept_while_the_matchmaker_is_away(world: World) -> None:
    async def main() -> None:
        world.played.up = set(RELAYS)
        async with world.ways(router=False) as ways:
            await asyncio.sleep(1)
            before, words = told(ways), ways.words
            world.away = True
            world.told.clear()
            await asyncio.sleep(2 * AGAIN_S + 60)
            assert (told(ways), ways.words, world.told) == (before, words, [])

    run_virtual(main())


def test_a_failure_while_finding_out_leaves_nothing_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: Relays, *what: Any, **how: Any) -> None:
        raise CrowdgradError("no")

    async def main() -> None:
        world.opens = Mapping()
        monkeypatch.setattr(Relays, "use", fails)
        with pytest.raises(CrowdgradError):
            async with world.ways():
                raise AssertionError("never")
        assert world.open == []

    run_virtual(main())
