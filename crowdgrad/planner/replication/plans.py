"""What a plan decides, and what it is told.

A plan is three pure decisions. `arrange`: who exchanges with whom, asked when members come and go.
`feed`: what the host gives to whom next. `serve`: which of the chunks that a member was asked for
it sends next. What a member asks for is `fetching.py`'s, the same in all plans but for the order.

Node 0 is the host. It holds everything and is never asked by name: members say how many chunks they
have room for, and it chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from crowdgrad.domain.spreading import PlanName
from crowdgrad.planner.replication.masks import Counts, Mask, Numbers

Node = int
"""A member by its place in the roster."""
HOST: Node = 0
Order = Literal["rarest", "first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """One member's part in an arrangement."""

    neighbours: tuple[Node, ...] = ()
    source: Node | None = None
    """Whom alone it asks; None: any neighbour, and the host."""
    order: tuple[Node, ...] = ()
    """Whom it serves, the first first; swarms have none."""
    below: tuple[Node, ...] = ()
    """Members whose chunks pass through it."""


class Fed(NamedTuple):
    """What the host gives next."""

    node: Node
    chunk: int


class Asked(NamedTuple):
    """A chunk that a member was asked for."""

    node: Node
    chunk: int
    since: float


@dataclass(slots=True, kw_only=True)
class Guest:
    """What a host knows of one member that takes part."""

    node: Node
    holds: Mask
    wants: Mask
    """Whether or not it holds them by now."""
    urgent: frozenset[int] = frozenset()
    """What a unit of its waits for."""
    until: int = 0
    """How many chunks it takes of us, in all."""
    fed: int = 0
    """How many it was given."""
    fed_at: float = -1.0
    moved_at: float = 0.0
    """When it last got on, or began to want something."""
    carries: Mask | None = None
    """What passes through it besides what it wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the host decides on."""

    guests: Mapping[Node, Guest]
    links: Mapping[Node, Links]
    copies: Counts
    """Of each chunk: how many members have it, or are about to; accused ones do not count."""
    jitter: Numbers
    """A number of its own from 0 to 1 for each chunk: equals are not told apart by their
    numbers."""
    whole: bool
    """Everybody wants everything, so that what one has reaches all it is joined with."""
    trusted: Callable[[Node], bool] = lambda node: True
    """Whether what it says it holds counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What a member that serves decides on."""

    asks: Sequence[Asked]
    order: tuple[Node, ...]
    given: Mapping[Node, float]
    """What each has given us lately, in bytes."""
    served: Mapping[Node, int]
    """How many chunks each was sent."""
    complete: bool
    """Whether we hold all that we want, and that passes through us."""
    copies: Counts
    """Of each chunk: how many of our neighbours have it."""


class Plan(Protocol):
    @property
    def name(self) -> PlanName: ...

    @property
    def sentence(self) -> str: ...

    @property
    def order(self) -> Order:
        """In which order a member asks for chunks."""
        ...

    def arrange(
        self,
        nodes: Sequence[Node],
        feasible: Callable[[Node, Node], bool],
        before: Mapping[Node, Links],
    ) -> dict[Node, Links]:
        """`nodes`: those who take part, in roster order, the host not among them. `feasible`:
        whether the first can send to the second: it gives, and one of the two can dial."""
        ...

    def feed(self, world: World, now: float) -> tuple[Fed | None, str]:
        """The next chunk the host gives, or none; and why."""
        ...

    def serve(self, queue: Queue, now: float) -> tuple[Asked | None, str]:
        """Which ask a member answers next, or none yet; and why."""
        ...
