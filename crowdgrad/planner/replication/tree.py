"""The paper's replication tree: in step s every node i that has the data sends it to i + 2^s.

    step 0: 0→1      step 1: 0→2, 1→3      step 2: 0→4, 1→5, 2→6, 3→7      …

So all know from the roster alone who sends to whom (crowdsource platform, Trinity College Dublin,
2018, figures 13 and 14). Whole copies take ⌈log2(N+1)⌉ steps of one copy each; cut into chunks and
pipelined, the host still sends one copy to each of its ⌈log2(N+1)⌉ children, and that is the limit.
Whoever comes or goes moves the others up; what a node has it keeps. Two that cannot reach each
other leave the lower one to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

import numpy as np

from crowdgrad.domain.spreading import PlanName
from crowdgrad.planner.replication.masks import Mask
from crowdgrad.planner.replication.plans import (
    HOST,
    Asked,
    Fed,
    Guest,
    Links,
    Node,
    Order,
    Queue,
    World,
)

STALLED_S = 10.0
"""A member whose source has what it lacks and does not send it is fed by the host after so long."""


def parent(index: int) -> int:
    """Who sends to the node at this place of the list, from 1 on."""
    return index - (1 << index.bit_length() - 1)


def children(index: int, nodes: int) -> tuple[int, ...]:
    """To whom it sends, step by step. `nodes`: how many there are, the host included."""
    steps = count(index.bit_length())
    return tuple(takewhile(lambda child: child < nodes, (index + (1 << step) for step in steps)))


def step_of(index: int) -> int:
    """In which step it is sent to."""
    return index.bit_length() - 1


def steps(nodes: int) -> int:
    """How many it takes until all have it, the host included."""
    return (nodes - 1).bit_length()


def below(index: int, nodes: int) -> tuple[int, ...]:
    """All whose data comes through it, itself not among them."""
    found: list[int] = []
    for child in children(index, nodes):
        found += [child, *below(child, nodes)]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Tree:
    pipelined: bool = False
    order: Order = "first"

    @property
    def name(self) -> PlanName:
        return "pipelined" if self.pipelined else "tree"

    @property
    def sentence(self) -> str:
        if self.pipelined:
            return (
                "the paper's tree, chunk by chunk: a node passes on what it has before it has all"
            )
        return "the paper's tree: a node that has everything sends it to one after the other"

    def arrange(
        self,
        nodes: Sequence[Node],
        feasible: Callable[[Node, Node], bool],
        before: Mapping[Node, Links],
    ) -> dict[Node, Links]:
        listed = (HOST, *nodes)
        source: dict[Node, Node] = {}
        for index, node in enumerate(nodes, 1):
            above = listed[parent(index)]
            source[node] = above if above == HOST or feasible(above, node) else HOST
        found: dict[Node, Links] = {}
        for index in range(len(nodes), 0, -1):  # from the leaves up
            node = listed[index]
            ours = (listed[child] for child in children(index, len(listed)))
            to = tuple(child for child in ours if source[child] == node)
            up = () if source[node] == HOST else (source[node],)
            found[node] = Links(
                neighbours=(*up, *to),
                source=source[node],
                order=to,
                below=tuple(n for child in to for n in (child, *found[child].below)),
            )
        return {node: found[node] for node in nodes}

    def feed(self, world: World, now: float) -> tuple[Fed | None, str]:
        ours = [node for node, links in world.links.items() if links.source == HOST]
        waiting = [guest for node in ours if (guest := world.guests.get(node)) is not None]
        if not self.pipelined:  # a copy after the other
            lacking = (g for g in waiting if _lacks(g).any() and not _refuses(g, now))
            waiting = [first] if (first := next(lacking, None)) is not None else []
        ready = [guest for guest in waiting if guest.fed < guest.until and _lacks(guest).any()]
        if ready:
            guest = min(ready, key=lambda guest: guest.fed)
            return Fed(guest.node, int(np.argmax(_lacks(guest)))), "the next chunk of its copy"
        for guest in world.guests.values():
            if guest.fed < guest.until and (left := self._left(guest, world, now)).any():
                return Fed(guest.node, int(np.argmax(left))), "its source does not send it"
        return None, "nobody whom the host serves has room, or lacks anything"

    def _left(self, guest: Guest, world: World, now: float) -> Mask:
        """What its source could have sent by now, or never will."""
        links, lacks = world.links.get(guest.node), _lacks(guest)
        above = world.guests.get(links.source) if links and links.source is not None else None
        if above is None or now - guest.moved_at < STALLED_S:
            return np.zeros_like(lacks)
        if _refuses(above, now):
            return lacks
        coming = _lacks(above)
        if coming.any() and not self.pipelined:  # whole copies wait until they are whole
            return lacks & ~above.holds & ~coming
        return lacks & ~coming

    def serve(self, queue: Queue, now: float) -> tuple[Asked | None, str]:
        if not self.pipelined and not queue.complete:
            return None, "whole copies are passed on when they are whole"
        rank = {node: place for place, node in enumerate(queue.order)}
        asks = [ask for ask in queue.asks if ask.node in rank]
        if not asks:
            return None, "nobody below has asked"
        if self.pipelined:
            key = lambda ask: (queue.served.get(ask.node, 0), rank[ask.node], ask.chunk)  # noqa: E731
            return min(asks, key=key), "who has had least, in the order of the tree"
        return min(asks, key=lambda ask: (rank[ask.node], ask.chunk)), "in the order of the tree"


def _lacks(guest: Guest) -> Mask:
    wants = guest.wants if guest.carries is None else guest.wants | guest.carries
    found: Mask = wants & ~guest.holds
    return found


def _refuses(guest: Guest, now: float) -> bool:
    """It takes nothing: the next one is not to wait for it for ever."""
    return guest.fed >= guest.until and now - max(guest.fed_at, guest.moved_at) >= STALLED_S
