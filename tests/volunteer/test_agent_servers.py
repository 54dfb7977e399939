"""An agent whose host leaves the parameters to servers: whom it dials, when, and what it brings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from crowdgrad.domain.job import ServerPlace
from crowdgrad.domain.routes import Whereabouts, at
from crowdgrad.domain.work import LocalSteps, UnitId
from crowdgrad.errors import ComputeError, MessageError, NotAgreed, NotDialled, TurnedAway
from crowdgrad.net import handshake
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import (
    Exchange,
    Finished,
    GiveBack,
    Grant,
    Join,
    Message,
    Pulled,
    Push,
    Wait,
    expect,
)
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.inproc import InprocNetwork
from crowdgrad.replication.store import MemoryChunks
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.agent import Agent
from crowdgrad.volunteer.consent import Request
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.outcome import Outcome
from crowdgrad.volunteer.probe import describe
from tests.host import small
from tests.virtual_time import run_virtual
from tests.volunteer.server_house import (
    ADMIT,
    PROGRAM,
    STATE_BYTES,
    UPDATE_BYTES,
    Server,
    as_it_is,
    grant,
    version,
)
from tests.volunteer.test_parts import places

SIZES = (12, STATE_BYTES - 12)
RECONNECT_S = 60.0
SUMS = bytes(range(UPDATE_BYTES))


class Shop:
    """What a workshop is to an agent: its updates are always the same."""

    slots = 1
    findings = "fine"
    memory_bytes = data_bytes = exchange_bytes = 1
    missing_walls: tuple[str, ...] = ()
    shards_held = ()
    takes_turns = False
    spec = PROGRAM
    manifest = small.manifest()[0]
    trainer = SimpleNamespace(engine="nothing", broken=False)

    def __init__(self, world: World) -> None:
        self._world = world
        self.job = world.job
        self.room = memoryview(bytearray(STATE_BYTES))

    async def begin(self) -> None:
        assert self._world.asked, "not before somebody has agreed"

    async def close(self) -> None:
        return None

    async def need(self, *what: object, slot: int) -> None:
        return None

    def state(self, slot: int) -> memoryview:
        return self.room

    def whole_state(self, slot: int) -> memoryview:
        return memoryview(bytearray(STATE_BYTES))

    def update(self, slot: int) -> memoryview:
        return memoryview(SUMS)

    async def compute(self, given: Grant, *what: object) -> talk.Computed:
        self._world.started_from.append(bytes(self.room))
        return talk.Computed(unit=given.unit.id, samples=1, loss=0.5, metrics={}, compute_s=0.1)


class World:
    def __init__(self, *, agrees: bool = True) -> None:
        self.network = InprocNetwork()
        self.job = replace(ADMIT.job, local=LocalSteps(batch_size=1, overlap=0))
        self.servers = [Server(), Server()]
        self.places = places(PROGRAM, 3)
        self.asked: list[Request] = []
        self.dialled: list[tuple[str, int]] = []
        self.seen: list[Event] = []
        self.started_from: list[bytes] = []
        self.visits: asyncio.Queue[Connection] = asyncio.Queue()
        self._agrees = agrees

    async def open(self) -> asyncio.Task[Outcome]:
        await self.network.listen("h", 1, self._host)
        for number, server in enumerate(self.servers):
            await self.network.listen("s", number + 1, server.serve)
        key = guest()
        agent = Agent(
            identity=key,
            volunteer=describe(key, "ada"),
            chunks=MemoryChunks(),
            connect=self._connect,
            resolve=as_it_is,
            watch=self.seen.append,
            random01=lambda: 0.5,
            reconnect_s=RECONNECT_S,
            clock=asyncio.get_running_loop().time,
            consent=self._consent,
            open_shop=self._open_shop,  # type: ignore[arg-type]
        )
        return asyncio.create_task(agent.work_for(at("h", 1)))

    async def _connect(self, where: Whereabouts) -> Connection:
        self.dialled.append((where.routes[0].host, where.routes[0].port))
        return await self.network.dial(where)

    async def _consent(self, request: Request) -> tuple[bool, str]:
        assert self.dialled == [("h", 1)] or self.asked, "asked before any server is dialled"
        self.asked.append(request)
        return self._agrees, "so it is"

    async def _open_shop(self, *what: object, **more: object) -> Shop:
        return Shop(self)

    async def _host(self, connection: Connection) -> None:
        await handshake.answer(connection, "x", b"c" * 32)
        expect(await handshake.hear(connection), Join)
        admit = msgspec.structs.replace(
            ADMIT,
            job=self.job,
            servers=tuple(self.places),
            in_step=False,
            heartbeat_s=1.0,
            silence_s=10.0,
        )
        await connection.send(admit)
        self.visits.put_nowait(connection)
        await connection.wait_closed()

    async def serve_all(self, base: int, fill: bytes) -> list[Push]:
        return [
            await server.serves(version(base), fill, size)
            for server, size in zip(self.servers, SIZES, strict=True)
        ]


async def hear(connection: Connection) -> Message:
    message, payload = await connection.receive()
    assert not len(payload)
    return message


async def begin(world: World) -> Connection:
    """A first unit is granted, and its parameters are there."""
    host = await world.visits.get()
    ask = expect(await hear(host), Exchange)
    await host.send(grant(ask.ticket, version(0)))
    assert all(push.unit is None for push in await world.serve_all(0, b"a"))
    return host


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main())


def test_it_asks_its_owner_then_dials_then_works() -> None:
    async def main() -> None:
        world = World()
        working = await world.open()
        host = await begin(world)
        assert [request.servers for request in world.asked] == [("s:1", "s:2")]
        assert sorted(world.dialled[1:]) == [("s", 1), ("s", 2)]
        pushes = [await server.hears() for server in world.servers]
        assert world.started_from == [b"a" * STATE_BYTES]
        assert b"".join(payload for _, payload in pushes) == SUMS
        ask = expect(await hear(host), Exchange)
        assert ask.update is not None
        assert ask.update.unit == pushes[0][0].unit == pushes[1][0].unit == 1
        for server, (push, _), size in zip(world.servers, pushes, SIZES, strict=True):
            await server.says(Pulled(ticket=push.ticket, base=version(1)), b"b" * size)
        await host.send(Finished(reason="done", samples=7, credit=1.0))
        outcome = await working
        assert (outcome.reason, outcome.samples) == ("done", 7)

    run(main)


def test_nobody_is_dialled_where_the_owner_does_not_agree() -> None:
    async def main() -> None:
        world = World(agrees=False)
        with pytest.raises(NotAgreed):
            await (await world.open())
        assert world.asked[0].servers == ("s:1", "s:2")
        assert world.dialled == [("h", 1)]

    run(main)


def test_an_update_whose_server_was_lost_is_pushed_again() -> None:
    async def main() -> None:
        world = World()
        working = await world.open()
        host = await begin(world)
        await hear(host)
        for server in world.servers:
            await server.hears()
        lost = world.servers[1].connection
        assert lost is not None
        lost.close()
        host = await world.visits.get()
        assert len(world.asked) == 1, "the same machines need no second question"
        again = [await server.hears() for server in world.servers]
        assert b"".join(payload for _, payload in again) == SUMS
        assert all((push.unit, push.base, push.granted) == (1, version(0), version(0))
                   for push, _ in again)  # fmt: skip
        ask = expect(await hear(host), Exchange)
        assert ask.update is not None
        assert ask.update.unit == 1
        for server, (push, _), size in zip(world.servers, again, SIZES, strict=True):
            await server.says(Pulled(ticket=push.ticket, base=version(1)), b"b" * size)
        await host.send(grant(ask.ticket, version(1)))
        await hear(host)
        assert world.started_from == [b"a" * STATE_BYTES, b"b" * STATE_BYTES]
        await host.send(Finished(reason="done", samples=2, credit=1.0))
        assert (await working).reason == "done"

    run(main)


def test_servers_that_go_before_the_host_has_said_its_last_word_are_no_loss() -> None:
    async def main() -> None:
        world = World()
        working = await world.open()
        host = await begin(world)
        for server in world.servers:
            assert server.connection is not None
            server.connection.close()
        await asyncio.sleep(0.3)
        await host.send(Finished(reason="done", samples=2, credit=1.0))
        assert (await working).reason == "done"
        assert not [event for event in world.seen if event.kind == "trouble"]

    run(main)


def test_the_owner_is_asked_again_when_the_parameters_have_moved_elsewhere() -> None:
    async def main() -> None:
        world = World()
        working = await world.open()
        host = await begin(world)
        for number, server in enumerate(world.servers):
            await world.network.listen("elsewhere", number + 1, server.serve)
        world.places = [replace(place, address=f"elsewhere:{n + 1}")
                        for n, place in enumerate(world.places)]  # fmt: skip
        host.close()
        host = await world.visits.get()
        expect(await hear(host), Exchange)
        assert [request.servers for request in world.asked] == [
            ("s:1", "s:2"), ("elsewhere:1", "elsewhere:2")]  # fmt: skip
        await host.send(Finished(reason="done", samples=2, credit=1.0))
        await working

    run(main)


@pytest.mark.parametrize("wrong", [places(PROGRAM, 3)[:1], places(PROGRAM, 3)[1:]])
def test_servers_that_have_not_everything_are_refused_before_anybody_is_asked(
    wrong: list[ServerPlace],
) -> None:
    async def main() -> None:
        world = World()
        world.places = wrong
        with pytest.raises(MessageError):
            await (await world.open())
        assert not world.asked
        assert world.dialled == [("h", 1)]

    run(main)


def test_a_job_that_sends_us_home_is_refused() -> None:
    async def main() -> None:
        world = World()
        only = world.places[0]
        world.places = [
            replace(only, address="127.0.0.1:22", stop=PROGRAM.state_words,
                    update_stop=PROGRAM.update_words)
        ]  # fmt: skip
        connect = world.network.connect

        async def far(host: str, port: int) -> Connection:
            connection = await connect(host, port)
            connection.peer = "203.0.113.9:8701"
            return connection

        world.network.connect = far  # type: ignore[method-assign]
        with pytest.raises(NotDialled, match=r"127\.0\.0\.1"):
            await (await world.open())
        assert not world.asked

    run(main)


def test_waiting_costs_the_servers_nothing() -> None:
    async def main() -> None:
        world = World()
        working = await world.open()
        host = await world.visits.get()
        for _ in range(5):
            ask = expect(await hear(host), Exchange)
            await host.send(Wait(ticket=ask.ticket, reason="paused", seconds=0.2))
        assert all(server.heard.empty() for server in world.servers)
        await host.send(Finished(reason="done", samples=0, credit=0.0))
        await working

    run(main)


def test_what_cannot_be_computed_is_given_back_to_the_host() -> None:
    async def main() -> None:
        world = World()

        class Failing(Shop):
            async def compute(self, given: Grant, *what: object) -> talk.Computed:
                raise ComputeError("no")

        async def open_shop(*what: object, **more: object) -> Shop:
            return Failing(world)

        world._open_shop = open_shop  # type: ignore[method-assign]
        working = await world.open()
        host = await begin(world)
        assert expect(await hear(host), GiveBack).unit == UnitId(1)
        await host.send(Finished(reason="done", samples=0, credit=0.0))
        await working

    run(main)


def test_while_the_host_answers_a_server_may_stay_away_for_long() -> None:
    """It is not the host that is away."""

    async def main() -> None:
        world = World()
        world.servers[1].refuses = True
        working = await world.open()
        for _ in range(30):
            host = await world.visits.get()
        assert asyncio.get_running_loop().time() > 3 * RECONNECT_S
        world.servers[1].refuses = False
        host = await world.visits.get()
        await host.send(Finished(reason="done", samples=2, credit=1.0))
        assert (await working).reason == "done"

    run(main)


def test_the_hosts_own_word_counts_more_than_that_of_its_servers() -> None:
    """Somebody else has our key: whoever came back then would drive the other one out."""

    async def main() -> None:
        world = World()
        working = await world.open()
        host = await begin(world)
        assert world.servers[0].connection is not None
        world.servers[0].connection.refuse(TurnedAway("That admission is over."))
        await asyncio.sleep(0.3)
        host.refuse(TurnedAway("Somebody joined with the same key."))
        with pytest.raises(TurnedAway, match="same key"):
            await working

    run(main)
