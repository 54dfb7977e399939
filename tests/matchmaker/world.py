"""A room under a virtual clock, with people that are only ears."""

from __future__ import annotations

import hashlib
from typing import TypeVar

from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker.desk import Desk, Rules
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.matchmaker.room import Room
from crowdgrad.net import bodies, rooms
from crowdgrad.net.identity import Identity, guest
from crowdgrad.store.base import Store
from crowdgrad.store.memory import MemoryStore

T = TypeVar("T", bound=rooms.Said)
RULES = Rules()
MATCHMAKER = guest("matchmaker")
ANYTHING = bodies.WantsBody()


class Ear:
    """A connection that remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[rooms.Said] = []
        self.closed: Refusal | bool = False

    def send(self, message: rooms.Said) -> None:
        if not self.closed:
            self.heard.append(message)

    def close(self, why: Refusal | None = None) -> None:
        self.closed = self.closed or why or True

    def all(self, kind: type[T]) -> list[T]:
        return [message for message in self.heard if isinstance(message, kind)]

    def last(self, kind: type[T]) -> T:
        return self.all(kind)[-1]


def key_of(name: str) -> Identity:
    return guest(name)


def id_of(name: str) -> VolunteerId:
    return key_of(name).id


class World:
    def __init__(self, rules: Rules = RULES, store: Store | None = None) -> None:
        self.now = 1000.0
        self.wall = 0.0
        """It stands still, which keeps everyone's order all the same."""
        self.rules = rules
        self.store = store or MemoryStore()
        self._count = 0
        self.begin()

    def begin(self) -> None:
        """The service starts (again), with what its store knows."""
        desk = Desk(self.store, wall=lambda: self.wall, random_bytes=self._bytes, rules=self.rules)
        self.room = Room(
            self.store,
            desk,
            key=MATCHMAKER,
            clock=lambda: self.now,
            wall=lambda: self.wall,
            rules=self.rules,
            public_url="https://example.org",
        )

    def _bytes(self, size: int) -> bytes:
        self._count += 1
        return hashlib.sha256(str(self._count).encode()).digest()[:size]

    def host(
        self,
        name: str = "mnist-1",
        *,
        owner: str = "host",
        worker: str = "worker0",
        minimum: int = 0,
        maximum: int = 8,
        **offer: object,
    ) -> Ear:
        said = {"address": "h:1", "minimum": minimum, "maximum": maximum, **offer}
        body = bodies.OfferBody(id=name, title=name, **said)
        own = bodies.MemberBody(position=0, id=worker, name="own")
        ear = Ear()
        publish = rooms.Publish(offer=body, members=(own,))
        self.room.host_arrives(key_of(owner).public.hex(), publish, ear)
        return ear

    def volunteer(
        self,
        name: str,
        *,
        session: str = "1",
        wants: bodies.WantsBody = ANYTHING,
        working_for: str | None = None,
        machine: bodies.MachineBody | None = None,
    ) -> Ear:
        key = key_of(name)
        body = rooms.Register(
            volunteer=bodies.VolunteerBody(id=key.id, name=name),
            session=session,
            wants=wants,
            working_for=working_for,
            machine=machine or bodies.MachineBody(),
        )
        ear = Ear()
        self.room.volunteer_arrives(key.public.hex(), body, ear)
        return ear

    def step(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.room.step()
        self.room.post()


def positions(message: rooms.RosterChanged) -> list[tuple[int, str]]:
    """Names of members, as far as they are letters of our tests."""
    return [(member.position, member.name) for member in message.members]
