"""How volunteers come to this host: found out before it publishes, and looked at again.

First its own addresses, which a matchmaker dials to see whether that works. If it does not, the
router is asked for a port, and that is dialled. If nothing can be dialled the host registers at
relays and is called through them; two, so that one of them may fail. When this machine changes its
address, or a relay goes, what is told to others changes with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from crowdgrad.domain.routes import Route, route_of, spelled
from crowdgrad.errors import CrowdgradError, PeerError, RouterError
from crowdgrad.host.relays import Relays
from crowdgrad.net import lan, reaching, rooms
from crowdgrad.net.addresses import is_loopback
from crowdgrad.net.identity import Identity
from crowdgrad.net.ports import WILDCARDS
from crowdgrad.net.routers.keeper import PortKeeper
from crowdgrad.net.routers.opening import Mapping
from crowdgrad.net.transport.base import OnConnection
from crowdgrad.planner import ways as decisions
from crowdgrad.planner.ways import Seen

logger = logging.getLogger(__name__)

LOOK_S = 5.0
"""How often this machine's own addresses are looked at,"""
AGAIN_S = 300.0
"""and how often everything is."""
RELAY_S = 8.0
"""How long the first relay may take before we publish without one."""

Ask = Callable[..., Awaitable[rooms.Reachability]]
"""As `reaching.ask`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the owner said about it."""

    host: str
    """Where we listen."""
    port: int
    advertise: str | None = None
    matchmaker: str | None = None
    relays: tuple[str, ...] = ()
    """Of our own choice; else those the matchmaker tells of, where one is needed."""
    router: bool = True
    """The router may be asked for a port."""

    @property
    def only_here(self) -> bool:
        """Nobody from elsewhere is meant to come."""
        away = self.advertise is not None and not is_loopback(self.advertise)
        return is_loopback(self.host) and not away and not self.relays

    @property
    def asks(self) -> bool:
        """Whether a matchmaker elsewhere can say what others see of us."""
        return self.matchmaker is not None and not is_loopback(_machine(self.matchmaker))


class Ways:
    """`async with Ways(…) as ways:` afterwards `ways.routes` are the ways to us, as of now."""

    def __init__(
        self,
        wishes: Wishes,
        key: Identity,
        serve: OnConnection,
        *,
        random01: Callable[[], float],
        job: str = "",
        ask: Ask = reaching.ask,
        relays_of: Callable[[str], Awaitable[tuple[str, ...]]] = reaching.relays,
        addresses: Callable[[], tuple[str, ...]] | None = None,
        keeper: Callable[..., PortKeeper] = PortKeeper,
    ) -> None:
        """`serve`: whoever is called through a relay goes on there."""
        self._wishes = wishes
        self._key = key
        self._ask = ask
        self._relays_of = relays_of
        self._addresses = addresses or _addresses
        self._make_keeper = keeper
        self._relays = Relays(key, serve, job=job, random01=random01, changed=self._say_if_changed)
        self._stack = contextlib.AsyncExitStack()
        self._keeper: PortKeeper | None = None
        self._router_failed = False
        self._here: tuple[str, ...] = ()
        """This machine's addresses when we last looked."""
        self._asked = False
        """Somebody has tried to dial us."""
        self._named: tuple[str, ...] = ()
        """Relays, by the matchmaker."""
        self._seen = Seen()
        self._told: tuple[Route, ...] = ()
        self.changed: Callable[[], None] = lambda: None
        """Called when `routes` have become others."""
        self.moved: Callable[[], None] = lambda: None
        """Called when an address of ours has gone, and with it all that was dialled from there."""
        self.words = ""
        """How others come to us, for a person."""
        self._again = asyncio.Event()

    @property
    def routes(self) -> tuple[Route, ...]:
        """The best first; never none."""
        found = decisions.ways(replace(self._seen, relays=self._relays.connected))
        return found or (route_of(f"127.0.0.1:{self._wishes.port}"),)

    async def __aenter__(self) -> Ways:
        async with contextlib.AsyncExitStack() as stack:
            self._stack = stack
            await stack.enter_async_context(self._relays)
            if not self._wishes.only_here:
                await self._find()
                watching = asyncio.create_task(self._watch(), name="ways")
                stack.push_async_callback(_end, watching)
            self._told = self.routes
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    def look_again(self) -> None:
        """Something may have changed: the matchmaker was lost and is back, for instance."""
        self._again.set()

    # -- finding out --------------------------------------------------------------------------

    async def _find(self) -> None:
        """Look at everything; what was known before counts until all has been looked at."""
        wishes = self._wishes
        self._here = self._addresses()
        seen = await self._look()
        relays = await self._known_relays()
        while True:
            router = wishes.router and wishes.asks and self._keeper is None
            step, why = decisions.next_step(
                seen,
                asked=self._asked,
                router=router and not self._router_failed,
                relays=bool(relays),
            )
            if step != "router":
                break
            logger.info("%s", why)
            seen = replace(seen, mapped=await self._open_port())
        self._seen = seen
        if step == "relay" or wishes.relays:
            await self._relays.use(relays, within_s=RELAY_S)
            if step == "relay" and not self._relays.connected:
                why = f"nobody can dial this machine, and no relay answers: {self._relays.trouble}"
        if why != self.words:
            self.words = why
            logger.info("%s", why)

    async def _look(self) -> Seen:
        """What can be seen without changing anything."""
        wishes, port = self._wishes, self._wishes.port
        local: tuple[str, ...] = ()
        if wishes.host in WILDCARDS:
            local = decisions.own_addresses(self._here, port)
        elif not is_loopback(wishes.host):
            local = decisions.own_addresses((wishes.host,), port) or (f"{wishes.host}:{port}",)
        named = spelled(wishes.advertise, port) if wishes.advertise else ""
        seen = Seen(named=named, local=local)
        if not wishes.asks or named:
            return seen
        asked = decisions.to_be_dialled(local, port, rooms.MAX_REACHED)
        reached = await self._dialled(asked)
        if reached is None and local == self._seen.local:
            return self._seen  # as it was when somebody could say
        mapping = self._keeper.mapping if self._keeper is not None else None
        mapped = await self._checked(mapping) if mapping is not None else ""
        return replace(seen, reached=reached or (), mapped=mapped)

    async def _dialled(self, addresses: tuple[str, ...]) -> tuple[str, ...] | None:
        """At which of them the matchmaker reaches us; None: it has not tried."""
        assert self._wishes.matchmaker is not None
        try:
            found = await self._ask(self._wishes.matchmaker, self._key, addresses, hosting=True)
        except CrowdgradError as error:
            logger.warning("the matchmaker has not tried to dial us: %s", error.message)
            return None
        self._asked = True
        for tried in found.tried:
            if not tried.reached:
                logger.info("%s: %s", tried.address, tried.why)
        seen = spelled(found.observed, 0).rpartition(":")[0]
        reached = (one.address.replace("*", seen, 1) for one in found.tried if one.reached)
        return tuple(way for way in reached if _is_way(way))

    async def _open_port(self) -> str:
        """Where others reach us by a port of the router's; empty: they do not."""
        keeper = self._make_keeper(self._wishes.port, changed=self._remapped)
        try:
            self._keeper = await self._stack.enter_async_context(keeper)
        except RouterError as error:
            self._router_failed = True
            logger.info("%s", error.message)
            return ""
        mapping = self._keeper.mapping
        return await self._checked(mapping) if mapping is not None else ""

    async def _checked(self, mapping: Mapping) -> str:
        kind, why = mapping.judge()
        if kind != "mapped":
            logger.info("the router opened a port, but %s", why)
        where = spelled(mapping.address, mapping.port)
        reached = await self._dialled((f"*:{mapping.port}", where))
        return reached[0] if reached else ""

    def _remapped(self, mapping: Mapping | None) -> None:
        self.look_again()

    async def _known_relays(self) -> tuple[str, ...]:
        """Where the matchmaker cannot say, those it named last."""
        if self._wishes.asks and not self._wishes.relays:
            assert self._wishes.matchmaker is not None
            try:
                self._named = await self._relays_of(self._wishes.matchmaker)
            except CrowdgradError as error:
                logger.info("the matchmaker names no relays: %s", error.message)
        return self._wishes.relays or self._named

    # -- afterwards ---------------------------------------------------------------------------

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._again.wait()
            here = self._addresses()
            moved = here != self._here
            due = loop.time() - looked_at >= AGAIN_S
            if not (self._again.is_set() or due or moved):
                continue
            if moved:
                logger.info("this machine has other addresses now")
                self._router_failed = False  # it may be another router
                if self._keeper is not None:
                    self._keeper.look_now()
            if set(self._here) - set(here):
                self._relays.come_anew()
                self.moved()
            self._again.clear()
            looked_at = loop.time()
            await self._find()
            self._say_if_changed()

    def _say_if_changed(self) -> None:
        routes = self.routes
        if self._told and routes != self._told:
            self._told = routes
            logger.info("others come to us by %s now", ", ".join(map(str, routes)))
            self.changed()


def _addresses() -> tuple[str, ...]:
    return tuple(place.address for place in lan.networks())


def _is_way(text: str) -> bool:
    """The matchmaker's word is in it, which may be any."""
    try:
        return bool(route_of(text))
    except ValueError:
        return False


@functools.lru_cache(maxsize=4)
def _machine(url: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname or ""


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, PeerError):
        await task
