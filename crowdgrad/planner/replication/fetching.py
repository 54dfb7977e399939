"""What a member asks its neighbours for.

It knows what each of them holds. Of what it wants it asks for what a unit waits for first, then for
the rarest among its neighbours (in a tree: in order). A neighbour has one ask of ours that it has
not begun to answer, or a few where there are few neighbours: what is asked for early is chosen
badly.

Towards the end everything is asked for, and some neighbours have nothing to do (end-game): then
what has been asked for longest and not begun is asked for once more elsewhere, and whoever comes
second is told not to send it. Who sends wrong bytes three times is not asked any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from crowdgrad.planner.replication.masks import (
    Counts,
    Mask,
    Numbers,
    count,
    empty,
    grown,
    heard,
    mask_of,
)
from crowdgrad.planner.replication.plans import HOST, Node, Order

ASKS_ALONE = 4
"""Asks not begun at a neighbour that is the only one."""
MOST_BAD = 3
SLOW_S = 0.5
"""Towards the end, an ask that was not begun for so long may be made elsewhere, too."""
STUCK_S = 5.0
"""… and before that, when whoever was asked had time for many others."""
DEAD_S = 20.0
"""… and one that is under way for so long."""
MOST_ASKS = 64
"""Chunks under way at once, from all together: so many lie in memory at most."""
MOST_TWICE = 2
"""Neighbours that are asked for the same chunk at once."""


class Ask(NamedTuple):
    node: Node
    chunk: int
    reason: str


class Arrival(NamedTuple):
    """What a chunk that has come means."""

    new: bool
    unget: tuple[Node, ...]
    """Who need not send it any more."""


@dataclass(slots=True)
class _Neighbour:
    holds: Mask
    said: Mask
    asked: dict[int, float] = field(default_factory=dict)
    """Chunks asked for and not begun, since when."""
    under_way: dict[int, float] = field(default_factory=dict)


class Fetching:
    def __init__(self, jitter: Numbers, *, order: Order = "rarest") -> None:
        """`jitter`: a number from 0 to 1 for each chunk, another one for each member."""
        self._jitter = jitter
        self._order = order
        self.held = empty(len(self._jitter))
        self.wanted = empty(len(self._jitter))
        self.urgent: frozenset[int] = frozenset()
        self.source: Node | None = None
        """Whom alone to ask; None: anybody."""
        self._asked = np.zeros(len(self._jitter), np.int32)
        """How many neighbours were asked for each, and have not sent it yet."""
        self.copies: Counts = np.zeros(len(self._jitter), np.int64)
        """Of each chunk: how many neighbours hold it."""
        self._neighbours: dict[Node, _Neighbour] = {}
        self._bad: Counter[Node] = Counter()
        """How often each has sent wrong bytes; who comes back is still who it was."""

    # -- what is known --------------------------------------------------------------------------

    @property
    def chunks(self) -> int:
        return len(self._jitter)

    @property
    def complete(self) -> bool:
        return not (self.wanted & ~self.held).any()

    @property
    def lacking(self) -> Mask:
        found: Mask = self.wanted & ~self.held
        return found

    @property
    def neighbours(self) -> tuple[Node, ...]:
        return tuple(self._neighbours)

    def held_by(self, node: Node) -> Mask:
        return self._neighbours[node].holds

    def asked_of(self, node: Node) -> tuple[int, ...]:
        """What it was asked for, begun or not."""
        neighbour = self._neighbours[node]
        return (*neighbour.asked, *neighbour.under_way)

    def grow(self, jitter: Numbers) -> None:
        size = len(jitter)
        self._jitter = jitter
        self.held, self.wanted = grown(self.held, size), grown(self.wanted, size)
        self._asked = np.concatenate([self._asked, np.zeros(size - len(self._asked), np.int32)])
        for neighbour in self._neighbours.values():
            neighbour.holds = grown(neighbour.said, size)[:size]
        self._count()

    def hold(self, chunks: Iterable[int]) -> None:
        self.held |= mask_of(chunks, self.chunks)

    def lose(self, chunks: Iterable[int]) -> None:
        self.held &= ~mask_of(chunks, self.chunks)

    def meet(self, node: Node) -> None:
        """Also again, over another connection: what it was asked for on the last one is gone."""
        self.part(node)
        self._neighbours[node] = _Neighbour(empty(self.chunks), empty(self.chunks))

    def part(self, node: Node) -> None:
        """It has gone: what it was asked for is asked of others."""
        neighbour = self._neighbours.pop(node, None)
        if neighbour is not None:
            for chunk in (*neighbour.asked, *neighbour.under_way):
                self._asked[chunk] -= 1
            self.copies = self.copies - neighbour.holds

    def turn_to(self, source: Node | None) -> list[tuple[Node, int]]:
        """Whom alone to ask from now on; which asks of others, not begun, are withdrawn."""
        self.source = source
        if source is None:
            return []
        others = [(node, n) for node, n in self._neighbours.items() if node != source]
        withdrawn = [(node, chunk) for node, other in others for chunk in other.asked]
        for node, chunk in withdrawn:
            self._forget(node, chunk)
        return withdrawn

    def hear(
        self,
        node: Node,
        *,
        chunks: Iterable[int] = (),
        lost: Iterable[int] = (),
        whole: bytes | None = None,
    ) -> None:
        """What it holds: all of it, or what has changed. Who is no neighbour is not heard."""
        neighbour = self._neighbours.get(node)
        if neighbour is None:
            return
        neighbour.said = heard(neighbour.said, chunks, lost, whole, known=self.chunks)
        before, neighbour.holds = neighbour.holds, grown(neighbour.said, self.chunks)[: self.chunks]
        self.copies = self.copies + neighbour.holds - before

    # -- what becomes of asks -------------------------------------------------------------------

    def began(self, node: Node, chunk: int, now: float) -> bool:
        """Its first bytes are here; False: it was not asked for."""
        neighbour = self._neighbours.get(node)
        if neighbour is None or neighbour.asked.pop(chunk, None) is None:
            return False
        neighbour.under_way[chunk] = now
        return True

    def coming(self, node: Node, chunk: int, now: float) -> None:
        """It sends this of its own accord: nobody else needs to be asked for it."""
        neighbour = self._neighbours.get(node)
        if neighbour is None or chunk >= self.chunks or self.began(node, chunk, now):
            return
        if chunk not in neighbour.under_way:
            neighbour.under_way[chunk] = now
            self._asked[chunk] += 1

    def came(self, node: Node, chunk: int) -> Arrival:
        """It is here and sound, from a neighbour or the host."""
        self._forget(node, chunk)
        if not chunk < self.chunks:
            return Arrival(False, ())
        new = not self.held[chunk]
        self.held[chunk] = True
        others = tuple(n for n, other in self._neighbours.items() if chunk in other.asked)
        return Arrival(new, others)

    def ungot(self, node: Node, chunk: int) -> None:
        """We have told it not to send it."""
        self._forget(node, chunk)

    def lacks(self, node: Node, chunk: int) -> None:
        """It cannot send what it said it holds."""
        self._forget(node, chunk)
        self.hear(node, lost=(chunk,))

    def was_bad(self, node: Node, chunk: int) -> bool:
        """Its bytes were wrong; whether it is not asked any more."""
        self._forget(node, chunk)
        self._bad[node] += 1
        self.hear(node, lost=(chunk,))
        return self._bad[node] >= MOST_BAD

    def _forget(self, node: Node, chunk: int) -> None:
        neighbour = self._neighbours.get(node)
        if neighbour is None:
            return
        asked = neighbour.asked.pop(chunk, None)
        under_way = neighbour.under_way.pop(chunk, None)
        if asked is not None or under_way is not None:
            self._asked[chunk] -= 1

    # -- the decision ---------------------------------------------------------------------------

    def decide(self, now: float) -> list[Ask]:
        """What to ask whom for now; it counts as asked from here on."""
        lacking = self.lacking
        if not lacking.any():
            return []
        asks: list[Ask] = []
        free = [node for node in self._able() if self._room(node)]
        waiting = lacking & (self._asked == 0)
        room = MOST_ASKS - int(self._asked.sum())
        while free and room > len(asks) and waiting.any():
            # One each, whoever has least under way first: no neighbour takes all there is.
            left = []
            for node in sorted(free, key=lambda n: len(self._neighbours[n].under_way)):
                found = self._neighbours[node].holds & waiting
                if len(asks) < room and found.any():
                    chunk, why = self._best(found)
                    waiting[chunk] = False
                    asks.append(self._note(node, chunk, why, now))
                    if self._room(node):
                        left.append(node)
            free = left
        return asks or self._once_more(lacking, now)

    def _able(self) -> list[Node]:
        able = self._neighbours if self.source is None else {self.source} & set(self._neighbours)
        return [node for node in able if node != HOST and self._bad[node] < MOST_BAD]

    def _room(self, node: Node) -> int:
        most = max(1, ASKS_ALONE // max(1, len(self._able())))
        return max(0, most - len(self._neighbours[node].asked))

    def _best(self, among: Mask) -> tuple[int, str]:
        urgent = [chunk for chunk in self.urgent if chunk < len(among) and among[chunk]]
        if urgent:
            return min(urgent), "a unit waits for it"
        if self._order == "first":
            return int(np.argmax(among)), "the next one"
        numbers = np.flatnonzero(among)
        rank = self.copies[numbers] + self._jitter[numbers]
        return int(numbers[np.argmin(rank)]), "the rarest it has"

    def _once_more(self, lacking: Mask, now: float) -> list[Ask]:
        """The end-game: idle neighbours are asked for what others are slow with."""
        end_game = not (lacking & (self._asked == 0)).any()
        late = self._late(lacking, now, SLOW_S if end_game else STUCK_S)
        asks = []
        for node in self._able() if late else ():
            neighbour = self._neighbours[node]
            if neighbour.asked or neighbour.under_way:
                continue
            chunk = next((n for n in late if neighbour.holds[n]), None)
            if chunk is not None:
                late.remove(chunk)
                asks.append(self._note(node, chunk, "another is slow with it", now))
        return asks

    def _late(self, lacking: Mask, now: float, slow_s: float) -> list[int]:
        """Chunks asked for that do not come, the longest first."""
        since: dict[int, float] = {}
        for neighbour in self._neighbours.values():
            since.update((n, at) for n, at in neighbour.asked.items() if now - at >= slow_s)
            since.update((n, at) for n, at in neighbour.under_way.items() if now - at >= DEAD_S)
        late = [c for c in since if lacking[c] and self._asked[c] < MOST_TWICE]
        return sorted(late, key=lambda chunk: since[chunk])

    def _note(self, node: Node, chunk: int, why: str, now: float) -> Ask:
        self._neighbours[node].asked[chunk] = now
        self._asked[chunk] += 1
        return Ask(node, chunk, why)

    def _count(self) -> None:
        self.copies = count((n.holds for n in self._neighbours.values()), self.chunks)
