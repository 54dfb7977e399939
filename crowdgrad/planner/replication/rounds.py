"""All plans in a world of rounds: in each, everybody sends one chunk, to one other.

The decisions are the real ones (`plans`, `fetching`, `crowd`); only links and time are simple: all
uplinks are alike, downlinks are no limit, and everybody knows what its neighbours held a round ago.
A round is the time one chunk takes, so a figure in rounds times chunk bytes by uplink is seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from crowdgrad.planner.replication.crowd import Crowd, Place
from crowdgrad.planner.replication.fetching import Fetching
from crowdgrad.planner.replication.masks import Mask, mask_of, numbers_of, to_bytes
from crowdgrad.planner.replication.plans import HOST, Asked, Fed, Node, Plan, Queue

FEED_AHEAD = 2
ROUND_S = 0.1
"""What a round is to decisions that know patience: 256 KiB at 20 Mbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One transfer."""

    round: int
    sender: Node
    receiver: Node
    chunk: int


@dataclass(slots=True)
class _Node:
    fetching: Fetching
    wants: Mask
    queue: list[Asked] = field(default_factory=list)
    served: dict[Node, int] = field(default_factory=dict)
    given: dict[Node, float] = field(default_factory=dict)


class Rounds:
    """`needs`: which chunks each is to have. `dialled`: who can be dialled; by default everybody.
    Between two rounds members may be killed and others join."""

    def __init__(
        self,
        plan: Plan,
        *,
        chunks: int,
        needs: Mapping[Node, Iterable[int]],
        seed: int = 0,
        dialled: Callable[[Node], bool] = lambda node: True,
    ) -> None:
        self._plan = plan
        self._dialled = dialled
        self._dice = np.random.default_rng(seed)
        self._chunks = chunks
        self.needs = {node: mask_of(chunks_of, chunks) for node, chunks_of in needs.items()}
        whole = all(mask.all() for mask in self.needs.values())
        self._crowd = Crowd(plan, self._dice.random(chunks), whole=whole)
        self._nodes: dict[Node, _Node] = {}
        self.sent: list[Sent] = []
        self.round = 0
        for node in sorted(self.needs):
            self._enter(node)
        self._arrange()

    def _enter(self, node: Node) -> None:
        dialled = self._dialled(node)
        self._crowd.enter(node, Place(dialled=dialled, listens=dialled), self._now)
        self._crowd.need(node, to_bytes(self.needs[node]))
        jitter = self._dice.random(self._chunks)
        self._nodes[node] = _Node(Fetching(jitter, order=self._plan.order), self.needs[node])
        self._crowd.want(node, self._now, until=FEED_AHEAD, wants=to_bytes(self.needs[node]))

    def _arrange(self) -> None:
        self._crowd.arrange()
        for number, links in self._crowd.links.items():
            mine, near = self._nodes[number], set(links.neighbours)
            guest = self._crowd.members[number]
            carried = guest.carries
            mine.fetching.wanted = mine.wants if carried is None else mine.wants | carried
            wants = to_bytes(mine.fetching.wanted)
            self._crowd.want(number, self._now, until=guest.until, wants=wants)
            for other, chunk in mine.fetching.turn_to(links.source):
                self._unask(other, number, chunk)
            for other in set(mine.fetching.neighbours) - near:
                mine.fetching.part(other)
            mine.queue = [ask for ask in mine.queue if ask.node in near]
            for other in sorted(near - set(mine.fetching.neighbours)):
                mine.fetching.meet(other)
                mine.fetching.hear(other, whole=to_bytes(self._nodes[other].fetching.held))

    @property
    def _now(self) -> float:
        return self.round * ROUND_S

    @property
    def done(self) -> bool:
        return all(not (node.wants & ~node.fetching.held).any() for node in self._nodes.values())

    def held(self, node: Node) -> Mask:
        return self._nodes[node].fetching.held

    def kill(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            del self._nodes[node]
            self._crowd.leave(node)
            for other in self._nodes.values():
                other.fetching.part(node)
        self._arrange()

    def join(self, node: Node, needs: Iterable[int]) -> None:
        self.needs[node] = mask_of(needs, self._chunks)
        self._enter(node)
        self._arrange()

    def go(self) -> int:
        """One round; how many chunks were sent."""
        now = self._now
        for number, node in self._nodes.items():
            for ask in node.fetching.decide(now):
                self._nodes[ask.node].queue.append(Asked(number, ask.chunk, now))
        transfers = [Sent(round=self.round, sender=HOST, receiver=f.node, chunk=f.chunk)
                     for f in self._host(now)]  # fmt: skip
        for number, node in self._nodes.items():
            chosen = self._serve(number, node, now)
            if chosen is not None:
                transfers.append(
                    Sent(round=self.round, sender=number, receiver=chosen.node, chunk=chosen.chunk)
                )
        for sent in transfers:
            self._deliver(sent)
        self.sent += transfers
        self.round += 1
        return len(transfers)

    def _host(self, now: float) -> list[Fed]:
        fed, _ = self._crowd.next(now)
        if fed is None:
            return []
        self._crowd.fed(fed, now)
        return [fed]

    def _serve(self, number: Node, node: _Node, now: float) -> Asked | None:
        links = self._crowd.links
        chosen, _ = self._plan.serve(
            Queue(
                asks=node.queue,
                order=links[number].order,
                given=node.given,
                served=node.served,
                complete=node.fetching.complete,
                copies=node.fetching.copies,
            ),
            now,
        )
        if chosen is not None:
            node.queue.remove(chosen)
            node.served[chosen.node] = node.served.get(chosen.node, 0) + 1
        return chosen

    def _deliver(self, sent: Sent) -> None:
        node = self._nodes[sent.receiver]
        if sent.sender == HOST:
            guest = self._crowd.members[sent.receiver]
            self._crowd.want(sent.receiver, self._now, until=guest.fed + FEED_AHEAD)
        else:
            node.given[sent.sender] = node.given.get(sent.sender, 0.0) + 1.0
        for other in node.fetching.came(sent.sender, sent.chunk).unget:
            node.fetching.ungot(other, sent.chunk)
            self._unask(other, sent.receiver, sent.chunk)
        self._crowd.hold(sent.receiver, self._now, chunks=(sent.chunk,))
        for other in self._crowd.links[sent.receiver].neighbours:
            if other in self._nodes and sent.receiver in self._nodes[other].fetching.neighbours:
                self._nodes[other].fetching.hear(sent.receiver, chunks=(sent.chunk,))

    def _unask(self, of: Node, node: Node, chunk: int) -> None:
        queue = self._nodes[of].queue
        queue[:] = [ask for ask in queue if (ask.node, ask.chunk) != (node, chunk)]

    def finish(self, most: int) -> int:
        """Rounds until everybody has what it needs, at most so many. Raises ValueError."""
        while not self.done:
            if self.round >= most:
                missing = {
                    number: len(numbers_of(node.wants & ~node.fetching.held))
                    for number, node in self._nodes.items()
                }
                raise ValueError(f"after {most} rounds there is missing: {missing}")
            self.go()
        return self.round


def bound(receivers: int, chunks: int) -> int:
    """The fewest rounds there can be: the last chunk leaves the host in round M, and then
    doubles."""
    return chunks + int(math.log2(receivers))


def whole_tree(receivers: int, chunks: int) -> int:
    """Rounds that the paper's tree takes with whole copies: one copy a step."""
    return receivers.bit_length() * chunks


def pipelined_tree(receivers: int, chunks: int) -> int:
    """The same for any number of receivers. The host sends every chunk to each of its
    ⌈log2(N+1)⌉ children, so it cannot be less; nor is it more, as each chunk has reached all by the
    time the host has sent it to its last child. Chunk by chunk members have something earlier, and
    everything as late."""
    return receivers.bit_length() * chunks


def one_to_all(receivers: int, chunks: int) -> int:
    return receivers * chunks
