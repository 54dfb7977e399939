"""Which addresses a host may send us to: it is a stranger, and near us are our own machines.

A host names others to dial: servers with its parameters, mirrors of its data, other volunteers. One
somewhere on the internet has no business at addresses of our own network; one that is in a network
with us may name what is there, and one on our own machine may name anything.
"""

from __future__ import annotations

import ipaddress

from crowdgrad.errors import NotDialled

TRANSLATED = tuple(
    map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/96", "::ffff:0:0:0/96"))
)
"""Behind these prefixes gateways know addresses of the older kind."""


def check_neighbourhood(address: str, *, host: str, what: str, strict: bool = False) -> None:
    """Raises NotDialled where a host far away sends us to a machine near us.

    `what` the host says is there, e.g. "its parameters are". Only addresses can be judged; a name
    is looked at again when it has become one. `strict`: a host of which we have no address (only
    the name of a relay, say) counts as far away.
    """
    far, near = _address(host), _address(address)
    if near is None or (far is None and not strict):
        return
    if far is not None and (far.is_loopback or near == far):
        return
    here = near.is_loopback or near.is_unspecified
    inside = near.is_link_local and not (far is not None and far.is_link_local)
    if here or inside or ((far is None or far.is_global) and not near.is_global):
        raise NotDialled(
            f"The host at {host} says that {what} at {address}, which is an address of this "
            "machine or of a network it is in.",
            advice="Tell the host to name only addresses that can be reached from here.",
        )


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
