"""The servers of a job as the host knows them: who is there, and what all of them are told.

A server that comes, for the first time or again, has no numbers. It gets those that all went back
to, if that was the last thing that happened; otherwise it waits until all go back, which they must,
since its part of what happened meanwhile is lost. Until every server has numbers the job stands
still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from crowdgrad.domain.work import Version
from crowdgrad.errors import ConnectionLost, one_line
from crowdgrad.host.allocation import INLINE_BYTES
from crowdgrad.host.parameters import Saved
from crowdgrad.host.servers.cut import Part
from crowdgrad.host.servers.link import Answer, Link
from crowdgrad.net.messages import Dismiss, GoBack, Message
from crowdgrad.net.transport.base import Payload
from crowdgrad.numerics.rules.base import Rule
from crowdgrad.numerics.vectors import as_bytes

COMING = "it is starting"
MAX_WHY = 200


class Crew:
    def __init__(
        self,
        parts: Sequence[Part],
        rule: Rule,
        origin: Saved,
        *,
        detached: Callable[[int], None] = lambda server: None,
    ) -> None:
        """`origin`: what servers begin with, until all have it. `detached(server)`: it is gone."""
        self._detached = detached
        self.parts = tuple(parts)
        self._rule = rule
        self._links: list[Link | None] = [None] * len(parts)
        self._ready = [False] * len(parts)
        self._whys = [COMING] * len(parts)
        self.origin: tuple[Saved, Version] | None = (origin, origin.version)
        """What those who come are given; none once all have it."""

    def __len__(self) -> int:
        return len(self.parts)

    def has(self, server: int) -> bool:
        """Whether it is there, with numbers or without."""
        return self._links[server] is not None

    @property
    def away(self) -> str:
        """Why nothing can be done; empty if all are there."""
        for number, ready in enumerate(self._ready):
            if not ready:
                return f"parameter server {number + 1} is away: {self._whys[number]}"
        return ""

    def attach(self, server: int, link: Link) -> None:
        """It is equipped."""
        self._links[server], self._whys[server] = link, "it has no numbers yet"
        if self.origin is not None:
            saved, version = self.origin
            self._give(server, version, saved, self._payload(server, saved))

    def detach(self, server: int, why: str) -> bool:
        """It is gone, for this reason; whether numbers are lost with it."""
        had = self._ready[server] and self.origin is None
        self._links[server], self._ready[server] = None, False
        self._whys[server] = one_line(why)[:MAX_WHY]  # members are told, and screens show it
        self._detached(server)
        return had

    # -- what they are told -------------------------------------------------------------------

    def tell(self, server: int, message: Message, payload: Payload = b"") -> None:
        """Those who have no numbers are told nothing: they will get others."""
        link = self._links[server]
        if link is not None and self._ready[server]:
            link.say(message, payload)

    def dismiss(self, server: int, message: Dismiss) -> None:
        """That one also hears who has no numbers yet: it will let people in when it has."""
        link = self._links[server]
        if link is not None:
            link.say(message)

    def tell_all(self, message: Message) -> None:
        for server in range(len(self.parts)):
            self.tell(server, message)

    def save(self, *, state: bool = True, memory: bool = True) -> Awaitable[list[Answer]]:
        """All parts at one moment, which is now. Raises PeerError where one is away."""
        if self.away:
            raise ConnectionLost(f"{self.away[:1].upper()}{self.away[1:]}.")
        asked = [link.save(state=state, memory=memory) for link in self._links if link is not None]
        return asyncio.gather(*asked)

    async def payloads(self, saved: Saved) -> list[Payload]:
        """What each has to be told to be that."""
        servers = range(len(self.parts))
        if saved.vector.nbytes <= INLINE_BYTES:
            return [self._payload(server, saved) for server in servers]
        return [await asyncio.to_thread(self._payload, server, saved) for server in servers]

    def go_back(self, saved: Saved, version: Version, payloads: Sequence[Payload]) -> None:
        """All be that from now on, under this version; those who come later, too."""
        self.origin = saved, version
        for server, payload in enumerate(payloads):
            if self._links[server] is not None:
                self._give(server, version, saved, payload)

    def _give(self, server: int, version: Version, saved: Saved, payload: Payload) -> None:
        memory = saved.memory
        self._ready[server] = True
        self.tell(
            server,
            GoBack(version=version, numbers=dict(memory.numbers), steps=memory.steps),
            payload,
        )
        if all(self._ready):
            self.origin = None

    def _payload(self, server: int, saved: Saved) -> Payload:
        part = self.parts[server]
        state = saved.vector[part.start : part.stop]
        end = part.start + part.spec.size
        vectors = [saved.memory.vectors[name][part.start : end] for name in self._rule.vectors]
        return as_bytes(np.concatenate([state, *vectors]) if vectors else state)
