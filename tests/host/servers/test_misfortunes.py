"""Servers that die and come back, volunteers that vanish halfway: what is left is one state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.work import UnitId, Version, VolunteerId
from crowdgrad.errors import PeerError
from crowdgrad.host.parameters import Parameters, Saved
from crowdgrad.net.messages import Push
from crowdgrad.numerics.rules import Adam
from tests.host.servers.specs import spec_of
from tests.host.servers.town import BEGIN, SERVING, Town, Volunteer, begins, gradient, in_town

SPEC = spec_of([(50,), (31,)], frozen=("w1",))
SERVERS = 2
EVENTS = st.sampled_from(
    ["update", "update", "update", "half", "vanish", "keep", "die", "twice", "rejoin"]
)


class Life:
    """The town, one process that does the same, and the checkpoint both go back to."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.one = Parameters(begins(SPEC), Adam(), BEGIN, SERVING, SPEC)
        self.people: dict[str, Volunteer] = {}
        self.kept: Saved | None = None
        self.unit = 0

    async def person(self, name: str) -> Volunteer:
        if name not in self.people:
            self.people[name] = await self.town.volunteer(name)
        return self.people[name]

    async def update(self, name: str) -> None:
        person, base = await self.person(name), self.one.version
        await person.pull(since=base)  # as a unit begins
        self.unit += 1
        await self.bring(name, base)

    async def bring(self, name: str, base: Version) -> None:
        person, update = await self.person(name), gradient(SPEC, self.unit)
        answers = await person.push(self.unit, update, base)
        arrival = await self.town.receive(name, self.unit, base)
        assert await self.town.parameters.apply(arrival, base, rate=0.1) == 0
        await self.one.apply(update, base, rate=0.1)
        assert [(await answer)[0].base for answer in answers] == [self.one.version] * SERVERS

    async def half(self, name: str) -> None:
        """Pushes to one server only, and goes."""
        person = await self.person(name)
        await person.pull(since=self.one.version)
        self.unit += 1
        push = Push(unit=UnitId(self.unit), granted=self.one.version)
        waiting = self.town.begin(self.town.receive(name, self.unit))
        await person.push_to(self.unit % SERVERS, push, gradient(SPEC, self.unit))
        await self.vanish(name)
        await asyncio.wait([waiting])
        assert isinstance(waiting.exception(), PeerError)

    async def rejoin(self, name: str) -> None:
        """Its connection to the host breaks while parts are on their way; it brings all again."""
        person, base = await self.person(name), self.one.version
        await person.pull(since=base)
        self.unit += 1
        push = Push(unit=UnitId(self.unit), granted=base)
        for number in range(1 + self.unit % SERVERS):
            await person.push_to(number, push, gradient(SPEC, 0))
        self.town.parameters.left(VolunteerId(name))
        self.people[name] = await self.town.volunteer(name)
        await self.bring(name, base)

    async def vanish(self, name: str) -> None:
        (await self.person(name)).go()
        del self.people[name]
        self.town.parameters.left(VolunteerId(name))

    async def keep(self, name: str) -> None:
        self.kept, _ = await self.town.parameters.save(lambda: None)

    async def die(self, name: str) -> None:
        """A server, while an update is half there; the host goes back when it hears of it."""
        assert self.kept is not None
        number, known = self.unit % SERVERS, len(self.town.lost)
        person = await self.person(name)
        await person.pull(since=self.one.version)
        push = Push(unit=UnitId(self.unit + 1), granted=self.one.version)
        await person.push_to(1 - number, push, gradient(SPEC, 0))
        await self.town.stop_server(number)
        await until(lambda: len(self.town.lost) > known)
        await self.go_back()
        await self.town.start_server(number)
        for other in list(self.people):
            await self.vanish(other)
        await until(lambda: not self.town.parameters.away)

    async def go_back(self) -> None:
        assert self.kept is not None
        version = Version(
            incarnation=self.one.version.incarnation + 1, count=self.kept.version.count
        )
        await self.town.parameters.go_back(self.kept, version)
        await self.one.go_back(self.kept, version)

    async def twice(self, name: str) -> None:
        """All go back although nothing is lost: the numbers were not finite."""
        await self.go_back()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (what it looks at tells nobody)
        await asyncio.sleep(0.01)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.sampled_from(["ada", "ben", "cleo"])), max_size=14))
def test_whatever_happens_all_servers_are_what_one_would_be(events: list[tuple[str, str]]) -> None:
    async def test(town: Town) -> None:
        life = Life(town)
        await life.keep("")
        for event, name in [*events, ("update", "ada")]:
            await getattr(life, event)(name)
        ours, _ = await town.parameters.save(lambda: None)
        theirs, _ = await life.one.save(lambda: None)
        assert ours.version == theirs.version
        assert ours.vector.tobytes() == theirs.vector.tobytes()
        for name, vector in ours.memory.vectors.items():
            assert vector.tobytes() == theirs.memory.vectors[name].tobytes()
        assert ours.memory.steps == theirs.memory.steps
        for name in list(life.people):
            await life.vanish(name)
        assert len(town.parameters.arrivals) == 0

    in_town(SPEC, SERVERS, test, rule=Adam())
