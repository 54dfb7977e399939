"""Reaching somebody: along whichever way answers first with the right key.

Ways are tried in the order given, the one that worked last time first; the next one starts when one
fails, or has not answered for a moment. Each is dialled as it is, and by WebSocket where that comes
to nothing: some networks let only the web pass. On this very machine frames travel as they are;
everywhere else inside TLS, whose certificate must have the pinned key.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from crowdgrad.domain.routes import Route, Whereabouts, spelled
from crowdgrad.errors import (
    ConnectionLost,
    CrowdgradError,
    Impostor,
    NotPutThrough,
    PeerError,
    TargetError,
    TurnedAway,
    Unreachable,
    VersionMismatch,
)
from crowdgrad.net.addresses import is_loopback
from crowdgrad.net.identity import Identity
from crowdgrad.net.relaying import Calling, at_of
from crowdgrad.net.throttle import Throttle
from crowdgrad.net.transport import tcp, tls, websocket
from crowdgrad.net.transport.base import RELAYED, Connection
from crowdgrad.net.transport.layers import Layer, Stack

STAGGER_S = 1.5
"""How long a way may be silent before the next is tried beside it."""
DIRECT_S, RELAYED_S = 8.0, 15.0
"""How long each may take; through a relay the host has to dial, too."""
FINAL = (Impostor, TurnedAway, VersionMismatch, NotPutThrough)
"""Somebody has answered: another carrier would bring the same answer."""

Open = Callable[..., Awaitable[Connection]]
"""As `tcp.connect`."""


@dataclass(slots=True, kw_only=True)
class Dialler:
    """Dials for one key; remembers sessions and what worked."""

    key: Identity
    always: bool = False
    """Encrypt on this very machine, too."""
    open: Open = tcp.connect
    up: Throttle | None = None
    """What all that is dialled may send together."""
    down: Throttle | None = None
    """… and read."""
    _sessions: tls.Sessions = field(default_factory=tls.Sessions)
    _worked: dict[str, Route] = field(default_factory=dict)
    _by_web: set[str] = field(default_factory=set)
    """Routes that answered by WebSocket only."""

    async def __call__(self, where: Whereabouts) -> Connection:
        """Raises Unreachable or PeerError: what says most of all that went wrong."""
        waiting = list(self._in_order(where))
        trying: dict[asyncio.Task[Connection], Route] = {}
        errors: list[CrowdgradError] = []
        try:
            while waiting or trying:
                if waiting:
                    route = waiting.pop(0)
                    trying[asyncio.create_task(self._try(route, where))] = route
                done, _ = await asyncio.wait(
                    trying,
                    timeout=STAGGER_S if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    route = trying.pop(task)
                    try:
                        connection = task.result()
                    except CrowdgradError as error:
                        errors.append(error)
                        continue
                    self._worked[_name(where)] = route
                    return connection
            raise _most_telling(errors)
        finally:
            await _let_go(trying)

    def _in_order(self, where: Whereabouts) -> tuple[Route, ...]:
        best = self._worked.get(_name(where))
        if best not in where.routes:
            return where.routes
        assert best is not None
        return (best, *(route for route in where.routes if route != best))

    async def _try(self, route: Route, where: Whereabouts) -> Connection:
        name = str(route)
        if route.url or name in self._by_web:
            try:
                return await dial(route, self._layer(route, where), by_web=True, open=self._open)
            except (PeerError, Unreachable):
                self._by_web.discard(name)  # it may have been an accident: as it is, the next time
                raise
        try:
            return await dial(route, self._layer(route, where), open=self._open)
        except FINAL:
            raise
        except PeerError as error:
            first = error
        try:
            connection = await dial(route, self._layer(route, where), by_web=True, open=self._open)
        except FINAL:
            raise
        except (PeerError, Unreachable):
            raise first from None
        self._by_web.add(name)
        return connection

    @property
    def _open(self) -> Open:
        caps = {"up": self.up, "down": self.down}
        given = {name: throttle for name, throttle in caps.items() if throttle is not None}
        return functools.partial(self.open, **given) if given else self.open

    def _layer(self, route: Route, where: Whereabouts) -> Layer | None:
        """Raises TargetError where a relay could not know whom to call."""
        pin = where.key
        if route.kind == "direct":
            if is_loopback(route.host) and not self.always:
                return None
            return tls.dialler(pin, sessions=self._sessions)
        if not pin:
            raise TargetError(
                f"The way through {route} needs the host's key.",
                advice="Use the whole link that the host shows: it ends with # and the key.",
            )
        calling = Calling(pin, self.key, at=at_of(route), job=where.job)
        return Stack(calling, tls.dialler(pin, sessions=self._sessions))


async def dial(
    route: Route, layer: Layer | None, *, by_web: bool = False, open: Open = tcp.connect
) -> Connection:
    """One way, once. `layer`: what is to be agreed on with whoever is there; None: bare frames.

    Raises Unreachable, or PeerError where somebody answers but nothing comes of it.
    """
    url = route.url or (_url(route) if by_web else "")
    if url:
        inside = websocket.TLS_INSIDE if layer is not None else websocket.FRAMES_INSIDE
        web = websocket.Dialling(url, inside)
        layer = Stack(web, layer) if layer is not None else web
    return await open(
        route.host,
        route.port,
        layer=layer,
        timeout_s=DIRECT_S if route.kind == "direct" else RELAYED_S,
        peer=_peer(route),
        web=web_context() if url.startswith("wss:") else None,
    )


def _name(where: Whereabouts) -> str:
    return where.key or str(where)


def _url(route: Route) -> str:
    return f"ws://{spelled(route.host, route.port)}{websocket.PATH}"


def _peer(route: Route) -> str:
    return "" if route.kind == "direct" else RELAYED + spelled(route.host, route.port)


async def _let_go(trying: dict[asyncio.Task[Connection], Route]) -> None:
    for task in trying:
        task.cancel()
    for result in await asyncio.gather(*trying, return_exceptions=True):
        if not isinstance(result, BaseException):
            result.close()


def _most_telling(errors: list[CrowdgradError]) -> CrowdgradError:
    """Who answered says more than that nobody did; of equals the first, the best way's."""
    kinds = (*FINAL, ConnectionLost, PeerError, CrowdgradError)
    for kind in kinds:
        found = next((error for error in errors if isinstance(error, kind)), None)
        if found is not None:
            return found
    raise AssertionError("nothing was tried")


@functools.cache
def web_context() -> ssl.SSLContext:
    """For WebSockets to names with a certificate of the web."""
    return ssl.create_default_context()
