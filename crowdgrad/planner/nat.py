"""What stands between a machine and the internet, judged by the addresses that three parties see.

    local      the machine's own address, on the network it is in
    external   what its router says that its address outside is; '' where the router says nothing
    observed   what somebody far away sees when the machine dials; '' where nobody has looked

    open       the machine has an address of the internet itself
    mapped     one router, and it opens ports for us
    double     another router stands before ours: ports of ours lead only to the space in between
    carrier    the provider shares one address among customers: nobody there opens ports for us
    closed     one router at least, and it opens none
    unknown    too little is known

What it says is about addresses only: a firewall may stand before any of them.
"""

from __future__ import annotations

import ipaddress
from typing import Literal

Kind = Literal["open", "mapped", "double", "carrier", "closed", "unknown"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Space = Literal["none", "public", "private", "shared"]

SHARED = ipaddress.ip_network("100.64.0.0/10")
"""What providers use between themselves and customers that share an address (RFC 6598)."""
PRIVATE = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "192.0.0.0/29",
                 "fc00::/7", "fe80::/10")
)  # fmt: skip
"""Used again in every home. Not `is_private`, which also counts what documents use as examples."""


def judge(local: str, external: str = "", observed: str = "") -> tuple[Kind, str]:
    """What kind of way there is from outside to this machine, and why we think so."""
    here, out, seen = _parsed(local), _parsed(external), _parsed(observed)
    if space_of(seen) != "public":
        seen = None  # whoever looked is on our side of the router
    if external and out is None:
        return "closed", "the router has no address outside: it is not connected itself"
    if out is not None:
        return _by_router(out, seen)
    return _without_router(here, seen)


def _by_router(out: Address, seen: Address | None) -> tuple[Kind, str]:
    if space_of(out) == "shared":
        return "carrier", (
            f"your provider shares one address among customers (carrier-grade NAT): the router's "
            f"address outside is {out}"
        )
    if space_of(out) == "private":
        return "double", (
            f"your router stands behind another one, perhaps the provider's: its own address "
            f"outside is {out}, which only that one knows"
        )
    if seen is not None and seen.version == out.version and seen != out:
        return "double", (
            f"your router says that you are {out}, others see {seen}: another router, your "
            "provider or a VPN stands between"
        )
    return "mapped", f"the router opens ports at {out}"


def _without_router(here: Address | None, seen: Address | None) -> tuple[Kind, str]:
    if space_of(here) == "shared":
        return "carrier", (
            f"your provider shares one address among customers (carrier-grade NAT): this machine "
            f"is {here}"
        )
    if space_of(here) == "public":
        if seen is None or seen == here:
            return "open", f"this machine is on the internet itself, as {here}"
        if seen.version == here.version:  # type: ignore[union-attr]
            return "closed", f"this machine is {here}, others see {seen}: something stands between"
        return "unknown", f"this machine is {here}, and was only looked at as {seen}"
    if space_of(here) == "private" and seen is not None:
        return "closed", f"the router at {seen} opens no port for this machine, {here}"
    return "unknown", "the router says nothing, and nobody outside has looked"


def space_of(address: Address | None) -> Space:
    """Whose an address is: the internet's, a home's, a provider's, or none that others can use."""
    if address is None:
        return "none"
    if address in SHARED:
        return "shared"
    return "private" if any(address in network for network in PRIVATE) else "public"


def _parsed(text: str) -> Address | None:
    """None for what is no address of one machine: nonsense, loopback, everybody, nobody."""
    try:
        found = ipaddress.ip_address(text[:64])
    except ValueError:
        return None
    found = getattr(found, "ipv4_mapped", None) or found
    nobody = found.is_loopback or found.is_multicast or found.is_unspecified
    if found.version == 4 and (found in _NOBODY or found in _LATER):
        nobody = True
    return None if nobody else found


_NOBODY = ipaddress.ip_network("0.0.0.0/8")
_LATER = ipaddress.ip_network("240.0.0.0/4")
