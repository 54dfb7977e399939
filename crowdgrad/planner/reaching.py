"""Dialling back: where a matchmaker lets itself be sent by those who ask, and whose turn it is.

Somebody asks whether others can reach them, and names addresses. Whoever dials what strangers name
is a tool in their hands: to look for open ports, or to knock from inside at doors that are shut to
them. So a request is about its sender only, and dialled is

1. the very address that the request came from, named as such, as `*`, or by a name that stands for
   it (what is dialled then is that address, so a name that changes meanwhile leads nowhere else);
2. for a sender in a private network, whose machine has others there: an address of the same /24
   (IPv6: /64) of a private network. It can dial all of these itself;
3. at port 80, 443, or one from 1024 on: below that nobody runs a node, and others run much else.

Nothing is dialled for a request that somebody passed on unasked (a proxy that we were not told
of, or one that says of a proxy that it is the sender), nor for one from this machine itself: the
address it comes from is not its sender's.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from crowdgrad.domain.routes import route_of

OBSERVED: Final = ("", "*")
"""Hosts that stand for the address a request comes from."""
LOWEST_PORT: Final = 1024
ALSO_PORTS: Final = frozenset({80, 443})
PRIVATE: Final = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))
)
NEAR: Final = {4: 24, 6: 64}
"""How long the beginning is, in bits, that addresses of one network share."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
W = TypeVar("W", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What is to be dialled of what was asked for."""

    host: str
    """An address; empty: nothing is dialled."""
    port: int
    why: str
    """Why that is allowed, or why not."""


def own_address(observed: str) -> str:
    """The address a request came from, as it is written; empty: it is not known.

    Whoever comes from this very machine may be a proxy that does not say for whom it speaks, and
    at its doors others listen than nodes.
    """
    found = _parsed(observed)
    return "" if found is None or found.is_loopback else str(found)


def name_to_look_up(asked: str) -> str:
    """The name in `HOST:PORT` of which one has to know what it stands for; empty: there is none."""
    found = _split(asked)
    if found is None or found[0] in OBSERVED or _parsed(found[0]) is not None:
        return ""
    return found[0] if _port_is_fine(found[1]) else ""


def aim(asked: str, observed: str, stands_for: Collection[str] = ()) -> Aim:
    """What to dial for whoever comes from the address `observed` and asks for `HOST:PORT`.

    `stands_for`: the addresses of the name in it, if there is one.
    """
    found, sender = _split(asked), _parsed(observed)
    if found is None:
        return _nothing("it is not HOST:PORT")
    host, port = found
    if not _port_is_fine(port):
        return _nothing(f"only ports 80, 443 and those from {LOWEST_PORT} on are dialled")
    if sender is None:
        return _nothing("your own address is not known here")
    there = Aim(host=str(sender), port=port, why="it is the address you come from")
    if host in OBSERVED:
        return there
    wanted = _parsed(host)
    if wanted is None:
        if sender in map(_parsed, stands_for):
            return there
        return _nothing("the name does not stand for the address you come from")
    if wanted == sender:
        return there
    if _is_near(wanted, sender):
        return Aim(host=str(wanted), port=port, why="it is in your own private network")
    return _nothing("it is not the address you come from")


def _nothing(why: str) -> Aim:
    return Aim(host="", port=0, why=why)


def _split(asked: str) -> tuple[str, int] | None:
    """None: it is not HOST:PORT."""
    host, _, port = asked.rpartition(":")
    try:
        if host in OBSERVED:
            return host, route_of(f"x:{port}").port
        route = route_of(asked)
    except ValueError:
        return None
    return (route.host, route.port) if route.kind == "direct" and not route.url else None


def _port_is_fine(port: int) -> bool:
    return port >= LOWEST_PORT or port in ALSO_PORTS


def _parsed(text: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    # A socket for both kinds tells IPv4 addresses as ::ffff:192.0.2.1.
    return getattr(found, "ipv4_mapped", None) or found


def _is_near(one: _Address, other: _Address) -> bool:
    """Whether both are in the same small part of the same private network."""
    if one.version != other.version or not (_is_private(one) and _is_private(other)):
        return False
    rest = one.max_prefixlen - NEAR[one.version]
    return int(one) >> rest == int(other) >> rest


def _is_private(address: _Address) -> bool:
    return any(address in network for network in PRIVATE)


class Turns(Generic[W]):
    """Whose dials are under way, and who waits: hosts first, then whoever came first.

    A host without volunteers waits for this; a volunteer works all the same. So hosts wait in a
    line of their own, which comes first; both lines are as short as `most_waiting`.
    """

    def __init__(self, most: int, most_waiting: int) -> None:
        if most < 1 or most_waiting < 0:
            raise ValueError(f"{most} at once, {most_waiting} waiting")
        self._most = most
        self._most_waiting = most_waiting
        self._begun: set[W] = set()
        self._hosts: OrderedDict[W, None] = OrderedDict()
        self._others: OrderedDict[W, None] = OrderedDict()

    @property
    def under_way(self) -> int:
        return len(self._begun)

    @property
    def waiting(self) -> int:
        return len(self._hosts) + len(self._others)

    def come(self, who: W, *, hosts: bool) -> Literal["begin", "wait", "full"]:
        """`hosts`: it hosts, as it says. Each comes once, and then has to `leave`, if not full."""
        assert who not in {*self._begun, *self._hosts, *self._others}, who
        if len(self._begun) < self._most:
            self._begun.add(who)
            return "begin"
        line = self._hosts if hosts else self._others
        if len(line) >= self._most_waiting:
            return "full"
        line[who] = None
        return "wait"

    def leave(self, who: W) -> W | None:
        """It is done, or waits no more; who begins in its place, if anybody does."""
        self._hosts.pop(who, None)
        self._others.pop(who, None)
        self._begun.discard(who)
        line = self._hosts or self._others
        if not line or len(self._begun) >= self._most:
            return None
        following, _ = line.popitem(last=False)
        self._begun.add(following)
        return following
