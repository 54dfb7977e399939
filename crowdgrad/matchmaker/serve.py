"""The matchmaker as a process: it takes a port, says where it listens, and ends within a second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from crowdgrad.domain.routes import MAX_ROUTES, relay_of
from crowdgrad.errors import SettingError
from crowdgrad.matchmaker.app import create_service
from crowdgrad.matchmaker.desk import Rules
from crowdgrad.matchmaker.doorkeeper import MOST_ENTERING, RATES, Admission, Doorkeeper
from crowdgrad.matchmaker.garbage import in_small_looks
from crowdgrad.matchmaker.limits import Rates
from crowdgrad.matchmaker.logs import log_event
from crowdgrad.matchmaker.metrics import Metrics
from crowdgrad.net import rooms
from crowdgrad.net.addresses import is_loopback
from crowdgrad.net.http import HttpLimits, HttpServer, Tls, take_descriptors
from crowdgrad.net.ports import bind, reachable, spell
from crowdgrad.process import stop_requests
from crowdgrad.store.base import Store
from crowdgrad.store.memory import MemoryStore

EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 (to recognise it)
TURN_S = 0.001
"""How long the loop keeps the thread that writes waiting, when both have something to do."""
FAREWELL_S = 0.2
"""What the sockets are given to say good-bye before the server stops."""
LIMITS = HttpLimits()

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """How the service is reached, and by how many."""

    host: str = "127.0.0.1"
    port: int = 8700
    public_url: str = ""
    """What people are told; empty: the address we listen on."""
    tls: Tls | None = None
    plain_http: bool = False
    """Whoever listens on the way may read along: only told explicitly, or on this machine."""
    limits: HttpLimits = LIMITS
    rates: Rates = RATES
    most_entering: int = MOST_ENTERING
    relays: tuple[str, ...] = ()
    """Routes to relays that people are told of; see `relays_of`."""

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    def url(self, address: str) -> str:
        """Where people find us. `address`: that of the socket, as written in URLs."""
        if self.public_url:
            return self.public_url.rstrip("/")
        port = address.rpartition(":")[2]
        host = reachable(self.host)
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def names(self) -> frozenset[str]:
        """What callers may sign their requests for, besides what this machine calls itself: who
        signs for another matchmaker must not be taken for one who signs for us."""
        return frozenset({urlsplit(self.public_url).netloc or self.host})

    def check(self) -> None:
        """Raises SettingError."""
        if self.public_url:
            _check_url(self.public_url)
        if self.tls is not None:
            self.tls.context()
        if self.limits.proxies and not self.public_url:
            raise SettingError(
                "Behind a proxy nobody knows under which address people come.",
                advice="Say so with --public-url https://NAME.",
            )
        safe = self.tls is not None or self.plain_http or bool(self.limits.proxies)
        if not safe and not is_loopback(self.host):
            raise SettingError(
                f"On {self.host} others could read and change what is said over plain HTTP.",
                advice="Give a certificate (--tls-cert and --tls-key) or a proxy that has one "
                "(--behind-proxy); in a network you trust, --plain-http.",
            )
        if self.host in EVERYWHERE and not self.public_url:
            raise SettingError(
                f"Listening on {self.host}, nobody knows under which address people come.",
                advice="Say so with --public-url, e.g. http://192.0.2.7:8700.",
            )


def relays_of(named: Iterable[str]) -> tuple[str, ...]:
    """The routes people are told, of relays named `HOST:PORT` or `wss://NAME/PATH`. Raises
    SettingError."""
    found: dict[str, None] = {}
    for name in named:
        try:
            route = relay_of(name)
            if route.url and not route.url.startswith("wss://"):
                raise ValueError(f"people come to a relay by wss://, not by {route.url[:70]!r}")
        except ValueError:
            raise SettingError(
                f"{name[:100]!r} is no relay people could be told of.",
                advice="Give --relay as HOST:PORT or wss://NAME/PATH.",
            ) from None
        found[str(route)] = None
    if len(found) > MAX_ROUTES:
        raise SettingError(
            f"{len(found)} relays are more than people are told of.",
            advice=f"Name {MAX_ROUTES} at most.",
        )
    return tuple(found)


def _check_url(url: str) -> None:
    try:
        found = urlsplit(url)
        fine = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
        extra = found.username or found.query or found.fragment or found.path.strip("/")
    except ValueError:
        fine, extra = False, ""
    if not fine or extra or not url.isprintable() or " " in url:
        raise SettingError(
            f"{url[:100]!r} is no address people could be told.",
            advice="Give --public-url as https://NAME, without anything behind it.",
        )


async def serve(
    door: Door | None = None,
    *,
    open_store: Callable[[], Store] = MemoryStore,
    rules: Rules | None = None,
    started: Callable[[str, str], None] = lambda address, url: None,
) -> None:
    """Serve until SIGINT or SIGTERM. Port 0: any free one.

    `started` is told, once connections are accepted, the address and what people are told. Raises
    PortBusy or SettingError when the address cannot be had, and what `open_store` raises.
    """
    door = door or Door()
    door.check()
    take_descriptors()
    with contextlib.closing(bind(door.host, door.port)) as listening:
        store = open_store()
        try:
            await _serve(door, listening, store, rules, started)
        finally:
            store.close()
    log_event(logger, "stopped")


async def _serve(
    door: Door,
    listening: socket.socket,
    store: Store,
    rules: Rules | None,
    started: Callable[[str, str], None],
) -> None:
    url, metrics = door.url(spell(listening)), Metrics()
    admission = Admission(door.most_entering)
    service = create_service(
        store,
        rules=rules,
        doorkeeper=Doorkeeper(
            wall=time.time,
            clock=time.monotonic,
            names=door.names(),
            rates=door.rates,
            proxies=door.limits.proxies,
        ),
        admission=admission,
        metrics=metrics,
        public_url=url,
        relays=door.relays,
    )
    server = HttpServer(
        service.app,
        listening,
        max_message_bytes=rooms.MAX_REQUEST_BYTES,
        limits=door.limits,
        tls=door.tls,
    )
    gate = server.gate
    assert gate is not None
    gate.is_too_much = admission.is_too_much
    metrics.also(gate.figures)
    metrics.also(lambda: {"entering": admission.entering})
    sys.setswitchinterval(TURN_S)
    with stop_requests() as stop, in_small_looks():
        await server.start()
        started(server.address, url)
        log_event(logger, "started", url=url, connections=gate.limits.connections,
                  jobs=store.count_jobs(), volunteers=store.count_volunteers())  # fmt: skip
        await stop.wait()
        service.room.close()
        await asyncio.sleep(FAREWELL_S)
        await server.stop()
