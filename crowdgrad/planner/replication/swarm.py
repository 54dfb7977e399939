"""A swarm: everybody passes on what it has, the rarest chunks first.

Each member exchanges with about eight others, chosen so that one of the two can be dialled and
loads are even. The host gives every chunk to one member and leaves the rest to them: it sends a
chunk again only where nobody a member is joined with has it, or where a member gets nowhere. Of
several who have room it serves the one whose chunks have spread: who passes on quickly gets more to
pass on.

Whom a member serves next depends a little on what it got of them (reciprocity for a friendly
crowd): who has given most waits half as long as who has given nothing, and nobody waits for ever.

On equal uplinks this comes to within a few per cent of the bound (F/B)(1 + ⌊log2 N⌋/M), whatever
the number of members; a tree of whole copies takes log2(N+1) times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crowdgrad.domain.spreading import PlanName
from crowdgrad.planner.replication.masks import Mask
from crowdgrad.planner.replication.plans import (
    Asked,
    Fed,
    Guest,
    Links,
    Node,
    Order,
    Queue,
    World,
)

NEIGHBOURS = 8
FULL_NEIGHBOURS = 12
"""Who has so many is not given to others who look for some, if these find a few elsewhere."""
FEW_NEIGHBOURS = 4
MOST_NEIGHBOURS = 24
"""Of one that can be dialled, where many others cannot."""
URGENT_PATIENCE_S = 1.5
"""How long a chunk that a unit waits for may take through others."""
LEAST_WAIT_S = 0.1
"""Who has just asked is taken to have waited so long."""
STALLED_S = 3.0
"""How long a member may get nothing while others have what it wants."""


@dataclass(frozen=True, slots=True)
class Swarm:
    name: PlanName = "swarm"
    sentence: str = (
        "everybody passes on what it has, the rarest first; the host sends it about once"
    )
    order: Order = "rarest"

    # -- who with whom ------------------------------------------------------------------------

    def arrange(
        self,
        nodes: Sequence[Node],
        feasible: Callable[[Node, Node], bool],
        before: Mapping[Node, Links],
    ) -> dict[Node, Links]:
        """Pairs that exist stay; whoever has few gets the least loaded others."""
        here = set(nodes)
        give = feasible
        feasible = lambda one, other: give(one, other) or give(other, one)  # noqa: E731
        joined: dict[Node, set[Node]] = {
            node: {
                other
                for other in (before[node].neighbours if node in before else ())
                if other in here and feasible(node, other)
            }
            for node in nodes
        }
        for node in nodes:
            for other in tuple(joined[node]):
                joined[other].add(node)
        for place, node in enumerate(nodes):
            if len(joined[node]) < NEIGHBOURS:
                # From its own place on round the list: neighbours differ from node to node.
                others = (*nodes[place + 1 :], *nodes[:place])
                self._fill(node, others, joined, feasible)
        self._bridge(nodes, joined, feasible)
        return {node: Links(neighbours=tuple(sorted(joined[node]))) for node in nodes}

    def _fill(
        self,
        node: Node,
        others: Sequence[Node],
        joined: dict[Node, set[Node]],
        feasible: Callable[[Node, Node], bool],
    ) -> None:
        for wanted, most in ((NEIGHBOURS, FULL_NEIGHBOURS), (FEW_NEIGHBOURS, MOST_NEIGHBOURS)):
            missing = wanted - len(joined[node])
            if missing <= 0:
                return
            able = [
                other
                for other in others
                if other not in joined[node] and len(joined[other]) < most and feasible(node, other)
            ]
            for other in _apart(able, missing):
                joined[node].add(other)
                joined[other].add(node)

    def _bridge(
        self,
        nodes: Sequence[Node],
        joined: dict[Node, set[Node]],
        feasible: Callable[[Node, Node], bool],
    ) -> None:
        """Groups with nothing between them: each would be given everything by the host."""
        whole: list[list[Node]] = []
        for group in _groups(nodes, joined):
            for other in whole:
                pairs = (
                    (len(joined[a]) + len(joined[b]), a, b)
                    for a in group
                    for b in other
                    if max(len(joined[a]), len(joined[b])) < MOST_NEIGHBOURS and feasible(a, b)
                )
                least = min(pairs, default=None)
                if least is not None:
                    _, a, b = least
                    joined[a].add(b)
                    joined[b].add(a)
                    other += group
                    break
            else:
                whole.append(group)

    def join(
        self, node: Node, holders: Iterable[Node], links: Mapping[Node, Links]
    ) -> dict[Node, Links]:
        """The links of two that change, so that `node` can ask one who has what it needs."""
        able = [n for n in holders if n in links and len(links[n].neighbours) < MOST_NEIGHBOURS]
        mine = links[node].neighbours
        if not able or len(mine) >= MOST_NEIGHBOURS or set(able) & set(mine):
            return {}
        other = min(able, key=lambda n: (len(links[n].neighbours), n))
        return {
            a: replace(links[a], neighbours=tuple(sorted({*links[a].neighbours, b})))
            for a, b in ((node, other), (other, node))
        }

    # -- the host -----------------------------------------------------------------------------

    def feed(self, world: World, now: float) -> tuple[Fed | None, str]:
        ready = [guest for guest in world.guests.values() if guest.fed < guest.until]
        near = _Near(world)
        for guest in sorted(ready, key=lambda guest: guest.fed_at):
            chunk, why = self._urgent(guest, near, now)
            if chunk is not None:
                return Fed(guest.node, chunk), why
        new = [
            (guest, fresh)
            for guest in ready
            if (fresh := guest.wants & ~guest.holds & ~near.of(guest.node)).any()
        ]
        if new:
            unspread = _unspread(world)
            guest, fresh = min(new, key=lambda n: (unspread[n[0].node], n[0].fed_at, n[0].node))
            return Fed(guest.node, _rarest(fresh, world)), "nobody it is joined with has it"
        for guest in sorted(ready, key=lambda guest: guest.fed_at):
            lacks = guest.wants & ~guest.holds
            if now - guest.moved_at >= STALLED_S and lacks.any():
                return Fed(guest.node, _rarest(lacks, world)), "it gets nothing from the others"
        return None, "every chunk is out: the members pass them on"

    def _urgent(self, guest: Guest, near: _Near, now: float) -> tuple[int | None, str]:
        world = near.world
        for chunk in sorted(guest.urgent):
            if chunk >= len(guest.holds) or guest.holds[chunk]:
                continue
            holders = [
                node
                for node in near.around(guest.node)
                if world.trusted(node) and world.guests[node].holds[chunk]
            ]
            if not holders:
                return chunk, "a unit waits for it and no neighbour has it"
            if now - guest.moved_at >= URGENT_PATIENCE_S:
                return chunk, "a unit waits for it, too long by now"
        return None, ""

    # -- a member that serves -----------------------------------------------------------------

    def serve(self, queue: Queue, now: float) -> tuple[Asked | None, str]:
        if not queue.asks:
            return None, "nobody has asked"
        most = max(queue.given.values(), default=0.0) or 1.0

        def weight(ask: Asked) -> float:
            given = 1.0 + queue.given.get(ask.node, 0.0) / most
            rare = 1.0 + float(queue.copies[ask.chunk])
            return (LEAST_WAIT_S + now - ask.since) * given / rare

        chosen = max(queue.asks, key=lambda ask: (weight(ask), -ask.node))
        return chosen, "who has waited longest, given most, and asked for what is rare"


def _apart(able: Sequence[Node], wanted: int) -> list[Node]:
    """So many of them, evenly apart: a crowd stays joined, by few steps."""
    if wanted >= len(able):
        return list(able)
    return [able[place * len(able) // wanted] for place in range(wanted)]


def _rarest(among: Mask, world: World) -> int:
    numbers = np.flatnonzero(among)
    rank = np.asarray(world.copies)[numbers] + np.asarray(world.jitter)[numbers]
    return int(numbers[np.argmin(rank)])


def _unspread(world: World) -> dict[Node, int]:
    """How many chunks each has that nobody else has."""
    alone = np.asarray(world.copies) == 1
    return {node: int((guest.holds & alone).sum()) for node, guest in world.guests.items()}


def _groups(nodes: Iterable[Node], joined: Mapping[Node, set[Node]]) -> list[list[Node]]:
    """Who is joined with whom, also through others."""
    groups: list[list[Node]] = []
    seen: set[Node] = set()
    for node in nodes:
        if node not in seen:
            groups.append(group := [node])
            seen.add(node)
            for member in group:  # which grows
                new = joined[member] - seen
                seen |= new
                group += new
    return groups


class _Near:
    """What a member can get of others: of those it is joined with, through others where all pass on
    everything; of its neighbours alone where they hold only what they need. Only who is trusted
    passes anything on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._passed: dict[Node, Mask] | None = None

    def of(self, node: Node) -> Mask:
        guests = self.world.guests
        near = [n for n in self.around(node) if self.world.trusted(n)]
        if not near:
            return np.zeros_like(guests[node].holds)
        if not self.world.whole:
            return _union(guests[n].holds for n in near)
        if self._passed is None:
            self._passed = self._through()
        return _union({id(mask): mask for n in near for mask in (self._passed[n],)}.values())

    def around(self, node: Node) -> set[Node]:
        near = self.world.links[node].neighbours if node in self.world.links else ()
        return {n for n in near if n in self.world.guests}

    def _through(self) -> dict[Node, Mask]:
        """Of everybody who passes on: what it has, or gets from others who do."""
        able = {node for node in self.world.guests if self.world.trusted(node)}
        groups = _groups(able, {node: self.around(node) & able for node in able})
        masks = [(group, _union(self.world.guests[n].holds for n in group)) for group in groups]
        return {node: mask for group, mask in masks for node in group}


def _union(masks: Iterable[Mask]) -> Mask:
    found: Mask = np.logical_or.reduce(list(masks))
    return found
