"""The relays at which this host can be called: two at a time, others when one stays away.

One relay may be known by two names (a port of its own, and a path of a web server): both are told
to volunteers, and count as one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from crowdgrad.domain.routes import Route, route_of
from crowdgrad.errors import CrowdgradError, PeerError, TurnedAway
from crowdgrad.net.dialling import FINAL, dial
from crowdgrad.net.identity import Identity
from crowdgrad.net.relay_words import at_of
from crowdgrad.net.relayed import AtRelay
from crowdgrad.net.transport import tls
from crowdgrad.net.transport.base import Connection, OnConnection, guarded
from crowdgrad.net.transport.layers import Layer, Stack
from crowdgrad.planner.relaying import RELAYS_A_HOST, ranked

logger = logging.getLogger(__name__)

AWAY_S = 20.0
"""After so long without it another relay takes the place of one."""
MOST_SERVED = 1024
"""Conversations through relays; those who call beyond that are not answered."""
OTHERS_S = 2.0
"""How long the second may take once the first has us."""


class Relays:
    def __init__(
        self,
        key: Identity,
        serve: OnConnection,
        *,
        random01: Callable[[], float],
        changed: Callable[[], None],
        job: str = "",
    ) -> None:
        self._key = key
        self._serve = serve
        self._job = job
        self._random01 = random01
        self._changed = changed
        self._candidates: tuple[str, ...] = ()
        self._at: dict[str, _Post] = {}
        self._by_web: set[str] = set()
        """Relays that are dialled by WebSocket, since nothing else came of it."""
        self._news = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()
        """Conversations of those who called; they outlive our connection to the relay."""

    @property
    def connected(self) -> tuple[str, ...]:
        """Where we can be called now, in the order in which to try."""
        return tuple(name for name in self._candidates if name in self._at and self._at[name].here)

    @property
    def trouble(self) -> str:
        """Why there is none, for a person."""
        said = [post.trouble for post in self._at.values() if post.trouble]
        return said[0] if said else "none is known"

    async def __aenter__(self) -> Relays:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._candidates = ()  # none takes the place of those that go now
        await asyncio.gather(*(post.end() for post in self._at.values()))
        self._at.clear()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def use(self, relays: tuple[str, ...], *, within_s: float) -> None:
        """Register at the first of them, by our key; returns when one has us, or time is up.

        The others may take a moment longer: a link that is shown now is to name them, too.
        """
        # One name by two carriers is one place at a relay: the second would push the first out.
        places = {at_of(route_of(name)): name for name in reversed(relays)}
        self._candidates = ranked(self._key.id, (*places.values(),))
        for name in [name for name in self._at if name not in self._candidates]:
            await self._at.pop(name).end()
        self._fill()
        now = asyncio.get_running_loop().time
        patience_ends = now() + within_s
        with contextlib.suppress(TimeoutError):
            while self._at and (not self.connected or any(p.tries for p in self._at.values())):
                if self.connected:
                    patience_ends = min(patience_ends, now() + OTHERS_S)
                self._news.clear()
                async with asyncio.timeout_at(patience_ends):
                    await self._news.wait()

    def come_anew(self) -> None:
        """This machine has moved: what was dialled from the old address leads nowhere."""
        for post in self._at.values():
            post.come_anew()

    def _fill(self) -> None:
        """As many as we want, the preferred first; whoever stays away gives its place up."""
        now = asyncio.get_running_loop().time()
        for name in self._candidates:
            wanted = {post.whom for post in self._at.values() if not post.given_up(now)}
            if len(wanted) >= RELAYS_A_HOST:
                return
            if name not in self._at:
                self._at[name] = _Post(name, self)

    def told(self) -> None:
        self._news.set()
        self._fill()
        self._changed()

    # -- sockets ------------------------------------------------------------------------------

    def at_relay(self, route: Route, on_change: Callable[[], None]) -> AtRelay:
        return AtRelay(
            route,
            self._key,
            open_control=lambda layer: self._dial(route, layer),
            open_answer=lambda layer: self._answer(route, layer),
            random01=self._random01,
            on_change=on_change,
            job=self._job,
        )

    async def _dial(self, route: Route, layer: Layer) -> Connection:
        name = str(route)
        try:
            return await dial(route, layer, by_web=name in self._by_web)
        except FINAL:
            raise
        except PeerError:  # somebody listens, but nothing comes of it: the next time otherwise
            self._by_web ^= {name}
            raise

    async def _answer(self, route: Route, layer: Layer) -> None:
        """Somebody calls: dial the relay, and go on as if they had dialled us."""
        if len(self._serving) >= MOST_SERVED:
            raise TurnedAway(f"{MOST_SERVED} come through relays already.")
        inner = Stack(layer, tls.listener(self._key))
        connection = await dial(route, inner, by_web=str(route) in self._by_web)
        task = asyncio.create_task(guarded(self._serve, connection))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)


class _Post:
    """At one relay."""

    def __init__(self, name: str, relays: Relays) -> None:
        self._name, self._relays = name, relays
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        """When it came, went, or was first looked for."""
        self._at = relays.at_relay(route_of(name), self._changed)
        self._task = asyncio.create_task(self._at.run(), name=f"at {name}")
        self._was_here = False
        self._timer = self._loop.call_later(AWAY_S, relays.told)

    @property
    def here(self) -> bool:
        return self._at.connected

    @property
    def whom(self) -> str:
        """Which relay that is: as it says itself, once it has."""
        return self._at.relay or self._name

    @property
    def tries(self) -> bool:
        """It has neither come about nor failed yet."""
        return not self.here and self._at.failure is None

    @property
    def trouble(self) -> str:
        failure: CrowdgradError | None = self._at.failure
        return failure.message if failure is not None and not self.here else ""

    def come_anew(self) -> None:
        self._at.come_anew()

    def given_up(self, now: float) -> bool:
        return not self.here and now - self._since >= AWAY_S

    def _changed(self) -> None:
        if self.here != self._was_here:
            self._was_here = self.here
            self._since = self._loop.time()
            self._timer.cancel()
            self._timer = self._loop.call_later(AWAY_S, self._relays.told)
        self._relays.told()

    async def end(self) -> None:
        self._timer.cancel()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
