"""What a host says of itself to its own network, and what of it a stranger is believed.

Anybody on the network can write such a record. It is a hint where to dial, no more: whoever answers
there must prove that it has the key. So what counts here is that nothing in it can harm: every part
is checked, cut and put on one line before anybody sees it, and no address is our own machine's.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crowdgrad.domain.job import MAX_TITLE
from crowdgrad.domain.routes import MAX_ROUTES, Route
from crowdgrad.errors import one_line
from crowdgrad.net.messages import PROTOCOL

SERVICE = "_crowdgrad._tcp.local."
VERSION = str(PROTOCOL[0])
MAX_TEXT = 240
"""Bytes of one entry: with its name it must fit into 255."""
MAX_ENTRIES = 32
_KEY = re.compile(r"[0-9a-f]{64}")
_JOB = re.compile(r"[0-9A-Za-z-]{1,64}")
_EVERYBODY = ipaddress.IPv4Address("255.255.255.255")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearby:
    """A host on our own network, as it says: nothing of it is proven."""

    key: str
    """Its key's whole fingerprint, 64 digits: a pin."""
    job: str
    title: str
    cause: str
    routes: tuple[Route, ...]
    """Best first; at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An address of ours, on one of our networks."""

    address: str
    prefix: int
    interface: int
    """Its number; link-local addresses mean nothing without."""

    @property
    def version(self) -> int:
        return ipaddress.ip_address(self.address).version

    @property
    def loopback(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network(f"{self.address}/{self.prefix}", strict=False)


def listened_on(places: Iterable[Place], host: str) -> tuple[Place, ...]:
    """Those of our places where somebody who listens on `host` is found: no more than can be told.

    0.0.0.0 is all of IPv4, :: all there are; this machine's own inside is none, unless asked for.
    """
    if host == "::":
        found = [place for place in places if not place.loopback]
    elif host == "0.0.0.0":  # noqa: S104
        found = [place for place in places if not place.loopback and place.version == 4]
    else:
        found = [place for place in places if place.address == host]
    return tuple(sorted(found, key=lambda place: (place.version, place.interface)))[:MAX_ROUTES]


def instance(key: str, job: str) -> str:
    """A record's name: another for every host and every job, and the same each time."""
    return f"{key[:16]}-{hashlib.sha256(job.encode()).hexdigest()[:8]}"


def entries(*, key: str, job: str, title: str, cause: str) -> dict[str, str]:
    """What a record says. Raises ValueError for what nobody would believe."""
    if not _KEY.fullmatch(key) or not _JOB.fullmatch(job):
        raise ValueError(f"a key has 64 digits and a job a name, not {key[:70]!r} and {job[:70]!r}")
    return {"v": VERSION, "key": key, "job": job, "title": _cut(title), "cause": _cut(cause)}


def read(
    said: Mapping[bytes, bytes | None],
    addresses: Sequence[str],
    port: int | None,
    ours: Iterable[Place] = (),
) -> Nearby | None:
    """What a stranger's record says; None where it is not what a host of this version would say.

    `ours`: where we are, so that the address nearest to us comes first. This machine's own inside
    is no way to anybody, unless that is all there is of us.
    """
    if len(said) > MAX_ENTRIES or _text(said, b"v") != VERSION:
        return None
    key, job, title, cause = (_text(said, name) for name in (b"key", b"job", b"title", b"cause"))
    routes = _routes(addresses, port, tuple(ours))
    if not _KEY.fullmatch(key) or not _JOB.fullmatch(job) or not routes:
        return None
    return Nearby(key=key, job=job, title=_shown(title) or job, cause=_shown(cause), routes=routes)


def _routes(
    addresses: Sequence[str], port: int | None, ours: tuple[Place, ...]
) -> tuple[Route, ...]:
    if port is None or not 0 < port < 1 << 16:
        return ()
    inside = bool(ours) and all(place.loopback for place in ours)
    ranked = set()
    for text in addresses[: 4 * MAX_ROUTES]:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if address.is_multicast or address.is_unspecified or address == _EVERYBODY:
            continue
        if address.is_loopback == inside:
            rank = (_distance(address, ours), address.version)
            ranked |= {(*rank, each) for each in _scoped(address, ours)}
    return tuple(Route(host=text, port=port) for *_, text in sorted(ranked)[:MAX_ROUTES])


def _scoped(address: Address, ours: tuple[Place, ...]) -> list[str]:
    """A link-local address means something only with the network it is on: one of ours."""
    if address.version == 4 or not address.is_link_local or address.scope_id:
        return [str(address)]
    mine = [ipaddress.ip_address(place.address) for place in ours]
    return [
        f"{address}%{place.interface}"
        for place, own in zip(ours, mine, strict=True)
        if own.version == 6 and own.is_link_local
    ]


def _distance(address: Address, ours: tuple[Place, ...]) -> int:
    """0: a neighbour. 1: an address that we have, too, as machines with containers do. 2: far."""
    plain = str(address).partition("%")[0]
    if any(plain == place.address for place in ours):
        return 1
    return 0 if any(ipaddress.ip_address(plain) in place.network for place in ours) else 2


def _text(said: Mapping[bytes, bytes | None], name: bytes) -> str:
    """'' for what is missing, too long or no text."""
    raw = said.get(name) or b""
    try:
        return raw.decode() if len(raw) <= MAX_TEXT else ""
    except UnicodeDecodeError:
        return ""


def _shown(text: str) -> str:
    return one_line(text)[:MAX_TITLE]


def _cut(text: str) -> str:
    return one_line(text).encode()[:MAX_TEXT].decode(errors="ignore")
