"""An agent shows each host why it comes, rests without ending its work, and notes what came."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.job import JobId
from crowdgrad.domain.manners import Limits
from crowdgrad.domain.routes import Whereabouts, at
from crowdgrad.domain.work import LocalSteps
from crowdgrad.errors import CrowdgradError, NotPutThrough, TurnedAway
from crowdgrad.net import handshake
from crowdgrad.net.heartbeat import keep_alive
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Admit, Blob, Exchange, Finished, Get, Join, Leave, expect
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.inproc import InprocNetwork
from crowdgrad.replication.store import MemoryChunks
from crowdgrad.volunteer.agent import Agent
from crowdgrad.volunteer.consent import Request
from crowdgrad.volunteer.conversation import Conversation
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.governor import Governor
from crowdgrad.volunteer.probe import describe
from crowdgrad.volunteer.tally import Tally
from tests.host import small
from tests.virtual_time import run_virtual
from tests.volunteer.server_house import ADMIT, PROGRAM, grant, version

BLOB = ChunkHash("ab" * 32)
BARE: Admit = msgspec.structs.replace(
    ADMIT, servers=(), job=replace(ADMIT.job, local=LocalSteps(batch_size=1, overlap=0))
)


class Shop:
    """One lane, which never gets a unit."""

    def __init__(self, happened: list[str]) -> None:
        self.happened = happened

    slots = 1
    findings = "fine"
    memory_bytes = data_bytes = exchange_bytes = 1
    missing_walls = ()
    shards_held = ()
    takes_turns = False
    spec = PROGRAM
    manifest = small.manifest()[0]
    job = BARE.job
    trainer = SimpleNamespace(engine="nothing", broken=False)

    async def begin(self) -> None:
        self.happened.append("begun")

    async def close(self) -> None:
        return None

    def state(self, slot: int) -> memoryview:
        return memoryview(b"")

    whole_state = state


class World:
    """A host that hangs up so often before it says that it is over, or never says so."""

    def __init__(self, *, hangs_up: int = 0, ends: bool = True, peer: str = "far:1") -> None:
        self.network = InprocNetwork()
        self.joins: list[Join] = []
        self.farewells: list[Leave] = []
        self.received: list[tuple[int, float]] = []
        self._hangs_up, self._ends, self._peer = hangs_up, ends, peer
        self.not_now: list[CrowdgradError] = []
        """What whoever comes back is met with, before it reaches the host."""
        self.tally = Tally(None, lambda: 0.0)
        self.happened: list[str] = []
        """What came of a job here until it could be worked for."""
        self.seen: list[Event] = []

    async def agent(self, governor: Governor | None = None) -> Agent:
        await self.network.listen("h", 1, self._host)
        key = guest()
        return Agent(
            identity=key,
            volunteer=describe(key, "ada"),
            chunks=MemoryChunks(),
            connect=self._connect,
            watch=self.seen.append,
            random01=lambda: 0.5,
            reconnect_s=60.0,
            clock=asyncio.get_running_loop().time,
            open_shop=self._open_shop,  # type: ignore[arg-type]
            tally=self.tally,
            received=lambda count, seconds: self.received.append((count, seconds)),
            consent=self._consent,
            governor=governor,
        )

    async def _consent(self, request: Request) -> tuple[bool, str]:
        self.happened.append("asked")
        return True, "why not"

    async def _connect(self, where: Whereabouts) -> Connection:
        if self.joins and self.not_now:
            raise self.not_now.pop()
        connection = await self.network.dial(where)
        connection.peer = self._peer
        return connection

    async def _open_shop(self, admit: Admit, talk: Conversation, *what: Any, **more: Any) -> Shop:
        await talk.get(BLOB, 1000)
        return Shop(self.happened)

    async def _host(self, connection: Connection) -> None:
        beating = asyncio.create_task(
            keep_alive(connection, beat_s=BARE.heartbeat_s, silence_s=BARE.silence_s)
        )
        try:
            await self._talk(connection)
        finally:
            beating.cancel()

    async def _talk(self, connection: Connection) -> None:
        await handshake.answer(connection, "script", b"c" * 32)
        self.joins.append(expect(await handshake.hear(connection), Join))
        await connection.send(BARE)
        while True:
            message, _ = await connection.receive()
            if isinstance(message, Get):
                await asyncio.sleep(2.0)
                await connection.send(Blob(hash=message.hash), bytes(1000))
            elif isinstance(message, Leave):
                self.farewells.append(message)
                return
            elif isinstance(message, Exchange) and len(self.joins) <= self._hangs_up:
                return
            elif isinstance(message, Exchange) and self._ends:
                await connection.send(Finished(reason="done", samples=0, credit=0.0))


def test_the_newest_introduction_is_shown_each_time_it_comes() -> None:
    async def main() -> list[Join]:
        world = World(hangs_up=2)
        agent = await world.agent()
        words = iter(["the first", "the second", "the third"])
        outcome = await agent.work_for(at("h", 1), introduction=lambda: next(words))
        assert (outcome.reason, outcome.left) == ("done", False)
        await agent.work_for(at("h", 1))
        return world.joins

    shown = [join.introduction for join in run_virtual(main())]
    assert shown == ["the first", "the second", "the third", ""]


def test_a_relay_that_does_not_know_the_host_yet_does_not_speak_for_it() -> None:
    """It was started again, and the host is on its way back there."""

    async def main() -> None:
        world = World(hangs_up=1)
        world.not_now = [NotPutThrough("The relay says: the host is not at this relay.")] * 3
        outcome = await (await world.agent()).work_for(at("h", 1))
        assert (outcome.reason, len(world.joins)) == ("done", 2)
        assert not world.not_now

    run_virtual(main())


def test_what_the_host_says_itself_is_final() -> None:
    async def main() -> None:
        world = World(hangs_up=1)
        world.not_now = [TurnedAway("It is over.")]
        with pytest.raises(TurnedAway):
            await (await world.agent()).work_for(at("h", 1))

    run_virtual(main())


def test_a_rest_ends_the_job_at_hand_and_no_other() -> None:
    async def main() -> None:
        world = World(ends=False)
        agent = await world.agent()
        for _ in range(2):
            asyncio.get_running_loop().call_later(3.0, agent.rest, "your hours are over")
            outcome = await agent.work_for(at("h", 1))
            assert (outcome.left, outcome.reason) == (True, "your hours are over")
            assert outcome.title == BARE.job.title
        assert len(world.farewells) == 2
        agent.leave()
        outcome = await agent.work_for(at("h", 1))
        assert (outcome.left, outcome.reason) == (True, "stopped")
        assert len(world.joins) == 3, "it says good-bye politely also when it was told before"

    run_virtual(main())


def test_whoever_comes_while_it_rests_is_asked_at_once_and_loads_nothing_yet() -> None:
    """They are at the machine now; the connection waits with it."""

    async def main() -> None:
        world, governor = World(), Governor(Limits(hours="1-2"), minute=lambda at: 0)
        agent = await world.agent(governor)
        working = asyncio.create_task(agent.work_for(at("h", 1)))
        await asyncio.sleep(20 * BARE.silence_s)
        assert world.happened == ["asked"]
        assert world.seen[-1].text == "Paused: your hours begin at 01:00."
        governor.set_limits(Limits())
        assert (await working).reason == "done"
        assert world.happened == ["asked", "begun"]
        assert len(world.joins) == 1

    run_virtual(main())


def test_whoever_rests_can_be_told_to_leave_before_anything_is_loaded() -> None:
    async def main() -> None:
        world = World()
        agent = await world.agent()
        agent._governor.pause(None)
        asyncio.get_running_loop().call_later(20.0, agent.leave)
        assert (await agent.work_for(at("h", 1))).left
        assert (world.happened, len(world.farewells)) == (["asked"], 1)

    run_virtual(main())


def test_units_in_hand_do_not_wait_in_a_larger_workshop_until_a_rest_is_over() -> None:
    """It is begun, so that their lanes give them back."""

    async def main() -> None:
        world = World()
        agent = await world.agent()
        agent._governor.pause(None)
        agent._granted[0] = grant(1, version(0))
        talk: Any = SimpleNamespace(host_key="", host_name="", get=_nothing)
        await agent._set_up(talk, BARE)
        assert world.happened == ["asked", "begun"]

    run_virtual(main())


async def _nothing(*what: object) -> None:
    return None


@pytest.mark.parametrize(
    ("peer", "noted"), [("192.0.2.7:8701", [(1000, 2.0)]), ("127.0.0.1:8701", [])]
)
def test_how_fast_data_came_is_noted_unless_it_came_from_next_door(
    peer: str, noted: list[tuple[int, float]]
) -> None:
    async def main() -> World:
        world = World(peer=peer)
        await (await world.agent()).work_for(at("h", 1))
        return world

    world = run_virtual(main())
    assert [(count, round(seconds, 1)) for count, seconds in world.received] == noted
    given = world.tally.of(JobId(BARE.job.id))
    assert given is not None
    assert (given.title, given.work) == (BARE.job.title, PROGRAM.work_per_sample)


def test_what_comes_side_by_side_takes_its_time_once() -> None:
    """Three blobs asked for at once, a pause, and one more."""

    async def main() -> None:
        network = InprocNetwork()
        sizes = {ChunkHash(f"{number:064x}"): 100 * number for number in (1, 2, 3, 4)}

        async def host(connection: Connection) -> None:
            while True:
                message, _ = await connection.receive()
                assert isinstance(message, Get)
                await asyncio.sleep(1.0)
                await connection.send(Blob(hash=message.hash), bytes(sizes[message.hash]))

        listener = await network.listen("h", 1, host)
        talk = Conversation(await network.connect("h", 1))
        listening = asyncio.create_task(talk.run(beat_s=1000, silence_s=1000))
        *three, last = sizes.items()
        await asyncio.gather(*(talk.get(name, size) for name, size in three))
        assert (talk.fetched_bytes, talk.fetched_s) == (600, pytest.approx(3.0, abs=0.1))
        await asyncio.sleep(50.0)
        await talk.get(*last)
        assert (talk.fetched_bytes, talk.fetched_s) == (1000, pytest.approx(4.0, abs=0.1))
        listening.cancel()
        talk.connection.close()
        await listener.close()

    run_virtual(main())
