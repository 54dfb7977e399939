"""Ways to somebody: an address of its own, or a relay that both sides dial.

    192.0.2.7:8701                     it listens there
    relay:relay.example.org:8702       call it through the relay that listens there
    relay:wss://match.example.org/r    … through a relay that is reached by WebSocket

An address is dialled as it is, and by WebSocket where a network lets nothing else pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

RELAY = "relay:"
MAX_ROUTES = 8
MAX_ROUTE = 262
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,253})")
_URL = re.compile(
    r"(?P<scheme>wss?)://(?P<name>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?P<port>:[0-9]{1,5})?"
    r"(?:/[A-Za-z0-9_.~/%-]*)?"
)
_IPV6 = re.compile(r"[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9_.-]{1,15})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    kind: Literal["direct", "relay"] = "direct"
    host: str
    port: int
    url: str = ""
    """Of a WebSocket, where that is the way; host and port are in it."""

    def __str__(self) -> str:
        where = self.url or spelled(self.host, self.port)
        return RELAY + where if self.kind == "relay" else where


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where somebody is found, the best way first, and the key it must prove."""

    routes: tuple[Route, ...]
    key: str = ""
    """A pin: how the fingerprint of its key begins; empty: not known."""
    job: str = ""
    """Which of its jobs, for a relay that is asked for it; empty: the only one."""

    def __post_init__(self) -> None:
        if not self.routes:
            raise ValueError("nobody is found without a way")

    def __str__(self) -> str:
        return str(self.routes[0])


def at(host: str, port: int, key: str = "") -> Whereabouts:
    """At one address."""
    return Whereabouts(routes=(Route(host=host, port=port),), key=key)


def spelled(host: str, port: int) -> str:
    """`HOST:PORT`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def relay_of(text: str) -> Route:
    """The way through a relay that is named `HOST:PORT` or `wss://NAME/PATH`. Raises ValueError."""
    return route_of(RELAY + text.removeprefix(RELAY))


def route_of(text: str) -> Route:
    """Raises ValueError, saying what a route looks like."""
    kind: Literal["direct", "relay"] = "direct"
    where = text
    if text.startswith(RELAY):
        kind, where = "relay", text.removeprefix(RELAY)
    if len(text) <= MAX_ROUTE and text.isascii() and text.isprintable():
        route = _by_url(where, kind) if "://" in where else _by_address(where, kind)
        if route is not None:
            return route
    raise ValueError(f"a way to somebody is HOST:PORT or relay:HOST:PORT, not {text[:70]!r}")


def _by_address(where: str, kind: Literal["direct", "relay"]) -> Route | None:
    host, _, port = where.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        sound = _IPV6.fullmatch(host) is not None and ":" in host
    else:
        sound = _NAME.fullmatch(host) is not None
    if not (sound and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16):
        return None
    return Route(kind=kind, host=host, port=int(port))


def _by_url(where: str, kind: Literal["direct", "relay"]) -> Route | None:
    found = _URL.fullmatch(where)
    if found is None:
        return None
    usual = {"ws": ":80", "wss": ":443"}[found["scheme"]]
    address = _by_address(found["name"] + (found["port"] or usual), kind)
    return replace(address, url=where) if address is not None else None
