"""Which ways to a host are told to others, in which order, and what to try next."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from crowdgrad.domain.routes import MAX_ROUTES, Route, route_of, spelled
from crowdgrad.planner.nat import space_of

Step = Literal["done", "router", "relay"]
MOST_LOCAL = 2
"""Addresses on the local network that are told: a machine may have dozens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of the ways to a host."""

    named: str = ""
    """What its owner says that others reach it by."""
    reached: tuple[str, ...] = ()
    """Addresses at which a matchmaker has dialled it."""
    mapped: str = ""
    """… through a port that the router opened."""
    local: tuple[str, ...] = ()
    """Its own addresses."""
    relays: tuple[str, ...] = ()
    """At which it can be called."""


def ways(seen: Seen) -> tuple[Route, ...]:
    """The best first: what is known to work for everybody, then what works nearby, then relays.

    A way that does not work costs a dialler a moment; one that leads to somebody else is noticed by
    the key.
    """
    known = [seen.named, *seen.reached, seen.mapped]
    told = [*known, *seen.local[:MOST_LOCAL]]
    relays = seen.relays[: MAX_ROUTES - 1]
    direct = list(dict.fromkeys(way for way in told if way))[: MAX_ROUTES - len(relays)]
    return tuple(route_of(way) for way in (*direct, *relays))


def next_step(seen: Seen, *, asked: bool, router: bool, relays: bool) -> tuple[Step, str]:
    """What to try for those far away. `asked`: somebody has tried to dial us. `router`, `relays`:
    it can still be asked, there are some."""
    if seen.named:
        return "done", f"others are told that we are at {seen.named}"
    if seen.reached:
        return "done", f"others reach this machine at {seen.reached[0]}"
    if seen.mapped:
        return "done", f"others reach this machine at {seen.mapped}: the router has opened a port"
    if router:
        return "router", "nobody could dial this machine: the router is asked for a port"
    if relays:
        return "relay", "nobody can dial this machine: volunteers come through a relay"
    if not asked:
        return (
            "done",
            "whoever is on the same network can come; for others name a matchmaker (--matchmaker) "
            "or a relay (--relay)",
        )
    return (
        "done",
        "nobody outside this network can dial this machine, and no relay is known: name one with "
        "--relay, or open a port in the router (`crowdgrad doctor` says more)",
    )


def own_addresses(found: Iterable[str], port: int) -> tuple[str, ...]:
    """As others could dial them: of the internet first, then private ones of the older kind."""
    public, private = [], []
    for text in found:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if address.is_loopback or address.is_link_local or address.is_multicast:
            continue
        where = spelled(str(address), port)
        if space_of(address) == "public":
            public.append(where)
        elif address.version == 4:
            private.append(where)
    return (*public, *private)


def to_be_dialled(local: Sequence[str], port: int, most: int) -> tuple[str, ...]:
    """What to ask a matchmaker about: the address it sees, and those of ours it may not see."""
    sixes = [way for way in local if way.startswith("[")]
    return (f"*:{port}", *sixes)[:most]
