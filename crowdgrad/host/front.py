"""Where a run is found: what it listens on, the ways that lead there, and who is told of them.

async with AsyncExitStack() as stack:
    front = Front(wishes, prepared, settings, key)
    await front.listen(stack, serve)          # whoever dials is served from here on
    await front.tell(stack, members)          # the matchmaker, or else the local network
    front.link, front.routes, front.own_door
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from crowdgrad.domain.codes import local_code
from crowdgrad.domain.job import Member
from crowdgrad.domain.matching import Code
from crowdgrad.domain.routes import Route
from crowdgrad.errors import PortBusy
from crowdgrad.host.job import Prepared
from crowdgrad.host.listing import Listing, list_job
from crowdgrad.host.ways import Ways, Wishes
from crowdgrad.net import lan, links
from crowdgrad.net.addresses import is_loopback
from crowdgrad.net.identity import Identity, digest_of
from crowdgrad.net.ports import WILDCARDS
from crowdgrad.net.transport import secure, tcp
from crowdgrad.net.transport.base import OnConnection
from crowdgrad.settings import Settings

logger = logging.getLogger(__name__)


class Front:
    def __init__(
        self,
        wishes: Wishes,
        prepared: Prepared,
        settings: Settings,
        key: Identity,
        *,
        any_port: bool = False,
    ) -> None:
        """`any_port`: another one is taken where that of `wishes` is in use."""
        self._wishes = wishes
        self._prepared = prepared
        self._lan = settings.lan
        self._always = settings.encrypt == "always"
        self._key = key
        self._any_port = any_port
        self._serve: OnConnection
        self._ways: Ways
        self._announced = False
        self.listing: Listing | None = None
        """At the matchmaker; None: no matchmaker is asked, or not yet."""
        self.own_door = ("", 0)
        """Where our own workers come in: within this machine nothing need be encrypted."""
        self.came_back: Callable[[], None] = lambda: None
        """To be called when the matchmaker was lost and is back."""

    # -- what people are told -------------------------------------------------------------------

    @property
    def port(self) -> int:
        return self._wishes.port

    @property
    def routes(self) -> tuple[Route, ...]:
        """All ways to us, the best first."""
        return self._ways.routes

    @property
    def words(self) -> str:
        """How others come to us."""
        return self._ways.words

    @property
    def code(self) -> Code | None:
        return self.listing.code if self.listing is not None else None

    @property
    def page(self) -> str:
        """The job's page at the matchmaker, with our key; empty where it is not published."""
        page = self.listing.link if self.listing is not None else ""
        return links.of_matchmaker(page, self._key.public) if page else ""

    @property
    def link(self) -> str:
        """The page, or else one that holds the ways themselves."""
        return self.page or links.of_routes(self.routes, self._key.public, self._prepared.job.id)

    @property
    def local_code(self) -> str:
        """Empty where we are not announced on the local network."""
        return local_code(self._key.public) if self._announced else ""

    # -- opening --------------------------------------------------------------------------------

    async def listen(self, stack: contextlib.AsyncExitStack, serve: OnConnection) -> None:
        """Raises PortBusy or SettingError."""
        self._serve = serve
        listener = await self._listener()
        stack.push_async_callback(listener.close)
        host, port = listener.address
        self._wishes = replace(self._wishes, port=port)
        self.own_door = (host, port)
        if not is_loopback(host) and host not in WILDCARDS:
            inner = await self._listen_at("127.0.0.1", 0)
            stack.push_async_callback(inner.close)
            self.own_door = inner.address

    async def _listener(self) -> tcp.TcpListener:
        host, port = self._wishes.host, self._wishes.port
        try:
            return await self._listen_at(host, port)
        except PortBusy:
            if not self._any_port:
                raise
            logger.warning("port %d is in use now: another one is taken", port)
            return await self._listen_at(host, 0)

    async def _listen_at(self, host: str, port: int) -> tcp.TcpListener:
        return await secure.listen(host, port, self._serve, self._key, always=self._always)

    async def tell(self, stack: contextlib.AsyncExitStack, members: Iterable[Member]) -> None:
        """Find the ways to us, and tell of them. `members`: who has been here before.

        Raises CrowdgradError where the matchmaker does not take the job.
        """
        wishes, job = self._wishes, self._prepared.job
        self._ways = await stack.enter_async_context(
            Ways(wishes, self._key, self._serve, job=job.id, random01=random.random)
        )
        if wishes.matchmaker is not None:
            await self._publish(wishes.matchmaker, members)
        elif self._lan and not wishes.only_here:
            self._announced = True
            await stack.enter_async_context(
                lan.announce(
                    port=wishes.port,
                    key=digest_of(self._key.public),
                    job=job.id,
                    title=job.title,
                    cause=job.cause,
                    host=wishes.host,
                    tell=lambda error: logger.warning("%s", error.message),
                )
            )

    async def _publish(self, matchmaker: str, members: Iterable[Member]) -> None:
        ways = self._ways
        self.listing = listing = await list_job(
            matchmaker, self._prepared, ways=ways.routes, key=self._key, members=members
        )
        ways.changed = lambda: listing.move(ways.routes)
        ways.moved = listing.come_anew
        self.came_back = ways.look_again
