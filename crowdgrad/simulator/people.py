"""Volunteers in the virtual world: real agents, and scripted ones with bad manners on bad links.

An agent finds its host by the matchmaker or by its address, and is restarted after it dies, as a
machine that is switched on again. A scripted volunteer speaks the protocol itself, over links that
lose, double and reorder frames, says things twice and computes longer than it may: what no agent
does, and what the host must bear all the same.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.routes import Whereabouts, at
from crowdgrad.domain.work import Unit, Update, Version
from crowdgrad.errors import CrowdgradError, PeerError, Unreachable
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.matchmaker import Match, wait_for_job
from crowdgrad.net.messages import Exchange, Grant, Wait
from crowdgrad.numerics.vectors import Vector
from crowdgrad.replication.store import MemoryChunks
from crowdgrad.simulator.chance import Dice
from crowdgrad.simulator.job import SmallJob
from crowdgrad.simulator.matching import URL, VirtualMatchmaker
from crowdgrad.simulator.monitor import Monitor
from crowdgrad.simulator.network import VirtualNetwork
from crowdgrad.simulator.story import Story
from crowdgrad.simulator.virtual_time import Node
from crowdgrad.simulator.workshop import Life, opens
from crowdgrad.volunteer.agent import Agent
from crowdgrad.volunteer.conversation import Conversation
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.matched import one_after_another
from crowdgrad.volunteer.outcome import Outcome

RECONNECT_S = 8.0
AGAIN_S = 5.0
PATIENCE_S = 6.0
"""How long a scripted volunteer waits for an answer that may be lost."""


@dataclass(kw_only=True)
class World:
    """What everybody in it shares."""

    job: SmallJob
    network: VirtualNetwork
    monitor: Monitor
    story: Story
    lease_s: float
    matchmaker: VirtualMatchmaker | None
    host_at: Callable[[], tuple[str, int]]
    """Where the host listens, for those who were told its address."""


def described(identity: Identity, name: str) -> Volunteer:
    return Volunteer(
        id=identity.id, name=name, cores=1, memory_mb=64, engine="none", software="simulated"
    )


class Person(ABC):
    """Somebody's machine: it lives, dies and lives again."""

    def __init__(self, world: World, name: str, dice: Dice) -> None:
        self.world = world
        self.name = name
        self.dice = dice
        self.node = Node(name)
        self.identity = guest(name)
        self.volunteer = described(self.identity, name)
        self.disturbed_until = 0.0
        """Until then, what goes wrong is somebody's doing."""

    @property
    def alive(self) -> bool:
        return not self.node.dead

    def start(self) -> None:
        self.node = Node(self.name)
        self.node.offset_s = self.dice.uniform(-500, 5000)
        self.node.spawn(self._guarded())

    def die(self, *, told: bool) -> None:
        self.world.network.gone(self.node, told=told)
        self.world.network.loop.thaw(self.node)
        self.node.kill()

    async def _guarded(self) -> None:
        try:
            await self.live()
        except Exception as error:
            self.world.story.violate("error", f"{self.name}: {type(error).__name__}: {error}")

    @abstractmethod
    async def live(self) -> None:
        """Until it dies."""

    async def connect(self, where: Whereabouts) -> Any:
        route = where.routes[0]
        return await self.world.network.connect(self.node, route.host, route.port)


class Helper(Person):
    """A real agent."""

    def __init__(
        self, world: World, name: str, dice: Dice, *, token: str = "", matched: bool
    ) -> None:
        """`token`: it is the host's own worker. `matched`: it asks the matchmaker where to go."""
        super().__init__(world, name, dice)
        self._token = token
        self._matched = matched and world.matchmaker is not None
        self.life = Life(dice, world.lease_s)
        self._lives = 0

    def start(self) -> None:
        self._lives += 1
        if self._token:  # as if it were started on another machine each time: worker 0 is worker 0
            self.identity = guest(f"{self.name} {self._lives}")
            self.volunteer = described(self.identity, self.name)
        super().start()

    async def live(self) -> None:
        world = self.world
        agent = Agent(
            identity=self.identity,
            volunteer=self.volunteer,
            chunks=MemoryChunks(),
            connect=self.connect,
            watch=lambda event: None,
            random01=self.dice.random,
            reconnect_s=RECONNECT_S,
            token=self._token,
            clock=world.network.loop.time,
            open_shop=opens(self.name, world.job, self.life, world.monitor),
        )
        while True:
            try:
                if self._matched:
                    await self._as_matched(agent)
                else:
                    await agent.work_for(self._host(), moved=self._host)
            except CrowdgradError as error:
                world.story.tell(f"{self.name}: {error.message}")
            await asyncio.sleep(self.dice.uniform(0.5, 3.0))

    def _host(self) -> Whereabouts:
        return at(*self.world.host_at())

    async def _as_matched(self, agent: Agent) -> None:
        """As `volunteer.serve` does it."""
        assert self.world.matchmaker is not None
        match = await wait_for_job(
            URL,
            self.volunteer,
            key=self.identity,
            session=f"life {self._lives}",
            random01=self.dice.random,
            wire=self.world.matchmaker.wire(self.node),
        )
        presence = match.presence

        def where() -> Whereabouts:
            assert presence.match is not None
            host, _, port = presence.match.listing.offer.address.rpartition(":")
            return at(host, int(port))

        async def pay(match: Match) -> Outcome:
            return await agent.work_for(where(), moved=where)

        def tell(event: Event) -> None:
            self.world.story.tell(f"{self.name}: {event.text}")

        await one_after_another(match, pay, tell, may_go_on=lambda after: True, again_s=AGAIN_S)


@dataclass
class Hold:
    """What one lane of a scripted volunteer is at."""

    base: Version | None = None
    link: int = 0
    update: Update | None = None
    vector: Vector = field(default_factory=lambda: np.zeros(0, np.float32))


class Scripted(Person):
    def __init__(self, world: World, name: str, dice: Dice) -> None:
        super().__init__(world, name, dice)
        self._hasty = dice.random() < 0.5
        self._holds: dict[int, Hold] = {}
        world.network.lossy.add(name)

    async def live(self) -> None:
        self._holds.clear()
        while True:
            try:
                await self._one_connection()
            except (PeerError, Unreachable):
                await asyncio.sleep(self.dice.uniform(0.1, 3.0))

    async def _one_connection(self) -> None:
        connection = await self.connect(at(*self.world.host_at()))
        talk = Conversation(connection)
        tasks: list[asyncio.Task[Any]] = []
        try:
            admit = await talk.join(self.volunteer, self.identity)
            beat_s, silence_s = admit.heartbeat_s, admit.silence_s
            tasks.append(asyncio.create_task(talk.run(beat_s=beat_s, silence_s=silence_s)))
            for lane in range(admit.job.local.overlap + 1):  # with what they still have in hand
                hold = self._holds.setdefault(lane, Hold())
                tasks.append(asyncio.create_task(self._lane(talk, hold)))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            connection.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lane(self, talk: Conversation, hold: Hold) -> None:
        while True:
            await self._exchange(talk, hold)

    async def _exchange(self, talk: Conversation, hold: Hold) -> None:
        """One round; what was sent is sent again where the answer was lost."""
        job, packing = self.world.job, self.world.job.packing
        into = memoryview(bytearray(packing.bytes(job.size)))
        payload = memoryview(bytearray(len(into) if hold.update is not None else 0))
        if len(payload):
            packing.encode(hold.vector, payload)
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await talk.exchange(Exchange(update=hold.update), payload, into)
        except TimeoutError:
            raise PeerError("The answer was lost.") from None
        if isinstance(answer, Wait):
            hold.update = None
            await asyncio.sleep(answer.seconds)
            return
        self._look(hold, answer, packing.decoded(into))
        await self._compute()
        if self.dice.random() < 0.1 and hold.update is not None:
            return  # say the old one again, and never this one
        self._keep(hold, answer)

    def _look(self, hold: Hold, grant: Grant, state: Vector) -> None:
        story = self.world.story
        if not grant.link:
            self.world.monitor.received(self.name, grant.base, state)
        elif hold.update is None or hold.base is None:
            story.violate("chain", f"{self.name}: link {grant.link} goes on from nothing")
        else:
            goes_on = grant.base == hold.base and grant.link == hold.link + 1
            if not goes_on or grant.verdict != "accepted":
                story.violate("chain", f"{self.name}: link {grant.link} goes on from elsewhere")
        hold.base, hold.link = grant.base, grant.link

    async def _compute(self) -> None:
        """Usually quick, sometimes longer than the lease."""
        quick = [0.001, 0.01, 0.01, 0.1, 0.1] if self._hasty else [0.01, 0.1, 0.1, 1.0]
        await asyncio.sleep(self.dice.choice([*quick, 1.5 * self.world.lease_s]))

    def _keep(self, hold: Hold, grant: Grant) -> None:
        job, unit = self.world.job, grant.unit
        hold.vector = _marked(job, unit)
        hold.update = Update(
            unit=unit.id,
            base=grant.base,
            samples=sum(job.samples(place) for place in job.places(unit)),
            loss=1.0,
            metrics={},
            compute_s=0.1,
            link=grant.link,
        )


def _marked(job: SmallJob, unit: Unit) -> Vector:
    vector = np.zeros(job.size, np.float32)
    vector[list(job.places(unit))] = 1.0
    return vector
