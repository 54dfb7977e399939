"""Where a host can be called: at two relays, at others when one stays away; nobody reads along."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from crowdgrad.domain.routes import Route, Whereabouts, route_of
from crowdgrad.errors import ConnectionLost, Impostor, NotPutThrough, Unreachable
from crowdgrad.host import relays as module
from crowdgrad.host.relays import AWAY_S, Relays
from crowdgrad.net import relay_words as words
from crowdgrad.net.dialling import Dialler
from crowdgrad.net.identity import Identity, digest_of, guest
from crowdgrad.net.messages import Leave
from crowdgrad.net.transport import tcp, tls
from crowdgrad.net.transport.base import Connection, Payload
from crowdgrad.planner.relaying import RELAYS_A_HOST, ranked
from tests.host.played_relays import World
from tests.relay.world import relay, run, until
from tests.virtual_time import run_virtual

KEY = guest("the host")
PIN = digest_of(KEY.public)
NAMES = tuple(f"relay:r{n}.example.org:8702" for n in range(5))
ORDER = ranked(KEY.id, NAMES)


def here(relays: Relays) -> tuple[str, ...]:
    """Where it can be called now; asked anew each time."""
    return relays.connected


@contextlib.asynccontextmanager
async def registering(world: World) -> AsyncIterator[Relays]:
    async def serve(connection: Connection) -> None:
        raise AssertionError("nobody calls")

    found = Relays(KEY, serve, random01=lambda: 0.5, changed=world.changed)
    found.at_relay = world.at_relay  # type: ignore[method-assign,assignment]
    async with found:
        yield found
    assert world.running == [], "it is registered nowhere any more"


def test_a_host_registers_at_two_those_its_key_prefers() -> None:
    async def main() -> None:
        world = World(*NAMES)
        async with registering(world) as relays:
            assert here(relays) == ()
            assert relays.trouble == "none is known"
            await relays.use(NAMES, within_s=8.0)
            await asyncio.sleep(0)
            assert sorted(world.running) == sorted(ORDER[:RELAYS_A_HOST])
            assert relays.connected == ORDER[:RELAYS_A_HOST]
            await asyncio.sleep(10 * AWAY_S)
            assert len(world.running) == RELAYS_A_HOST

    run_virtual(main())


def test_it_waits_for_the_first_of_them_not_for_ever() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        world = World()
        async with registering(world) as relays:
            began = loop.time()
            await relays.use(NAMES[:2], within_s=8.0)
            assert loop.time() - began == pytest.approx(8.0)
            assert here(relays) == ()
            assert "Nobody answers at relay:r" in relays.trouble
            loop.call_later(3.0, lambda: world.set(NAMES[1], up=True))
            began = loop.time()
            await relays.use(NAMES[:2], within_s=8.0)
            assert loop.time() - began == pytest.approx(3.0)
            assert here(relays) == (NAMES[1],)
        async with registering(world) as relays:
            began = loop.time()
            await relays.use((), within_s=8.0)
            assert loop.time() == began, "there is nothing to wait for"

    run_virtual(main())


def test_one_that_stays_away_is_replaced_by_the_next() -> None:
    async def main() -> None:
        world = World(*NAMES)
        async with registering(world) as relays:
            await relays.use(NAMES, within_s=8.0)
            await asyncio.sleep(100)
            world.set(ORDER[0], up=False)
            await asyncio.sleep(AWAY_S - 1)
            assert here(relays) == (ORDER[1],)
            assert ORDER[2] not in world.running
            await asyncio.sleep(2)
            assert here(relays) == (ORDER[1], ORDER[2])
            world.set(ORDER[1], up=False)
            await asyncio.sleep(AWAY_S + 1)
            assert here(relays) == (ORDER[2], ORDER[3])
            world.set(ORDER[0], up=True)
            await asyncio.sleep(1)
            assert here(relays) == (ORDER[0], ORDER[2], ORDER[3])

    run_virtual(main())


def test_one_that_comes_back_in_time_keeps_its_place() -> None:
    async def main() -> None:
        world = World(*NAMES)
        async with registering(world) as relays:
            await relays.use(NAMES, within_s=8.0)
            for _ in range(5):
                await asyncio.sleep(AWAY_S * 2)
                world.set(ORDER[0], up=False)
                await asyncio.sleep(AWAY_S - 0.1)
                world.set(ORDER[0], up=True)
            await asyncio.sleep(AWAY_S * 2)
            assert relays.connected == ORDER[:2]
            assert sorted(world.running) == sorted(ORDER[:2])

    run_virtual(main())


def test_one_that_was_never_there_is_replaced_too() -> None:
    async def main() -> None:
        world = World(*ORDER[1:])
        async with registering(world) as relays:
            await relays.use(NAMES, within_s=8.0)
            assert here(relays) == (ORDER[1],)
            await asyncio.sleep(AWAY_S + 1)
            assert here(relays) == (ORDER[1], ORDER[2])

    run_virtual(main())


def test_when_all_are_away_every_one_is_tried() -> None:
    async def main() -> None:
        world = World()
        async with registering(world) as relays:
            await relays.use(NAMES, within_s=8.0)
            await asyncio.sleep(5 * AWAY_S)
            assert sorted(world.running) == sorted(NAMES)
            world.set(ORDER[4], up=True)
            await asyncio.sleep(1)
            assert here(relays) == (ORDER[4],)

    run_virtual(main())


def test_others_that_are_named_later_take_the_place_of_those_no_longer_named() -> None:
    async def main() -> None:
        world = World(*NAMES)
        async with registering(world) as relays:
            await relays.use(NAMES[:2], within_s=8.0)
            await relays.use(NAMES[2:4], within_s=8.0)
            await asyncio.sleep(1)
            assert set(relays.connected) == set(world.running) == set(NAMES[2:4])
            await relays.use((NAMES[2], NAMES[2]), within_s=8.0)
            await asyncio.sleep(1)
            assert here(relays) == (NAMES[2],), "once, however often it is named"

    run_virtual(main())


def test_one_relay_under_two_names_counts_once_and_is_told_by_both() -> None:
    async def main() -> None:
        world = World(*NAMES)
        world.also = {ORDER[0]: "0a", ORDER[1]: "0a", ORDER[2]: "0b", ORDER[3]: "0c"}
        async with registering(world) as relays:
            await relays.use(NAMES, within_s=8.0)
            await asyncio.sleep(10 * AWAY_S)
            assert here(relays) == ORDER[:3], "two relays, three ways"

    run_virtual(main())


def test_whoever_cares_is_told() -> None:
    async def main() -> None:
        world = World(NAMES[0])
        async with registering(world) as relays:
            await relays.use(NAMES[:1], within_s=8.0)
            before = world.changes
            assert before
            world.set(NAMES[0], up=False)
            await asyncio.sleep(1)
            assert world.changes > before

    run_virtual(main())


# -- real relays ----------------------------------------------------------------------------------


def told(*ports: int, key: str = PIN) -> Whereabouts:
    return Whereabouts(routes=tuple(route_of(f"relay:127.0.0.1:{port}") for port in ports), key=key)


async def echo(connection: Connection) -> None:
    while True:
        message, _ = await connection.receive()
        await connection.send(message)


async def says(connection: Connection, number: int) -> None:
    await connection.send(Leave(reason=f"nr {number}"))
    assert (await connection.receive())[0] == Leave(reason=f"nr {number}")


def at_relays(key: Identity = KEY) -> Relays:
    return Relays(key, echo, random01=lambda: 0.5, changed=lambda: None)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_whoever_calls_talks_to_the_host_and_to_nobody_else(loop: str) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as first, relay() as two, at_relays() as relays:
            one = await first.enter_async_context(relay())
            names = tuple(f"relay:127.0.0.1:{each.port}" for each in (one, two))
            await relays.use(names, within_s=8.0)
            await until(lambda: len(relays.connected) == 2)
            dialler = Dialler(key=guest("ada"))
            near = await dialler(told(one.port, two.port))
            assert near.binding == KEY.public
            assert near.peer == f"relay 127.0.0.1:{one.port}"
            await says(near, 1)
            await first.aclose()
            with pytest.raises(ConnectionLost):
                await near.receive()
            again = await dialler(told(one.port, two.port))
            assert again.peer == f"relay 127.0.0.1:{two.port}", "the other one takes over"
            await says(again, 2)
            again.close()
            await until(lambda: relays.connected == names[1:])

    run(main(), loop)


def test_one_relay_with_a_port_and_a_path_of_the_web_has_the_host_once_and_for_good() -> None:
    async def main() -> None:
        async with relay() as one, at_relays() as relays:
            names = (f"relay:127.0.0.1:{one.port}", f"relay:ws://localhost:{one.port}/relay")
            await relays.use(
                (*names, f"relay:ws://127.0.0.1:{one.port}/the-first-again"), within_s=8.0
            )
            await until(lambda: len(relays.connected) == 2)
            for number, name in enumerate(names):
                dialler = Dialler(key=guest("ada"))
                near = await dialler(Whereabouts(routes=(route_of(name),), key=PIN))
                await says(near, number)
                near.close()
            assert (len(one.board.hosts), one.board.events.registrations) == (1, 2)
            assert len(relays.connected) == 2

    run(main())


def test_only_so_many_come_through_relays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SERVED", 1)

    async def main() -> None:
        async with relay(answer_s=0.5) as one, at_relays() as relays:
            await relays.use((f"relay:127.0.0.1:{one.port}",), within_s=8.0)
            near = await Dialler(key=guest("ada"))(told(one.port))
            await says(near, 1)
            with pytest.raises(NotPutThrough, match="does not answer"):
                await Dialler(key=guest("bob"))(told(one.port))
            near.close()
            await until(lambda: not relays._serving)
            again = await Dialler(key=guest("bob"))(told(one.port))
            await says(again, 2)
            again.close()

    run(main())


class Lying:
    """Passes through to mallory, whoever is called."""

    closed = False

    def __init__(self) -> None:
        self.ready = False
        self._reader = words.Reader(magic=True)
        self._tls = tls.listener(guest("mallory"))

    def begin(self) -> None:
        return

    def feed(self, data: memoryview) -> None:
        if self.ready:
            self._tls.feed(data)
            return
        assert self._reader.put(data) == b""
        while (body := self._reader.body()) is not None:
            if isinstance(words.of_dialler(body), words.Hi):
                self.said = words.pack(words.Challenge(nonce=b"n" * words.NONCE_BYTES))
            else:
                self.said += words.pack(words.Spliced())
                self.ready = True

    said = b""

    def read_into(self, room: memoryview) -> int:
        return self._tls.read_into(room)

    def write(self, data: Payload) -> None:
        self._tls.write(data)

    def take(self) -> bytes:
        said, self.said = self.said, b""
        return said + self._tls.take()

    def end(self) -> None:
        self._tls.end()


def test_a_relay_that_connects_us_to_somebody_else_is_noticed() -> None:
    heard: list[object] = []

    async def serve(connection: Connection) -> None:
        heard.append((await connection.receive())[0])

    async def main() -> None:
        listener = await tcp.listen("127.0.0.1", 0, serve, layer=lambda address: Lying())
        for pin in (PIN, PIN[:16]):
            with pytest.raises(Impostor, match=guest("mallory").id):
                await Dialler(key=guest("ada"))(told(listener.address[1], key=pin))
        await listener.close()

    run(main())
    assert heard == []


def test_a_relay_that_does_not_answer_is_dialled_by_the_web_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[bool] = []

    async def dial(route: Route, layer: object, *, by_web: bool = False) -> Connection:
        tried.append(by_web)
        raise ConnectionLost("cut off") if len(tried) < 4 else Unreachable("nobody")

    async def main() -> None:
        monkeypatch.setattr(module, "dial", dial)
        async with at_relays() as relays:
            await relays.use(("relay:r:1",), within_s=60.0)
            assert relays.trouble

    run_virtual(main())
    assert tried[:5] == [False, True, False, True, True], "it changes where somebody listens"
