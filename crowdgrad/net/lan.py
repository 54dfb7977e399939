"""Hosts and volunteers on one network find each other by multicast DNS: no server at all.

`announce` publishes a host, `look` asks around once, `Watcher` keeps listening. All three follow
the machine from one network to the next: when its addresses change they begin anew. A machine
without a network, or with one that passes no multicast, is no reason to fail: whoever asked is told
once, and it is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from crowdgrad.errors import NoNeighbours, one_line
from crowdgrad.net.nearby import SERVICE, Nearby, Place, entries, instance, listened_on, read
from crowdgrad.net.ports import WILDCARDS
from crowdgrad.planner.ways import own_addresses

if TYPE_CHECKING:
    from zeroconf import ServiceStateChange, Zeroconf
    from zeroconf.asyncio import AsyncZeroconf

__all__ = ["Nearby", "Watcher", "announce", "look", "places"]

MAX_NEARBY = 256
"""Records that are looked at, whoever wrote them."""
AT_ONCE = 16
"""Of them, how many are asked for details at the same time."""
ANSWER_MS = 3000
TRIES = 3
GROUP_4, GROUP_6 = "224.0.0.251", "ff02::fb"
LOOK_S = 5.0
"""How often we see whether our own addresses have changed."""

Tell = Callable[[NoNeighbours], None]
Places = Callable[[], tuple[Place, ...]]


def _nobody(error: NoNeighbours) -> None:
    """Whoever does not care."""


def places() -> tuple[Place, ...]:
    """Every address of this machine now."""
    import ifaddr

    found = []
    for adapter in ifaddr.get_adapters():
        for entry in adapter.ips:
            address = entry.ip if isinstance(entry.ip, str) else entry.ip[0]
            found.append(
                Place(address=address, prefix=entry.network_prefix, interface=adapter.index or 0)
            )
    return tuple(found)


def networks() -> tuple[Place, ...]:
    """Where others are: every address but those of this machine's own inside."""
    return tuple(place for place in places() if not place.loopback)


def called(host: str, port: int) -> str:
    """What others on the network call who listens there; empty: nobody can, or it has a name."""
    here = [place.address for place in networks()] if host in WILDCARDS else [host]
    told = own_addresses(here, port)
    return next((way for way in told if not way.startswith("[")), next(iter(told), ""))


@contextlib.asynccontextmanager
async def announce(
    *,
    port: int,
    key: str,
    job: str,
    title: str,
    cause: str = "",
    host: str = "0.0.0.0",  # noqa: S104
    tell: Tell = _nobody,
    here: Places = places,
    look_s: float = LOOK_S,
) -> AsyncIterator[asyncio.Event]:
    """Meanwhile the network knows of a host that listens on `host`:`port`.

    What it gives is set when the network has been told for the first time, or cannot be. `tell`
    hears, once, that this machine cannot announce anything. Raises ValueError for a key or job that
    nobody would believe.
    """
    said = entries(key=key, job=job, title=title, cause=cause)

    @contextlib.asynccontextmanager
    async def publish(net: AsyncZeroconf, at: tuple[Place, ...]) -> AsyncIterator[None]:
        from zeroconf.asyncio import AsyncServiceInfo

        info = AsyncServiceInfo(
            SERVICE,
            f"{instance(key, job)}.{SERVICE}",
            port=port,
            properties=said,
            server=f"{instance(key, job)}.local.",
            parsed_addresses=[place.address for place in at],
        )
        await (await net.async_register_service(info, allow_name_change=True))
        yield  # closing `net` takes it back

    async with _Stay(publish, lambda: listened_on(here(), host), tell, look_s) as stay:
        yield stay.settled


async def look(
    seconds: float,
    *,
    until: Callable[[Nearby], bool] | None = None,
    tell: Tell = _nobody,
    here: Places = networks,
) -> list[Nearby]:
    """The hosts that answer within so many seconds, or up to the first that `until` wants."""
    async with Watcher(tell=tell, here=here) as watcher:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while until is None or not any(map(until, watcher.nearby)):
                    await watcher.changed.wait()
                    watcher.changed.clear()
        return list(watcher.nearby)


class Watcher:
    """`async with Watcher() as watcher:` and `watcher.nearby` says who is here now.

    `changed` is set whenever that is no longer what it was; whoever waits for it clears it.
    """

    def __init__(
        self, *, tell: Tell = _nobody, here: Places = networks, look_s: float = LOOK_S
    ) -> None:
        self.changed = asyncio.Event()
        self._records: dict[str, Nearby | None] = {}
        """By the record's name; None: its details are being asked for, or are no good."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._news: set[str] = set()
        """Records of which there is something to hear; asked for one after the other."""
        self._places: tuple[Place, ...] = ()
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._stay = _Stay(self._browse, here, tell, look_s)

    async def __aenter__(self) -> Watcher:
        await self._stay.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stay.__aexit__()

    @property
    def nearby(self) -> tuple[Nearby, ...]:
        """In the order in which they were found."""
        return tuple(found for found in self._records.values() if found is not None)

    @contextlib.asynccontextmanager
    async def _browse(self, net: AsyncZeroconf, at: tuple[Place, ...]) -> AsyncIterator[None]:
        from zeroconf.asyncio import AsyncServiceBrowser

        self._places = at
        browser = AsyncServiceBrowser(net.zeroconf, SERVICE, handlers=[self._noticed])
        try:
            yield
        finally:
            await browser.async_cancel()
            asking = list(self._asking.values())
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            self._asking.clear()  # of those that were called off before they began
            self._news.clear()
            self._records.clear()  # another network, other neighbours
            self.changed.set()

    def _noticed(
        self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        if state_change.name == "Removed":
            if self._records.pop(name, None) is not None:
                self.changed.set()
        elif name in self._records or self._has_room():
            self._records.setdefault(name, None)
            self._news.add(name)
            if name not in self._asking:
                self._asking[name] = asyncio.create_task(self._ask(zeroconf, name))

    def _has_room(self) -> bool:
        """For another; records that turned out to be of no use make it."""
        if len(self._records) < MAX_NEARBY:
            return True
        useless = (n for n, found in self._records.items() if found is None)
        gone = next((name for name in useless if name not in self._asking), None)
        if gone is not None:
            del self._records[gone]
        return gone is not None

    async def _ask(self, zeroconf: Zeroconf, name: str) -> None:
        """Hear a record's details, and again for as long as there is news of it."""
        try:
            tries = TRIES
            while name in self._news and tries:
                self._news.discard(name)
                async with self._turn:
                    heard = await self._heard(zeroconf, name)
                if not heard:
                    self._news.add(name)
                    tries -= 1
        finally:
            self._news.discard(name)
            del self._asking[name]

    async def _heard(self, zeroconf: Zeroconf, name: str) -> bool:
        from zeroconf import Error
        from zeroconf.asyncio import AsyncServiceInfo

        info = AsyncServiceInfo(SERVICE, name)
        try:
            if not await info.async_request(zeroconf, ANSWER_MS):
                return False
        except (Error, OSError):
            return False
        found = read(info.properties, info.parsed_scoped_addresses(), info.port, self._places)
        if name in self._records and found != self._records[name]:
            self._records[name] = found
            self.changed.set()
        return True


class _Stay:
    """Multicast DNS on the places there are, begun anew when they are others, and what uses it."""

    def __init__(
        self,
        use: Callable[[AsyncZeroconf, tuple[Place, ...]], AbstractAsyncContextManager[None]],
        here: Places,
        tell: Tell,
        look_s: float,
    ) -> None:
        self.settled = asyncio.Event()
        self._use = use
        self._here = here
        self._tell = tell
        self._look_s = look_s
        self._told = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> _Stay:
        self._task = asyncio.create_task(self._live(), name="lan")
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    async def _live(self) -> None:
        from zeroconf import Error

        logging.getLogger("zeroconf").setLevel(logging.CRITICAL)  # of strangers' mistakes
        while True:
            at = self._here()
            try:
                if not at:
                    raise OSError("it has no network")
                async with _opened(at) as net, self._use(net, at):
                    self.settled.set()
                    while self._here() == at:  # noqa: ASYNC110 - addresses change without a word
                        await asyncio.sleep(self._look_s)
            except (OSError, Error) as error:
                self._say(error)
                self.settled.set()
                await asyncio.sleep(self._look_s)

    def _say(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            why = one_line(str(getattr(error, "strerror", None) or error))[:200]
            self._tell(
                NoNeighbours(
                    f"This machine cannot find others on its network: {why}.",
                    advice="Connect it, or name the host: crowdgrad work HOST:PORT.",
                )
            )


@contextlib.asynccontextmanager
async def _opened(at: tuple[Place, ...]) -> AsyncIterator[AsyncZeroconf]:
    """On those of the places that pass multicast. Raises OSError."""
    from zeroconf.asyncio import AsyncZeroconf

    fit = [place for place in at if _passes_multicast(place)]
    if not fit:
        raise OSError("no network that passes multicast")
    four: list[str | int] = [place.address for place in fit if place.version == 4]
    six: list[str | int] = sorted({place.interface for place in fit if place.version == 6})
    try:
        net = AsyncZeroconf(interfaces=four + six)
    except RuntimeError as error:  # an interface went away meanwhile
        raise OSError(str(error)) from None
    async with net:
        yield net


def _passes_multicast(place: Place) -> bool:
    """Whether a group can be joined there. We try before the library does, which leaks a socket."""
    version6 = place.version == 6
    try:
        with socket.socket(
            socket.AF_INET6 if version6 else socket.AF_INET, socket.SOCK_DGRAM
        ) as trial:
            if version6:
                group = socket.inet_pton(socket.AF_INET6, GROUP_6)
                where = group + place.interface.to_bytes(4, sys.byteorder)
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, where)
            else:
                where = socket.inet_aton(GROUP_4) + socket.inet_aton(place.address)
                trial.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, where)
    except OSError:
        return False
    return True
