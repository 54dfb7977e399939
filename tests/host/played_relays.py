"""Relays that come and go, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crowdgrad.domain.routes import Route
from crowdgrad.errors import CrowdgradError, Unreachable


class Played:
    """A relay as `AtRelay` tells of it: it is there, or it is not."""

    def __init__(self, route: Route, on_change: Callable[[], None], world: World) -> None:
        self.name, self._on_change, self._world = str(route), on_change, world
        self.connected = False
        self.relay = ""
        self.failure: CrowdgradError | None = None

    def come_anew(self) -> None:
        self._world.came_anew.append(self.name)

    async def run(self) -> None:
        self._world.running.append(self.name)
        try:
            while True:
                self._world.news.setdefault(self.name, asyncio.Event()).clear()
                up = self.name in self._world.up
                if up != self.connected or (not up and self.failure is None):
                    self.connected = up
                    self.relay = self._world.also.get(self.name, "") if up else self.relay
                    self.failure = None if up else Unreachable(f"Nobody answers at {self.name}.")
                    self._on_change()
                await self._world.news[self.name].wait()
        finally:
            self.connected = False
            self._world.running.remove(self.name)


class World:
    """Relays that come and go."""

    def __init__(self, *up: str) -> None:
        self.up = set(up)
        self.running: list[str] = []
        self.news: dict[str, asyncio.Event] = {}
        self.changes = 0
        self.came_anew: list[str] = []
        self.also: dict[str, str] = {}
        """Who a relay says that it is, by the name it is dialled by."""

    def at_relay(self, route: Route, on_change: Callable[[], None]) -> Played:
        return Played(route, on_change, self)

    def set(self, name: str, *, up: bool) -> None:
        (self.up.add if up else self.up.discard)(name)
        if name in self.news:
            self.news[name].set()

    def changed(self) -> None:
        self.changes += 1
