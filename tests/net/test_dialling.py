"""Reaching somebody by whichever way there is: bad ones cost a moment, and nothing is left open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from crowdgrad.domain.routes import Route, Whereabouts, at, route_of
from crowdgrad.errors import (
    ConnectionLost,
    CrowdgradError,
    FrameError,
    Impostor,
    NotPutThrough,
    TargetError,
    TurnedAway,
    Unreachable,
    VersionMismatch,
)
from crowdgrad.net import dialling
from crowdgrad.net.dialling import DIRECT_S, RELAYED_S, STAGGER_S, Dialler, dial
from crowdgrad.net.identity import digest_of
from crowdgrad.net.relaying import Calling
from crowdgrad.net.throttle import Throttle
from crowdgrad.net.transport import secure, stream, tcp
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.inproc import InprocConnection, pair
from crowdgrad.net.transport.layers import Layer, Stack
from crowdgrad.net.transport.tls import Tls
from crowdgrad.net.transport.websocket import Dialling
from crowdgrad.simulator.virtual_time import START_S
from tests.net.between import (
    ADA,
    HOST,
    LOOPS,
    MALLORY,
    PIN,
    Verdict,
    between,
    hosting,
    join,
    leave,
    only_the_web,
    run,
)
from tests.virtual_time import run_virtual

on_both_loops = pytest.mark.parametrize("loop", LOOPS)


def where(*ways: str, key: str = PIN) -> Whereabouts:
    return Whereabouts(routes=tuple(map(route_of, ways)), key=key)


# -- in virtual time, with sockets that are played ------------------------------------------------


class World:
    """`open` as `tcp.connect`: what becomes of a dialled address is written down beforehand."""

    def __init__(self, **ends: tuple[float, CrowdgradError | None]) -> None:
        """By host: after so many seconds this error, or a connection."""
        self.ends = ends
        self.dialled: list[tuple[float, str]] = []
        self.layers: list[Layer | None] = []
        self.options: list[dict[str, Any]] = []
        self.made: dict[str, InprocConnection] = {}
        self.given_up: list[str] = []

    async def open(
        self, host: str, port: int, *, layer: Layer | None, **options: Any
    ) -> Connection:
        loop = asyncio.get_running_loop()
        web = "web " if by_web(layer) else ""
        self.dialled.append((round(loop.time() - START_S, 3), f"{web}{host}"))
        self.layers.append(layer)
        self.options.append(options)
        seconds, error = self.ends.get(f"{web}{host}".replace(" ", "_"), (0.0, Unreachable("no")))
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.given_up.append(host)
            raise
        if error is not None:
            raise error
        self.made[host], _ = pair()
        return self.made[host]

    def dialler(self, **options: Any) -> Dialler:
        return Dialler(key=ADA, open=self.open, **options)


def by_web(layer: Layer | None) -> bool:
    lowest = layer._layers[0] if isinstance(layer, Stack) else layer
    return isinstance(lowest, Dialling)


GOOD: tuple[float, CrowdgradError | None] = (0.1, None)
SILENT: tuple[float, CrowdgradError | None] = (1e6, None)
DEAD = (0.2, Unreachable("Nobody answers."))


def is_open(connection: InprocConnection) -> bool:
    return connection._inbox.error is None


def test_ways_are_tried_in_order_and_the_next_begins_when_one_fails_or_is_silent() -> None:
    async def main() -> None:
        world = World(dead=DEAD, silent=SILENT, good=GOOD, never=GOOD)
        dialler = world.dialler()
        found = await dialler(where("dead:1", "silent:1", "good:1", "never:1"))
        assert found is world.made["good"]
        assert world.dialled == [(0.0, "dead"), (0.2, "silent"), (0.2 + STAGGER_S, "good")]
        assert world.given_up == ["silent"]
        world.dialled.clear()
        await dialler(where("dead:1", "silent:1", "good:1", "never:1"))
        assert [name for _, name in world.dialled] == ["good"], "it worked the last time"
        world.dialled.clear()
        await dialler(where("never:1", "dead:1"))
        assert [name for _, name in world.dialled] == ["never"], "that way is no longer told"

    run_virtual(main())


def test_a_way_that_was_slow_may_still_be_the_first_to_answer() -> None:
    async def main() -> None:
        world = World(slow=(2.0, None), slower=(9.0, None))
        found = await world.dialler()(where("slow:1", "slower:1"))
        assert found is world.made["slow"]
        assert world.given_up == ["slower"]

    run_virtual(main())


def test_of_two_that_answer_at_once_one_is_let_go() -> None:
    async def main() -> None:
        world = World(one=(2.0 + STAGGER_S, None), two=(2.0, None))
        found = await world.dialler()(where("one:1", "two:1"))
        assert len(world.made) == 2
        (other,) = (each for each in world.made.values() if each is not found)
        assert isinstance(found, InprocConnection)
        assert is_open(found)
        assert not is_open(other)

    run_virtual(main())


REFUSED = TurnedAway("The job is full.")


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([Unreachable("a"), Unreachable("b")], "a"),
        ([Unreachable("a"), ConnectionLost("b"), FrameError("c")], "b"),
        ([Unreachable("a"), FrameError("b")], "b"),
        ([ConnectionLost("a"), REFUSED], REFUSED.message),
        ([REFUSED, VersionMismatch("b"), Impostor("c")], "c"),
        ([FrameError("a"), Impostor("b"), Impostor("c")], "b"),
    ],
)
def test_where_all_fail_the_most_telling_is_said(errors: list[CrowdgradError], told: str) -> None:
    async def main() -> None:
        world = World(**{f"h{n}": (0.1, error) for n, error in enumerate(errors)})
        ways = [f"h{n}:1" for n in range(len(errors))]
        with pytest.raises(CrowdgradError) as failed:
            await world.dialler()(where(*ways))
        assert failed.value.message == told
        assert world.made == {}

    run_virtual(main())


@pytest.mark.parametrize(
    "error", [Impostor("x"), TurnedAway("x"), VersionMismatch("x"), NotPutThrough("x")]
)
def test_whoever_has_answered_is_not_asked_again_by_another_carrier(error: CrowdgradError) -> None:
    async def main() -> None:
        world = World(h=(0.1, error), web_h=GOOD)
        with pytest.raises(type(error)):
            await world.dialler()(where("h:1"))
        assert [name for _, name in world.dialled] == ["h"]

    run_virtual(main())


def test_nobody_there_is_not_dialled_by_the_web_either() -> None:
    async def main() -> None:
        world = World(h=DEAD, web_h=GOOD)
        with pytest.raises(Unreachable):
            await world.dialler()(where("h:1"))
        assert [name for _, name in world.dialled] == ["h"]

    run_virtual(main())


def test_an_accident_does_not_lead_by_the_web_for_ever() -> None:
    """A host was killed while we dialled, and was back when the web was tried."""

    async def main() -> None:
        world = World(h=(0.1, ConnectionLost("cut off")), web_h=GOOD)
        dialler = world.dialler()
        await dialler(where("h:1"))
        world.ends.update(h=GOOD, web_h=DEAD)
        with pytest.raises(Unreachable):
            await dialler(where("h:1"))
        await dialler(where("h:1"))
        assert [name for _, name in world.dialled] == ["h", "web h", "web h", "h"]

    run_virtual(main())


def test_where_the_web_brings_nothing_either_the_first_reason_is_told() -> None:
    async def main() -> None:
        world = World(h=(1.0, ConnectionLost("cut off")), web_h=(1.0, FrameError("no WebSocket")))
        dialler = world.dialler()
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="cut off"):
                await dialler(where("h:1"))
        assert [name for _, name in world.dialled] == ["h", "web h"] * 2
        world.ends["web_h"] = (1.0, Impostor("by the web"))
        with pytest.raises(Impostor):
            await dialler(where("h:1"))

    run_virtual(main())


def test_being_cancelled_ends_whatever_was_begun() -> None:
    async def main() -> None:
        world = World(one=SILENT, two=SILENT)
        dialling = asyncio.create_task(world.dialler()(where("one:1", "two:1")))
        await asyncio.sleep(STAGGER_S + 1)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        assert world.given_up == ["one", "two"]

    run_virtual(main())


def test_a_relay_is_only_asked_for_somebody_whose_key_is_known() -> None:
    async def main() -> None:
        world = World(r=GOOD, good=GOOD)
        with pytest.raises(TargetError, match="needs the host's key"):
            await world.dialler()(where("relay:r:1", key=""))
        assert world.dialled == []
        await world.dialler()(where("relay:r:1", key=PIN[:32]))
        (layer,) = world.layers
        assert isinstance(layer, Stack)
        assert [type(each) for each in layer._layers] == [Calling, Tls]
        assert world.options == [{"timeout_s": RELAYED_S, "peer": "relay r:1", "web": None}]
        found = await world.dialler()(where("relay:r:1", "good:1", key=""))
        assert found is world.made["good"]

    run_virtual(main())


@pytest.mark.parametrize(
    ("host", "always", "encrypted"),
    [
        ("127.0.0.1", False, False),
        ("127.0.0.1", True, True),
        ("localhost", False, False),
        ("::1", False, False),
        ("192.0.2.1", False, True),
        ("example.org", False, True),
        ("127.0.0.1.example.org", False, True),
        ("0.0.0.0", False, True),
    ],
)
def test_only_this_very_machine_is_talked_to_in_plain_sight(
    host: str, always: bool, encrypted: bool
) -> None:
    async def main() -> None:
        world = World(**{host: GOOD})
        await world.dialler(always=always)(at(host, 1, PIN))
        (layer,) = world.layers
        assert isinstance(layer, Tls) is encrypted
        assert (layer is None) is not encrypted
        assert world.options == [{"timeout_s": DIRECT_S, "peer": "", "web": None}]

    run_virtual(main())


def test_a_relay_of_the_web_is_dialled_inside_the_webs_own_tls() -> None:
    async def main() -> None:
        world = World(**{"web_match.example.org": GOOD})
        await world.dialler()(where("relay:wss://match.example.org/r"))
        (layer,) = world.layers
        assert isinstance(layer, Stack)
        assert by_web(layer)
        (options,) = world.options
        assert options["web"] is dialling.web_context()
        assert options["peer"] == "relay match.example.org:443"

    run_virtual(main())


# -- with real ones -------------------------------------------------------------------------------


@contextlib.contextmanager
def bound(*, listening: bool) -> Iterator[socket.socket]:
    """A port where nobody answers: it refuses, or it is silent."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.setblocking(False)
    if listening:
        sock.listen(8)
    try:
        yield sock
    finally:
        sock.close()


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


async def over(sock: socket.socket) -> bool:
    """Whether what came in has been closed by now, whatever it said before."""
    loop = asyncio.get_running_loop()
    came, _ = await loop.sock_accept(sock)
    try:
        while await loop.sock_recv(came, 1 << 16):
            pass
    except ConnectionError:
        pass
    finally:
        came.close()
    return True


@on_both_loops
def test_a_network_that_lets_only_the_web_pass(loop: str) -> None:
    async def main() -> None:
        async with hosting() as host, between((host.host, host.port), only_the_web) as network:
            dialler = Dialler(key=ADA, always=True)
            for expected in (["reset", "pass"], ["reset", "pass", "pass"]):
                talk = await join(ADA, at("127.0.0.1", network.port, PIN), dialler=dialler)
                assert network.verdicts == expected, "it is remembered"
                assert talk.host_key == HOST.id
                assert talk.connection.binding == HOST.public
                await leave(host, talk)
            assert network.there.startswith(b"GET /crowdgrad HTTP/1.1\r\n")

    run(main(), loop)


@on_both_loops
def test_a_network_that_swallows_the_rest_in_silence(loop: str) -> None:
    async def shortly(*place: Any, layer: Layer, timeout_s: float, **more: Any) -> Connection:
        patience_s = timeout_s if by_web(layer) else 1.0
        return await tcp.connect(*place, layer=layer, timeout_s=patience_s, **more)

    def judge(first: bytes) -> Verdict:
        return "pass" if first.startswith(b"GET ") else "swallow"

    async def main() -> None:
        async with hosting() as host, between((host.host, host.port), judge) as network:
            dialler = Dialler(key=ADA, always=True, open=shortly)
            for expected in (["swallow", "pass"], ["swallow", "pass", "pass"]):
                talk = await join(ADA, at("127.0.0.1", network.port, PIN), dialler=dialler)
                assert network.verdicts == expected
                await leave(host, talk)

    run(main(), loop)


@on_both_loops
def test_a_good_way_behind_bad_ones(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "STAGGER_S", 0.05)
    strangers: list[Connection] = []

    async def serve(connection: Connection) -> None:
        strangers.append(connection)

    async def main() -> None:
        impostor = await secure.listen("127.0.0.1", 0, serve, MALLORY, always=True)
        with bound(listening=False) as dead, bound(listening=True) as silent:
            async with hosting() as host:
                ports = [port_of(dead), port_of(silent), impostor.address[1], host.port]
                ways = where(*(f"127.0.0.1:{port}" for port in ports))
                talk = await join(ADA, ways)
                assert talk.connection.binding == HOST.public
                assert await over(silent), "the one that was silent is not kept waiting"
                await leave(host, talk)
        await impostor.close()
        assert strangers == [], "nobody was told anything"

    run(main(), loop)


def test_only_bad_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "STAGGER_S", 0.02)
    monkeypatch.setattr(dialling, "DIRECT_S", 0.7)

    async def main() -> None:
        dialler = Dialler(key=ADA, always=True)
        with bound(listening=False) as dead, bound(listening=True) as silent:
            bad = [f"127.0.0.1:{port_of(sock)}" for sock in (dead, silent)]
            with pytest.raises(ConnectionLost, match="Somebody listens at"):
                await dialler(where(*bad))
            for _ in ("as it is", "by WebSocket"):
                assert await over(silent)
            with pytest.raises(Unreachable, match="Nobody answers"):
                await dialler(where(bad[0]))

    run(main())


@on_both_loops
def test_an_impostor_says_more_than_silence(loop: str) -> None:
    async def main() -> None:
        async with hosting(key=MALLORY) as host:
            with bound(listening=False) as dead:
                ways = where(f"127.0.0.1:{port_of(dead)}", f"127.0.0.1:{host.port}")
                with pytest.raises(Impostor, match=MALLORY.id):
                    await Dialler(key=ADA, always=True)(ways)
                ways = where(*map(str, ways.routes), key=digest_of(MALLORY.public))
                talk = await join(ADA, ways)
                await leave(host, talk)

    run(main(), loop)


@on_both_loops
def test_being_cancelled_closes_every_socket(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "STAGGER_S", 0.0)
    begun: list[Route] = []

    async def main() -> None:
        with bound(listening=True) as one, bound(listening=True) as two:

            async def open_(host: str, port: int, **options: Any) -> Connection:
                begun.append(Route(host=host, port=port))
                return await tcp.connect(host, port, **options)

            ways = where(*(f"127.0.0.1:{port_of(sock)}" for sock in (one, two)))
            trying = asyncio.create_task(Dialler(key=ADA, always=True, open=open_)(ways))
            loop = asyncio.get_running_loop()
            came = [(await loop.sock_accept(sock))[0] for sock in (one, two)]
            for each in came:
                assert await loop.sock_recv(each, 1) == b"\x16"
            trying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trying
            for each in came:
                with contextlib.suppress(ConnectionError):
                    while await loop.sock_recv(each, 1 << 16):
                        pass
                each.close()

    run(main(), loop)
    assert len(begun) == 2


NO_NAMES = {
    "a dot first": Route(kind="relay", host=".example", port=1, url="wss://.example:1/r"),
    "a dot first, plain": Route(kind="relay", host=".example", port=1, url="ws://.example:1/r"),
    "long": Route(host="x" * 70 + ".example", port=1),
    "nothing": Route(host="", port=1),
    "null": Route(host="a\0b", port=1),
}


@pytest.mark.parametrize("name", NO_NAMES)
@on_both_loops
def test_a_strangers_name_that_is_none_is_nobodys(loop: str, name: str) -> None:
    """Routes come from others: whatever they say, dialling them only ever fails."""

    async def main() -> None:
        with pytest.raises((Unreachable, ConnectionLost)):
            await dial(NO_NAMES[name], Calling(PIN, ADA, at="x"))

    run(main(), loop)


def test_a_dialler_waits_as_long_as_it_was_told_not_as_long_as_a_listener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through a relay the host has to dial, too: that may take longer than agreeing with a host."""
    monkeypatch.setattr(stream, "AGREEING_S", 0.01)

    async def main() -> None:
        with bound(listening=True) as silent:
            dialler, there = Dialler(key=ADA, always=True), at("127.0.0.1", port_of(silent))
            trying = asyncio.create_task(dialler(there))
            came, _ = await asyncio.get_running_loop().sock_accept(silent)
            done, _ = await asyncio.wait([trying], timeout=0.1)
            assert not done
            trying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trying
            came.close()

    run(main())


def test_caps_are_passed_on_where_there_are_any() -> None:
    async def main() -> None:
        world = World(good=GOOD)
        await world.dialler()(where("good:1"))
        assert not {"up", "down"} & set(world.options[-1])
        up, down = Throttle(1), Throttle(2)
        await world.dialler(up=up, down=down)(where("good:1"))
        assert (world.options[-1]["up"], world.options[-1]["down"]) == (up, down)
        await world.dialler(down=down)(where("good:1"))
        assert "up" not in world.options[-1]

    run_virtual(main())
