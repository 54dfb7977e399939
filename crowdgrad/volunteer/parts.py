"""Which bytes of a slot go to which server, and which servers may be dialled at all.

A host may leave the parameters to servers (`Admit.servers`), each with a part of the words. All it
says about them is a stranger's word: parts must be one vector, cut without a gap, and a host
somewhere on the internet has no business at addresses of our own network.

As it travels, a word of the parameters takes two bytes or four, by the codec, and a word behind
them four.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from crowdgrad.domain.job import ServerPlace
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import CodecName, wire_place
from crowdgrad.errors import MessageError, NotDialled
from crowdgrad.net.transport.base import RELAYED

ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - nobody listens there
"""Where a server is that runs on the host's own machine."""
TRANSLATED = tuple(
    map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/96", "::ffff:0:0:0/96"))
)
"""Behind these prefixes gateways know addresses of the older kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One server: where to dial it, what to say there, and its bytes of a slot."""

    host: str
    port: int
    token: str = field(repr=False)
    admission: int = 0
    key: str = ""
    """A pin of the server's key."""
    state: slice
    update: slice

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parts_of(
    places: Sequence[ServerPlace], spec: ProgramSpec, codec: CodecName, *, host: str
) -> tuple[Part, ...]:
    """What the host says of its servers, if that makes sense. `host`: the address it answered at.

    Raises MessageError where they do not hold every word once, TurnedAway where we will not dial.
    """
    _check_cut(places, spec)
    return tuple(_part(place, spec.size, codec, host) for place in places)


def _check_cut(places: Sequence[ServerPlace], spec: ProgramSpec) -> None:
    starts = [0, *(place.stop for place in places)]
    updates = [0, *(place.update_stop for place in places)]
    whole = (starts[-1], updates[-1]) == (spec.state_words, spec.update_words)
    if not whole or any(
        place.start != state or place.start != update
        for place, state, update in zip(places, starts, updates, strict=False)
    ):
        raise MessageError(
            f"The host's {len(places)} servers do not hold its {spec.state_words} words once each.",
            advice="Tell the host; help another job.",
        )


def _part(place: ServerPlace, size: int, codec: CodecName, host: str) -> Part:
    name, port = machine_of(place.address), place.address.rpartition(":")[2]
    start = wire_place(codec, size, place.start)
    part = Part(
        host=host if name in ANYWHERE else name,
        port=int(port),
        token=place.token,
        admission=place.admission,
        key=place.key,
        state=slice(start, wire_place(codec, size, place.stop)),
        update=slice(start, wire_place(codec, size, place.update_stop)),
    )
    check_neighbourhood(part.host, host=host)
    return part


def check_neighbourhood(server: str, *, host: str) -> None:
    """Raises NotDialled where a host far away sends us to a machine near us.

    Only addresses can be judged; a name is looked at again when it has become one.
    """
    far, near = _address(host), _address(server)
    if far is None or near is None or far.is_loopback or near == far:
        return
    here = near.is_loopback or near.is_unspecified
    inside = near.is_link_local and not far.is_link_local
    if here or inside or (far.is_global and not near.is_global):
        raise NotDialled(
            f"The host at {host} says that its parameters are at {server}, which is an address of "
            "this machine or of a network it is in.",
            advice="Tell the host to name its servers by addresses that can be reached from here.",
        )


def machine_of(address: str) -> str:
    """host:port without the port; of somebody behind a relay the relay's."""
    return address.removeprefix(RELAYED).rpartition(":")[0].strip("[]")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return None
    return _inner(found) if isinstance(found, ipaddress.IPv6Address) else found


def _inner(found: ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address of the older kind that one of the newer kind stands for, if it does."""
    if any(found in network for network in TRANSLATED):
        return ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    return found.ipv4_mapped or found.sixtofour or found
