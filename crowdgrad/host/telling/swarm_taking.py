"""Taking a picture of how the data spreads, from what the host knows of its crowd.

At most twice a second, on the host's loop: what each member costs is a few passes over its set of
chunks, and only those that are named get a strip.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from operator import attrgetter
from typing import Protocol

import numpy as np

from crowdgrad.domain.spreading import Share
from crowdgrad.host.telling.swarm_status import SwarmFlow, SwarmMember, SwarmOthers, SwarmStatus
from crowdgrad.planner.replication.crowd import ACCUSERS, Crowd
from crowdgrad.planner.replication.masks import Counts, Mask, empty
from crowdgrad.planner.replication.plans import HOST, Guest, Links, Node
from crowdgrad.planner.replication.swarm import STALLED_S

MOST_MEMBERS = 100
"""Members by name."""
MOST_FLOWS = 200
MOST_CELLS = 60
"""Of a member's strip; three to a character of the terminal's."""


class Spreads(Protocol):
    """What a host has of its spreading."""

    @property
    def crowd(self) -> Crowd: ...

    @property
    def sizes(self) -> Counts:
        """Bytes of each chunk."""

    @property
    def sent_bytes(self) -> int:
        """Of data, by the host itself."""

    @property
    def share(self) -> Share: ...

    @property
    def reason(self) -> str:
        """Why the host sends what it sends now."""


def take_swarm(spread: Spreads, names: Mapping[int, str], now: float) -> SwarmStatus:
    """`names`: of everybody who ever joined, by position."""
    crowd, sizes = spread.crowd, spread.sizes
    guests, traffic = crowd.members, _Traffic(crowd)
    have = {node: _Have(guest) for node, guest in guests.items()}
    wanted, known = empty(crowd.chunks), empty(crowd.chunks)
    for guest in guests.values():
        wanted |= guest.wants
        known |= guest.holds
    known |= wanted
    wanted_bytes = int(sizes[known].sum())
    everybody = sorted({*guests, *traffic.nodes} - {HOST})
    named = _chosen(everybody, guests, traffic)
    return SwarmStatus(
        plan=crowd.plan.name,
        sentence=crowd.plan.sentence,
        share=spread.share,
        chunks=crowd.chunks,
        bytes=int(sizes.sum()),
        wanted_bytes=wanted_bytes,
        progress=_part(
            sum(each.of_wanted for each in have.values()),
            sum(each.wanted for each in have.values()),
        ),
        host_sent_bytes=spread.sent_bytes,
        host_copies=spread.sent_bytes / wanted_bytes if wanted_bytes else 0.0,
        rarest=int(crowd.copies()[wanted].min()) if wanted.any() else 0,
        here=len(guests),
        complete=sum(each.complete for each in have.values()),
        reason=spread.reason,
        members=[
            _member(crowd, node, guests[node], have[node], traffic, names, now)
            if node in guests
            else _gone(node, traffic, names)
            for node in named
        ],
        others=_others(set(everybody) - set(named), have, traffic),
        flows=_busiest(crowd.flows),
    )


# -- of one member ------------------------------------------------------------------------------


class _Have:
    """How many chunks of what; counts, not bytes: they are what is cheap, and chunks are alike."""

    def __init__(self, guest: Guest) -> None:
        self.held = int(np.count_nonzero(guest.holds))
        self.wanted = int(np.count_nonzero(guest.wants))
        self.of_wanted = int(np.count_nonzero(guest.wants & guest.holds))

    @property
    def complete(self) -> bool:
        return self.of_wanted == self.wanted


class _Traffic:
    """Bytes by who got and who sent them."""

    def __init__(self, crowd: Crowd) -> None:
        self.received: Counter[Node] = Counter()
        self.from_host: Counter[Node] = Counter()
        self.passed_on: Counter[Node] = Counter()
        for (sender, receiver), sent in crowd.flows.items():
            self.received[receiver] += sent
            self.passed_on[sender] += sent
            if sender == HOST:
                self.from_host[receiver] += sent
        self.nodes = {*self.received, *self.passed_on}
        for node in crowd.members:
            # Both may have forgotten: flows the least busy pairs, a member what it got before it
            # came back.
            self.received[node] = max(self.received[node], crowd.received(node)[0])

    def of(self, node: Node) -> int:
        return self.received[node] + self.passed_on[node]


def _member(
    crowd: Crowd,
    node: Node,
    guest: Guest,
    have: _Have,
    traffic: _Traffic,
    names: Mapping[int, str],
    now: float,
) -> SwarmMember:
    _, wasted, bad = crowd.received(node)
    links, place = crowd.links.get(node, Links()), crowd.place(node)
    return SwarmMember(
        position=node,
        name=_name(node, names),
        here=True,
        held_chunks=have.held,
        wanted_chunks=have.wanted,
        progress=_part(have.of_wanted, have.wanted),
        received_bytes=traffic.received[node],
        from_host_bytes=traffic.from_host[node],
        passed_on_bytes=traffic.passed_on[node],
        wasted_bytes=wasted,
        bad_chunks=bad,
        neighbours=list(links.neighbours),
        dialled=place.dialled,
        gives=place.gives,
        trusted=crowd.trusted(node),
        map=_map(guest.holds),
        source=links.source,
        state=_state(crowd.accusers(node), have, now - guest.moved_at, _from(links, names)),
    )


def _gone(node: Node, traffic: _Traffic, names: Mapping[int, str]) -> SwarmMember:
    return SwarmMember(
        position=node,
        name=_name(node, names),
        here=False,
        held_chunks=0,
        wanted_chunks=0,
        progress=0.0,
        received_bytes=traffic.received[node],
        from_host_bytes=traffic.from_host[node],
        passed_on_bytes=traffic.passed_on[node],
        wasted_bytes=0,
        bad_chunks=0,
        neighbours=[],
        dialled=False,
        gives=False,
        trusted=False,
        map=[],
        source=None,
        state="has gone",
    )


def _state(accusers: int, have: _Have, still_s: float, source: str) -> str:
    if accusers >= ACCUSERS:
        return f"{accusers} others had wrong bytes of it: it is believed by nobody"
    if have.complete:
        return "has all it wants" if have.wanted else "wants nothing yet"
    if still_s >= STALLED_S:
        return f"has got nothing for {still_s:.0f} s"
    return f"gets data{source}"


def _from(links: Links, names: Mapping[int, str]) -> str:
    if links.source is None:
        return ""
    return " from the host" if links.source == HOST else f" from {_name(links.source, names)}"


def _name(node: Node, names: Mapping[int, str]) -> str:
    return names.get(node, f"number {node}")


def _map(holds: Mask) -> list[float]:
    """Rounded down: a cell that is not full never looks it."""
    cells = min(MOST_CELLS, len(holds))
    if not cells:
        return []
    edges = np.arange(cells + 1) * len(holds) // cells
    held = np.add.reduceat(holds, edges[:-1], dtype=np.int64)
    parts: list[float] = (np.floor(100 * held / np.diff(edges)) / 100).tolist()
    return parts


# -- of many ------------------------------------------------------------------------------------


def _chosen(everybody: list[Node], guests: Mapping[Node, Guest], traffic: _Traffic) -> list[Node]:
    """Whom the picture names, in roster order."""
    if len(everybody) <= MOST_MEMBERS:
        return everybody
    rank = {node: (node in guests, traffic.of(node), -node) for node in everybody}
    return sorted(heapq.nlargest(MOST_MEMBERS, everybody, key=rank.__getitem__))


def _others(rest: set[Node], have: Mapping[Node, _Have], traffic: _Traffic) -> SwarmOthers:
    return SwarmOthers(
        members=len(rest),
        here=sum(node in have for node in rest),
        complete=sum(have[node].complete for node in rest if node in have),
        received_bytes=sum(traffic.received[node] for node in rest),
        passed_on_bytes=sum(traffic.passed_on[node] for node in rest),
    )


def _busiest(flows: Counter[tuple[Node, Node]]) -> list[SwarmFlow]:
    """The host's own are up to half of them: in a crowd they are smaller than those of members."""
    sent = [SwarmFlow(sender=a, receiver=b, bytes=n) for (a, b), n in flows.items() if n > 0]
    own = [flow for flow in sent if flow.sender == HOST]
    others = [flow for flow in sent if flow.sender != HOST]
    found = heapq.nlargest(MOST_FLOWS // 2, own, key=attrgetter("bytes"))
    found += heapq.nlargest(MOST_FLOWS - len(found), others, key=attrgetter("bytes"))
    return sorted(found, key=attrgetter("bytes"), reverse=True)


def _part(some: int, of: int) -> float:
    return some / of if of else 1.0
