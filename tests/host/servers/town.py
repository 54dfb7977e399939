"""Servers, a host's parameters and volunteers, all in this process and in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
import numpy as np

from crowdgrad.domain.job import JobId
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.routes import Whereabouts
from crowdgrad.domain.work import LocalSteps, UnitId, Update, Version, VolunteerId
from crowdgrad.host.parameters import Parameters, Saved
from crowdgrad.host.servers import proofs
from crowdgrad.host.servers.arrivals import Arrival
from crowdgrad.host.servers.copies import CopiedParameters
from crowdgrad.host.servers.cut import cut
from crowdgrad.host.servers.fleet import Elsewhere, Fleet
from crowdgrad.host.servers.holder import Holder
from crowdgrad.host.servers.parameters import PartedParameters
from crowdgrad.host.servers.server import ParameterServer
from crowdgrad.net import handshake
from crowdgrad.net.messages import Enter, Entered, Equip, Message, Pulled, Push, expect
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.inproc import InprocConnection, InprocNetwork
from crowdgrad.numerics.rules import SGD, Rule
from crowdgrad.numerics.vectors import Vector, as_bytes, as_vector
from crowdgrad.recipes.base import Serving, local_rule
from tests.virtual_time import run_virtual

T = TypeVar("T")
SECRET = b"a secret of the town"
PATIENCE_S = 600.0
"""Of virtual time: heartbeats would go on for ever."""
JOB = JobId("town-1")
BEGIN = Version(incarnation=0, count=0)
SERVING = Serving(rate=0.1, local_rate=0.1)


def begins(spec: ProgramSpec, seed: int = 0) -> Vector:
    """A state; small whole numbers as words make sense as buffers of any type."""
    state: Vector = np.zeros(spec.state_words, np.float32)
    state[: spec.size] = np.random.default_rng(seed).standard_normal(spec.size, np.float32)
    return state


def gradient(spec: ProgramSpec, seed: int) -> Vector:
    update: Vector = np.zeros(spec.update_words, np.float32)
    update[: spec.size] = np.random.default_rng(seed).standard_normal(spec.size, np.float32)
    return update


class Town:
    def __init__(
        self,
        spec: ProgramSpec,
        servers: int,
        *,
        rule: Rule | None = None,
        serving: Serving = SERVING,
        local: LocalSteps | None = None,
        average_every: int = 0,
    ) -> None:
        """`average_every`: servers hold copies, averaged so often; 0: they hold parts."""
        self.spec = spec
        self.rule: Rule = rule or SGD()
        self.serving = serving
        self.local = local or LocalSteps(batch_size=1)
        self.network = InprocNetwork()
        self._copies = average_every > 0
        self.parameters = (
            CopiedParameters(
                begins(spec), self.rule, BEGIN, spec, servers, average_every=average_every
            )
            if self._copies
            else PartedParameters(
                begins(spec),
                self.rule,
                BEGIN,
                spec,
                cut(spec, servers),
                publish_every=serving.publish_every,
            )
        )
        self.lost: list[str] = []
        self._beside: list[asyncio.Task[Any]] = []
        self.servers: dict[int, ParameterServer] = {}
        self.connections: dict[int, Connection] = {}
        """The host's, to each server."""
        self.fleet = Fleet(
            [Elsewhere(f"server:{number}") for number in range(1, servers + 1)],
            self.parameters.crew,
            [self._equip(part.spec) for part in self.parameters.crew.parts],
            job=JOB,
            secret=SECRET,
            vectors=len(self.rule.vectors),
            software="the town",
            staged=self.parameters.staged,
            admission=lambda: self.parameters.next_admission,
            lost=self._lose,
            broken=self.lost.append,
            connect=self._connect,
            random01=lambda: 0.5,
        )

    def _equip(self, spec: ProgramSpec) -> Equip:
        return Equip(
            spec=spec,
            local=self.local,
            rule=local_rule(self.rule),
            heartbeat_s=1.0,
            silence_s=5.0,
            patience=self.serving.patience,
            decay=self.serving.decay,
            publish_every=self.serving.publish_every,
            half_backups=self.serving.half_backups,
            whole=self._copies,
        )

    async def _connect(self, where: Whereabouts) -> Connection:
        connection = await self.network.dial(where)
        self.connections[where.routes[0].port - 1] = connection
        return connection

    async def _lose(self, why: str) -> None:
        self.lost.append(why)

    async def start_server(self, number: int, secret: bytes = SECRET) -> None:
        """From 0; one that was there before has forgotten everything."""
        self.servers[number] = ParameterServer(secret)
        await self.network.listen("server", number + 1, self.servers[number].serve)

    def holder(self, number: int) -> Holder:
        charge = self.servers[number]._charge
        assert charge is not None
        return charge.holder

    async def stop_server(self, number: int) -> None:
        self.network.listeners.pop(("server", number + 1))
        self.connections[number].close()
        await asyncio.sleep(0.01)

    def begin(self, doing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Something that goes on beside; it is ended with the town."""
        task = asyncio.create_task(doing)
        self._beside.append(task)
        return task

    async def close(self) -> None:
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await self.fleet.stop()

    async def open(self) -> Town:
        for number in range(len(self.parameters.crew)):
            await self.start_server(number)
        await self.fleet.start()
        return self

    async def volunteer(self, name: str) -> Volunteer:
        self.parameters.joined(VolunteerId(name))
        return await Volunteer.enter(self, name)

    def update(self, unit: int, base: Version) -> Update:
        return Update(unit=UnitId(unit), base=base, samples=1, loss=1.0, metrics={}, compute_s=0.1)

    async def receive(self, who: str, unit: int, base: Version | None = None) -> Arrival:
        """What the host does when somebody says that an update comes."""
        update = self.update(unit, base or self.parameters.version)
        arrival = await self.parameters.received(VolunteerId(who), update, memoryview(b""))
        assert arrival is not None
        return arrival


class Volunteer:
    """Pushes to and pulls from all servers, each by itself."""

    def __init__(self, town: Town, name: str) -> None:
        self._town = town
        self.name = name
        self.links: dict[int, InprocConnection] = {}
        self._tickets = itertools.count(1)
        self._answers: dict[int, dict[int, asyncio.Future[tuple[Pulled, memoryview]]]] = {}
        self._listening: list[asyncio.Task[None]] = []

    @classmethod
    async def enter(
        cls, town: Town, name: str, token: str | None = None, admission: int | None = None
    ) -> Volunteer:
        self, who = cls(town, name), VolunteerId(name)
        if admission is None:
            admission = town.parameters.admission_of(who)
        for number in town.parameters.servers_of(who):
            link = await town.network.connect("server", number + 1)
            await handshake.greet(link, "a volunteer", b"c" * 32)
            shown = proofs.token(SECRET, JOB, who, admission) if token is None else token
            await link.send(Enter(volunteer=who, token=shown, admission=admission))
            expect(await handshake.hear(link), Entered)
            link.set_sink(lambda message, length: memoryview(bytearray(length)))
            self.links[number] = link
            self._answers[number] = {}
            self._listening.append(asyncio.create_task(self._listen(number)))
        return self

    async def _listen(self, number: int) -> None:
        answers = self._answers[number]
        try:
            while True:
                message, payload = await self.links[number].receive()
                pulled = expect(message, Pulled)
                answers.pop(pulled.ticket).set_result((pulled, payload))
        except Exception as error:
            for future in answers.values():
                if not future.done():
                    future.set_exception(error)
                    future.exception()

    def part_of(self, number: int, update: Vector) -> memoryview:
        part = self._town.parameters.crew.parts[number]
        return as_bytes(update[part.start : part.update_stop].copy())

    async def push_to(
        self, number: int, push: Push, update: Vector | None = None
    ) -> asyncio.Future[tuple[Pulled, memoryview]]:
        """One part to one server; the answer comes when it comes."""
        ticket = next(self._tickets)
        future = asyncio.get_running_loop().create_future()
        self._answers[number][ticket] = future
        payload = self.part_of(number, update) if update is not None else b""
        await self.links[number].send(msgspec.structs.replace(push, ticket=ticket), payload)
        return future

    async def push(
        self, unit: int, update: Vector, granted: Version | None = None
    ) -> list[asyncio.Future[tuple[Pulled, memoryview]]]:
        """All parts to all servers."""
        said = Push(unit=UnitId(unit), granted=granted or self._town.parameters.version)
        return [await self.push_to(number, said, update) for number in self.links]

    async def pull(self, since: Version | None = None) -> tuple[list[Version], Vector]:
        """The whole state, and of which version each part is."""
        asked = [await self.push_to(n, Push(since=since)) for n in self.links]
        answers = [await future for future in asked]
        return [said.base for said, _ in answers], as_vector(b"".join(part for _, part in answers))

    def go(self) -> None:
        for link in self.links.values():
            link.close()


def in_town(
    spec: ProgramSpec,
    servers: int,
    test: Callable[[Town], Awaitable[None]],
    **options: object,
) -> None:
    async def whole() -> None:
        town = Town(spec, servers, **options)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(PATIENCE_S):
                await town.open()
                await test(town)
        finally:
            await town.close()

    run_virtual(whole())


__all__ = ["Message", "Town", "Volunteer", "begins", "gradient", "in_town"]


def alone(town: Town) -> Parameters:
    """The same, held by one process."""
    return Parameters(
        begins(town.spec), town.rule, BEGIN, town.serving, town.spec, codec=town.local.codec
    )


def same(saved: Saved, other: Saved) -> None:
    assert saved.version == other.version
    assert saved.vector.tobytes() == other.vector.tobytes()
    assert saved.memory.numbers == other.memory.numbers
    assert saved.memory.steps == other.memory.steps
    assert saved.memory.vectors.keys() == other.memory.vectors.keys()
    for name, vector in saved.memory.vectors.items():
        assert vector.tobytes() == other.memory.vectors[name].tobytes(), name


async def saved(parameters: object) -> Saved:
    return (await parameters.save(lambda: None))[0]  # type: ignore[attr-defined, no-any-return]
