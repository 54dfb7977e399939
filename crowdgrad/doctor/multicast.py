"""Whether this machine can ask its own networks for hosts, and hear: multicast DNS (RFC 6762).

From an address on each network it asks what a volunteer asks, at the same group and port, and
listens for its own question, which the system hands back to whoever listens here. If that comes,
nothing on this machine stands in the way. What the network does with it no question can tell: that
shows when a host answers.
"""

from __future__ import annotations

import errno
import secrets
import socket
import struct
import sys
import time
from collections.abc import Collection, Iterable

from crowdgrad.doctor import measuring, seen
from crowdgrad.net import lan
from crowdgrad.net.nearby import SERVICE, Place

PORT = 5353
HEAR_S = 1.0
MOST_PLACES = 4
"""Networks that are asked: a machine with containers has dozens."""
MOST_BYTES = 9000
"""Of a message of mDNS."""
_PTR, _IN = 12, 1
_EVERYWHERE, _NOWHERE = 255, 0
"""How many routers may pass it on, as mDNS has it; with none it does not even leave the machine."""


def ask(out: bool, *, here: lan.Places = lan.networks) -> seen.Multicast:
    """`out`: the question may leave this machine. Takes a second for each network without luck."""
    places = here()
    asked = tuple(
        seen.Asking(address=place.address, trouble=_trouble(place, out=out))
        for place in to_ask(places, measuring.local_addresses())
    )
    return seen.Multicast(out=out, asked=asked, here=tuple(place.address for place in places))


def to_ask(places: Iterable[Place], leaves_by: Collection[str]) -> tuple[Place, ...]:
    """One place of each network; where the machine leaves by first. Only where there is no other of
    IPv6: hosts announce themselves by the older kind unless told otherwise."""
    known = tuple(places)
    fit = [place for place in known if place.version == 4] or known
    found: dict[int, Place] = {}
    for place in sorted(fit, key=lambda place: place.address not in leaves_by):
        found.setdefault(place.interface, place)
    return tuple(found.values())[:MOST_PLACES]


def question(number: int) -> bytes:
    """Who offers our service? `number` means nothing to others; we know our own question by it."""
    name = b"".join(bytes([len(label)]) + label for label in SERVICE.encode().split(b"."))
    return struct.pack("!6H", number, 0, 1, 0, 0, 0) + name + struct.pack("!2H", _PTR, _IN)


def _trouble(place: Place, *, out: bool) -> str:
    """Why what is said there is not heard there; empty: it is."""
    said = question(1 + secrets.randbelow(0xFFFF))
    family = socket.AF_INET6 if place.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as group:
            where = _join(group, place, _EVERYWHERE if out else _NOWHERE)
            group.sendto(said, where)
            return "" if _hears(group, said) else "it does not hear its own question"
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"another program has UDP port {PORT} for itself"
        return (error.strerror or str(error)).lower()


def _join(group: socket.socket, place: Place, hops: int) -> tuple[str, int]:
    """Be where everybody listens, and speak from the place; whom to speak to. Raises OSError."""
    for option in ("SO_REUSEADDR", "SO_REUSEPORT"):  # others here look for printers
        if hasattr(socket, option):
            group.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
    if place.version == 6:
        group.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    group.bind(("", PORT))
    if place.version == 6:
        number = place.interface.to_bytes(4, sys.byteorder)
        member = socket.inet_pton(socket.AF_INET6, lan.GROUP_6) + number
        group.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
        group.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, number)
        group.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        group.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
        return lan.GROUP_6, PORT
    address = socket.inet_aton(place.address)
    member = socket.inet_aton(lan.GROUP_4) + address
    group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    group.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address)
    group.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    group.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)
    return lan.GROUP_4, PORT


def _hears(group: socket.socket, said: bytes) -> bool:
    """Whether that comes within a second, whatever else does. Raises OSError."""
    until = time.monotonic() + HEAR_S
    while (left := until - time.monotonic()) > 0:
        group.settimeout(left)
        try:
            if group.recv(MOST_BYTES) == said:
                return True
        except TimeoutError:
            break
    return False
