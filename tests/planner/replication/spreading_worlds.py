"""Worlds of rounds for tests: who is there, who comes and goes, and what must hold of all of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from hypothesis import strategies as st

from crowdgrad.planner.replication.fetching import MOST_TWICE
from crowdgrad.planner.replication.masks import numbers_of
from crowdgrad.planner.replication.plans import HOST, Node, Plan
from crowdgrad.planner.replication.rounds import Rounds, one_to_all
from crowdgrad.planner.replication.swarm import Swarm
from crowdgrad.planner.replication.tree import parent
from crowdgrad.replication import PLANS as BY_NAME

PLANS: tuple[Plan, ...] = tuple(BY_NAME.values())
PATIENCE = 200
"""Rounds for what the plans wait for before a host helps out."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """After so many rounds these go, by their place among who is there, and so many come."""

    rounds: int
    going: tuple[int, ...] = ()
    coming: int = 0


@dataclass(frozen=True, kw_only=True)
class World:
    plan: Plan
    receivers: int
    chunks: int
    segments: bool
    """Everybody needs a part of its own, which overlaps its neighbours'; or else everything."""
    undialled: frozenset[Node] = frozenset()
    moments: tuple[Moment, ...] = ()
    seed: int = 0

    def needs(self, node: Node) -> range:
        if not self.segments:
            return range(self.chunks)
        at = (node - 1) % self.receivers
        stop = min(self.chunks, (at + 2) * self.chunks // self.receivers + 1)
        return range(at * self.chunks // self.receivers, stop)

    def feasible(self, one: Node, other: Node) -> bool:
        return one not in self.undialled or other not in self.undialled


@dataclass
class Life:
    """One world, lived to its end."""

    world: World
    rounds: Rounds
    present: list[Node]
    ever: list[Node] = field(default_factory=list)

    @property
    def host_copies(self) -> float:
        return sum(sent.sender == HOST for sent in self.rounds.sent) / self.world.chunks


def live(world: World) -> Life:
    present = list(range(1, world.receivers + 1))
    rounds = Rounds(
        world.plan,
        chunks=world.chunks,
        needs={node: world.needs(node) for node in present},
        seed=world.seed,
        dialled=lambda node: node not in world.undialled,
    )
    ever = list(present)
    for moment in world.moments:
        for _ in range(moment.rounds):
            rounds.go()
        going = {present[place % len(present)] for place in moment.going if present}
        rounds.kill(sorted(going))
        present = [node for node in present if node not in going]
        for _ in range(moment.coming):
            ever.append(len(ever) + 1)
            present.append(ever[-1])
            rounds.join(ever[-1], world.needs(ever[-1]))
    rounds.finish(rounds.round + one_to_all(len(ever), world.chunks) + PATIENCE)
    return Life(world, rounds, present, ever)


def check(life: Life) -> None:
    """What holds in every plan, whoever comes and goes."""
    world, rounds = life.world, life.rounds
    for node in life.present:
        assert set(world.needs(node)) <= set(numbers_of(rounds.held(node)))
    held: defaultdict[Node, set[int]] = defaultdict(set)
    received: Counter[tuple[Node, int]] = Counter()
    for number in range(rounds.round):
        now = [sent for sent in rounds.sent if sent.round == number]
        assert len({sent.sender for sent in now}) == len(now), "one chunk a round each"
        for sent in now:
            assert sent.receiver not in {HOST, sent.sender}
            if sent.sender != HOST:
                assert sent.chunk in held[sent.sender], "nobody sends what it does not have yet"
                assert world.feasible(sent.sender, sent.receiver)
        for sent in now:
            held[sent.receiver].add(sent.chunk)
            received[sent.receiver, sent.chunk] += 1
    by_host = Counter((s.receiver, s.chunk) for s in rounds.sent if s.sender == HOST)
    assert max(by_host.values(), default=0) <= 1, "the host sends nobody the same twice"
    if isinstance(world.plan, Swarm):
        # The end-game asks a second neighbour for what the first is slow with, and the host helps
        # out who waits: that costs copies of some chunks, never more than these.
        assert max(received.values(), default=0) <= MOST_TWICE + 1
    else:
        assert max(received.values(), default=0) <= 1, "a tree sends nobody the same twice"


def carried(world: World) -> dict[Node, set[int]]:
    """What each needs, and in a tree who is below it: where nobody comes or goes."""
    found = {node: set(world.needs(node)) for node in range(1, world.receivers + 1)}
    if not isinstance(world.plan, Swarm):
        for node in range(world.receivers, 0, -1):
            if parent(node) != HOST and world.feasible(parent(node), node):
                found[parent(node)] |= found[node]
    return found


moments = st.builds(
    Moment,
    rounds=st.integers(0, 30),
    going=st.lists(st.integers(0, 99), max_size=3).map(tuple),
    coming=st.integers(0, 2),
)


@st.composite
def worlds(
    draw: st.DrawFn, *, plans: tuple[Plan, ...] = PLANS, churn: bool = False, most: int = 16
) -> World:
    receivers = draw(st.integers(1, most))
    nodes = st.integers(1, receivers + 8)
    return World(
        plan=draw(st.sampled_from(plans)),
        receivers=receivers,
        chunks=draw(st.integers(1, 24)),
        segments=draw(st.booleans()),
        undialled=draw(
            st.just(frozenset())
            | st.frozensets(nodes, max_size=receivers)
            | st.just(frozenset(range(1, receivers + 99)))
        ),
        moments=tuple(draw(st.lists(moments, min_size=1, max_size=4))) if churn else (),
        seed=draw(st.integers(0, 99)),
    )
