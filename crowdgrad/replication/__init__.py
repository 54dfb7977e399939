"""Chunks: where they are kept, and how they spread from machine to machine.

`base` says what a place for chunks can do, `store` has one on disk and its twin in memory. Whoever
hands out bytes hands out verified bytes: a chunk is named by the sha256 of its content. `supply` is
where a volunteer gets chunks; `sharing` exchanges them with others, met by `meeting`, one
connection a `peer`; `mirrors` are further copies elsewhere. What is asked of whom and sent to whom
is decided in `planner/replication/`.
"""

from __future__ import annotations

from crowdgrad.domain.spreading import PlanName
from crowdgrad.planner.replication.plans import Plan
from crowdgrad.planner.replication.swarm import Swarm
from crowdgrad.planner.replication.tree import Tree

PLANS: dict[PlanName, Plan] = {plan.name: plan for plan in (Swarm(), Tree(), Tree(pipelined=True))}
