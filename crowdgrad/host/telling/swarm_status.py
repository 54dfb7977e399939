"""A picture of how the data spreads: who holds what, who sends to whom, how far everybody is.

How it is taken is in `crowdgrad/host/telling/swarm_taking.py`. It is bounded: a hundred members by
name and the rest added up, the busiest flows, and of each member's chunks a strip of a few cells.
The status that everybody gets ten times a second carries only a summary of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from crowdgrad.domain.spreading import PlanName, Share

MOST_BEHIND = 8
"""Members whose strips the summary carries: those who still lack something."""
BEHIND_CELLS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmMember:
    position: int
    name: str
    here: bool
    """Of who has gone it is known what it received and passed on, and no more."""
    held_chunks: int
    wanted_chunks: int
    progress: float
    """How much it has of what it wants, 0 to 1; 1 where it wants nothing."""
    received_bytes: int
    """By its own word: the host does not see what others send it."""
    from_host_bytes: int
    passed_on_bytes: int
    """By the word of those who got it."""
    wasted_bytes: int
    """That it had already, or that broke off."""
    bad_chunks: int
    """Chunks that came to it with wrong bytes."""
    neighbours: list[int]
    dialled: bool
    """Whether others reach it where the host sees it."""
    gives: bool
    """Whether it passes on."""
    trusted: bool
    """Whether what it says it holds counts."""
    map: list[float]
    """Which part of the data it holds: the data from its beginning to its end in at most 60 cells,
    each 0 to 1."""
    source: int | None
    """Whom alone it asks; None: its neighbours and the host."""
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmOthers:
    """The members that are not named, added up."""

    members: int = 0
    here: int = 0
    complete: int = 0
    received_bytes: int = 0
    passed_on_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmFlow:
    """What one has sent to another; 0 is the host."""

    sender: int
    receiver: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmStatus:
    plan: PlanName
    sentence: str
    """What the plan does."""
    share: Share
    chunks: int
    bytes: int
    """Of the whole data."""
    wanted_bytes: int
    """Of the chunks that anybody wants or holds, each once."""
    progress: float
    """How much all members together have of what they want, 0 to 1."""
    host_sent_bytes: int
    host_copies: float
    """How often the host has sent all that anybody wants or holds."""
    rarest: int
    """Of the wanted chunks: how many members that pass on have the rarest."""
    here: int
    complete: int
    """How many of those lack nothing."""
    reason: str
    """Why the host sends what it sends now."""
    members: list[SwarmMember]
    """All up to a hundred, also who has gone and passed something on; of more, who is here before
    who has gone, and who exchanged most of them."""
    others: SwarmOthers
    """Who is not in `members`."""
    flows: list[SwarmFlow]
    """The busiest 200, up to half of them the host's, the busiest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """One who still lacks something."""

    position: int
    name: str
    progress: float
    map: list[float]
    """As a member's, in at most 20 cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadSummary:
    """What a status says of it."""

    plan: PlanName
    share: Share
    progress: float
    host_copies: float
    members: int
    """How many take part."""
    complete: int
    """How many of them lack nothing."""
    behind: list[Behind] = field(default_factory=list)
    """Who still lacks something, up to eight, in roster order."""


def summarise(swarm: SwarmStatus) -> SpreadSummary:
    behind = [member for member in swarm.members if member.here and member.progress < 1]
    return SpreadSummary(
        plan=swarm.plan,
        share=swarm.share,
        progress=swarm.progress,
        host_copies=swarm.host_copies,
        members=swarm.here,
        complete=swarm.complete,
        behind=[
            Behind(
                position=member.position,
                name=member.name,
                progress=member.progress,
                map=resampled(member.map, min(BEHIND_CELLS, len(member.map))),
            )
            for member in behind[:MOST_BEHIND]
        ],
    )


def resampled(cells: Sequence[float], width: int) -> list[float]:
    """The same strip in so many cells."""
    edges = [at * len(cells) // width for at in range(width + 1)] if cells else []
    parts = [cells[a : max(b, a + 1)] for a, b in pairwise(edges)]
    return [sum(part) / len(part) for part in parts]


def swarm_as_json(swarm: SwarmStatus) -> str:
    return msgspec.json.encode(swarm).decode()
