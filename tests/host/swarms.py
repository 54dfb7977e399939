"""Crowds among which data has really spread, by the plans' own decisions, up to some round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from crowdgrad.domain.spreading import Flow, Share
from crowdgrad.planner.replication.crowd import Crowd
from crowdgrad.planner.replication.masks import Counts
from crowdgrad.planner.replication.plans import HOST, Plan
from crowdgrad.planner.replication.rounds import Rounds
from crowdgrad.planner.replication.swarm import Swarm

CHUNK_BYTES = 1000
NAMES = ("ada", "ben", "cleo", "dora", "emil", "fay", "gus", "hana")


@dataclass
class Played:
    """What a host has of its spreading."""

    crowd: Crowd
    sizes: Counts
    sent_bytes: int
    share: Share
    reason: str = "nobody it is joined with has it"
    now: float = 0.0


def names(members: int) -> dict[int, str]:
    return {n: NAMES[(n - 1) % len(NAMES)] for n in range(1, members + 1)}


def play(
    members: int = 5,
    chunks: int = 40,
    rounds: int | None = None,
    *,
    plan: Plan | None = None,
    needs: Mapping[int, Iterable[int]] | None = None,
    leaves: Iterable[int] = (),
) -> Played:
    """`rounds`: how many are played; None: until everybody has what it needs. `leaves`: who goes
    then."""
    needs = needs or {node: range(chunks) for node in range(1, members + 1)}
    world = Rounds(plan or Swarm(), chunks=chunks, needs=needs)
    while not world.done and (rounds is None or world.round < rounds):
        world.go()
    crowd = world._crowd
    for sent in world.sent:
        crowd.flow(sent.receiver, [Flow(position=sent.sender, received=CHUNK_BYTES)])
    for node in leaves:
        crowd.leave(node)
    crowd.arrange()
    return Played(
        crowd=crowd,
        sizes=np.full(chunks, CHUNK_BYTES, np.int64),
        sent_bytes=CHUNK_BYTES * sum(sent.sender == HOST for sent in world.sent),
        share="full" if crowd.whole else "needed",
        now=world._now,
    )
