"""Whose connection it is: the peer's address, also behind a proxy, and how addresses are counted.

A proxy of ours adds whom it speaks for to `X-Forwarded-For`. What stands before that was said by
the caller and may be a lie, so entries are read from the end, and only as far as our own proxies.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from crowdgrad.errors import SettingError

MOST_HOPS = 8
IPV6_PREFIX = 64
"""Everybody with IPv6 has at least so many addresses: they count as one."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """Those in front of us, by address or network."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Raises SettingError."""
        self.names = tuple(names)
        try:
            self._networks = tuple(ipaddress.ip_network(name, strict=False) for name in self.names)
        except ValueError as error:
            raise SettingError(
                f"A proxy is named by its address: {error}.",
                advice="Give what its connections come from, e.g. 127.0.0.1 or 172.18.0.0/16.",
            ) from None

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: object) -> bool:
        found = _parsed(str(address))
        return found is not None and any(found in network for network in self._networks)


NONE = Proxies()


def client_address(scope: Mapping[str, Any], proxies: Proxies) -> str:
    """Who asks, of an ASGI scope: the socket's peer, or whom a proxy of ours speaks for."""
    peer = str((scope.get("client") or ("",))[0])
    return forwarded(peer, scope.get("headers") or (), proxies)


def forwarded(peer: str, headers: Iterable[tuple[bytes, bytes]], proxies: Proxies) -> str:
    if not proxies or peer not in proxies:
        return peer
    given = b",".join(value for name, value in headers if name == b"x-forwarded-for")
    for entry in reversed(given.decode("latin-1").split(",")[-MOST_HOPS:]):
        found = _parsed(entry.strip())
        if found is None:
            break
        peer = str(found)
        if peer not in proxies:
            break
    return peer


@functools.lru_cache(maxsize=4096)
def counted(address: str) -> str:
    """The name under which an address is counted: itself, of IPv6 its network."""
    found = _parsed(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(found), IPV6_PREFIX), strict=False))
    return str(found) if found is not None else address[:64]


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this very machine."""
    found = _parsed(host)
    return found.is_loopback if found is not None else host.lower() == "localhost"


def _parsed(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text.strip("[]")[:64])
    except ValueError:
        return None
    # A socket for both kinds tells IPv4 addresses as ::ffff:192.0.2.1.
    return getattr(found, "ipv4_mapped", None) or found
