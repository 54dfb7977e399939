"""What a host knows of the members its data spreads among, and what follows for each.

Members say what they hold, want and have room for; they say what came from whom, and whose bytes
were wrong. One that two others accuse is not sent to anybody any more, and what it says it holds
does not count; whoever accused it is not joined with it again. All of it is memory of this life of
the host: members say it again when they come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from crowdgrad.domain.spreading import Flow
from crowdgrad.planner.replication.masks import (
    Counts,
    Mask,
    Numbers,
    count,
    empty,
    from_bytes,
    grown,
    heard,
    mask_of,
)
from crowdgrad.planner.replication.plans import Fed, Guest, Links, Node, Plan, World
from crowdgrad.planner.replication.swarm import Swarm

ACCUSERS = 2
"""Members whose word it takes until somebody is believed by nobody."""
MOST_FLOWS = 4096
"""Pairs whose traffic is remembered; of more the busiest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a member is, as far as that matters for who can dial whom."""

    dialled: bool = False
    """Whether others reach it where the host sees it."""
    listens: bool = False
    network: str = ""
    """Members with the same one may reach each other by addresses of their own."""
    gives: bool = True


@dataclass(slots=True, kw_only=True)
class _Member:
    guest: Guest
    place: Place
    bad: int = 0
    wasted: int = 0
    received: int = 0
    said: Mask = field(default_factory=lambda: empty(0))
    """What it says it holds, also of chunks that we do not know of yet."""
    needs: Mask | None = None
    """What it is to hold for itself; None: what it wants."""


class Crowd:
    def __init__(self, plan: Plan, jitter: Numbers, *, whole: bool) -> None:
        """`jitter`: a number from 0 to 1 for each chunk. `whole`: everybody is to hold
        everything."""
        self.plan = plan
        self.whole = whole
        self._jitter = jitter
        self._members: dict[Node, _Member] = {}
        self._copies = np.zeros(len(jitter), np.int64)
        self._joined: set[tuple[Node, Node]] = set()
        """Pairs that were ever neighbours, sender and receiver: nobody else accuses anybody."""
        self._accused: dict[Node, set[Node]] = {}
        self.links: dict[Node, Links] = {}
        self.flows: Counter[tuple[Node, Node]] = Counter()
        """Bytes by sender and receiver."""
        self.given: Counter[int] = Counter()
        """How often the host has sent each chunk."""

    # -- what members say -----------------------------------------------------------------------

    @property
    def chunks(self) -> int:
        return len(self._jitter)

    @property
    def members(self) -> dict[Node, Guest]:
        return {node: member.guest for node, member in self._members.items()}

    def grow(self, jitter: Numbers) -> None:
        """There are more chunks now."""
        self._jitter = jitter
        for member in self._members.values():
            guest = member.guest
            guest.wants = grown(guest.wants, self.chunks) | mask_of(guest.urgent, self.chunks)
            guest.holds = grown(member.said, self.chunks)[: self.chunks]
            if guest.carries is not None:
                guest.carries = grown(guest.carries, self.chunks)
        self._count()

    def enter(self, node: Node, place: Place, now: float) -> None:
        """It takes part from now on, or says something else of itself."""
        member = self._members.get(node)
        if member is not None:
            member.place = place
        else:
            guest = Guest(
                node=node, holds=empty(self.chunks), wants=empty(self.chunks), moved_at=now
            )
            self._members[node] = _Member(guest=guest, place=place)
        self._count()

    def leave(self, node: Node) -> None:
        if self._members.pop(node, None) is not None:
            self.links.pop(node, None)
            self._count()

    def hold(
        self,
        node: Node,
        now: float,
        *,
        chunks: Iterable[int] = (),
        lost: Iterable[int] = (),
        whole: bytes | None = None,
    ) -> None:
        member = self._members[node]
        member.said = heard(member.said, chunks, lost, whole, known=self.chunks)
        before, guest = member.guest.holds, member.guest
        guest.holds = grown(member.said, self.chunks)[: self.chunks].copy()
        if (guest.holds & ~before).any():
            guest.moved_at = now
        if self.trusted(node):
            self._copies = self._copies + guest.holds - before

    def need(self, node: Node, needs: bytes) -> None:
        """What it is to hold for itself, where the host knows. In a tree it wants what passes
        through it, too, and says so: that would otherwise pass through those above it for ever."""
        self._members[node].needs = from_bytes(needs, 0)

    def want(
        self,
        node: Node,
        now: float,
        *,
        until: int,
        wants: bytes | None = None,
        urgent: Iterable[int] = (),
    ) -> None:
        guest = self._members[node].guest
        waits_for = frozenset(urgent)
        if wants is not None:
            guest.wants = from_bytes(wants, self.chunks)[: self.chunks]
        if wants is not None or waits_for - guest.urgent:
            guest.moved_at = now
        guest.urgent, guest.until = waits_for, until
        guest.wants = guest.wants | mask_of(waits_for, self.chunks)

    def flow(self, node: Node, flows: Iterable[Flow]) -> list[Node]:
        """What came from whom; those whose bytes were wrong, by its word."""
        member, accused = self._members[node], []
        for flow in flows:
            self.flows[flow.position, node] += flow.received
            member.received += flow.received
            member.wasted += flow.wasted
            if flow.bad and (flow.position, node) in self._joined:
                member.bad += flow.bad
                self._accused.setdefault(flow.position, set()).add(node)
                accused.append(flow.position)
        if len(self.flows) > 2 * MOST_FLOWS:
            self.flows = Counter(dict(self.flows.most_common(MOST_FLOWS)))
        if accused:
            self._count()
        return accused

    # -- what follows ---------------------------------------------------------------------------

    def trusted(self, node: Node) -> bool:
        """Whether what it says it holds counts: it gives, and few have had wrong bytes of it."""
        member = self._members.get(node)
        return (
            member is not None
            and member.place.gives
            and len(self._accused.get(node, ())) < ACCUSERS
        )

    def accusers(self, node: Node) -> int:
        return len(self._accused.get(node, ()))

    def feasible(self, one: Node, other: Node) -> bool:
        """Whether one of the two can dial the other, and neither has had wrong bytes of it."""
        if other in self._accused.get(one, ()) or one in self._accused.get(other, ()):
            return False
        if not (self.trusted(one) or self.trusted(other)):
            return False
        if max(self.accusers(one), self.accusers(other)) >= ACCUSERS:
            return False
        return self.can_dial(one, other) or self.can_dial(other, one)

    def passes(self, giver: Node, taker: Node) -> bool:
        """Whether the first can send to the second."""
        return self.trusted(giver) and self.feasible(giver, taker)

    def can_dial(self, one: Node, other: Node) -> bool:
        """Whether the first can dial the second."""
        a, b = self._members[one].place, self._members[other].place
        return b.dialled or (b.listens and a.network == b.network != "")

    def arrange(self) -> list[Node]:
        """Who exchanges with whom from now on; whose links have changed."""
        links = self.plan.arrange(sorted(self._members), self.passes, self.links)
        changed = [node for node in links if links[node] != self.links.get(node)]
        self.links = links
        self._note_joined(links)
        for node, mine in links.items():
            below = [self._needs(n) for n in mine.below if n in self._members]
            self._members[node].guest.carries = np.logical_or.reduce(below) if below else None
        return changed

    def _note_joined(self, links: Mapping[Node, Links]) -> None:
        """Only who was ever sent to somebody can have had wrong bytes of it."""
        for node, mine in links.items():
            self._joined.update((other, node) for other in mine.neighbours)

    def bring_together(self, node: Node) -> list[Node]:
        """Join it with one who has what a unit of its waits for; whose links have changed."""
        guest = self._members[node].guest
        if not isinstance(self.plan, Swarm) or node not in self.links:
            return []
        for chunk in sorted(guest.urgent):
            if chunk >= self.chunks or guest.holds[chunk]:
                continue
            holders = [
                other
                for other, member in self._members.items()
                if other != node
                and member.guest.holds[chunk]
                and self.trusted(other)
                and self.feasible(node, other)
            ]
            changed = self.plan.join(node, holders, self.links)
            if changed:
                self.links.update(changed)
                self._note_joined(changed)
                return list(changed)
        return []

    def next(self, now: float) -> tuple[Fed | None, str]:
        """What the host sends next."""
        return self.plan.feed(self._world(), now)

    def fed(self, fed: Fed, now: float) -> None:
        """The host sends it now: nobody else needs to be sent it."""
        guest = self._members[fed.node].guest
        guest.fed, guest.fed_at = guest.fed + 1, now
        guest.holds[fed.chunk] = True
        member = self._members[fed.node]
        member.said = grown(member.said, self.chunks).copy()
        member.said[fed.chunk] = True
        self._copies[fed.chunk] += self.trusted(fed.node)
        self.given[fed.chunk] += 1

    def not_fed(self, fed: Fed) -> None:
        """It did not come to that: it lacks the chunk still, and has room for it."""
        self.given[fed.chunk] -= 1
        member = self._members.get(fed.node)
        if member is not None:
            member.guest.fed = max(0, member.guest.fed - 1)
            self.hold(fed.node, member.guest.moved_at, lost=(fed.chunk,))

    def copies(self) -> Counts:
        """Of each chunk: how many members that give have it."""
        return self._copies

    def received(self, node: Node) -> tuple[int, int, int]:
        """Bytes that came, bytes that were of no use, chunks that were wrong; by its own word."""
        member = self._members[node]
        return member.received, member.wasted, member.bad

    def place(self, node: Node) -> Place:
        return self._members[node].place

    def _world(self) -> World:
        return World(
            guests=self.members,
            links=self.links,
            copies=self._copies,
            jitter=self._jitter,
            whole=self.whole,
            trusted=self.trusted,
        )

    def _needs(self, node: Node) -> Mask:
        member = self._members[node]
        wants = member.guest.wants
        return wants if member.needs is None else grown(member.needs, self.chunks)[: self.chunks]

    def _count(self) -> None:
        trusted = (m.guest.holds for node, m in self._members.items() if self.trusted(node))
        self._copies = count(trusted, self.chunks)
