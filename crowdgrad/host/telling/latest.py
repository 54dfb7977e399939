"""One status for all who watch: taken with every tick, and told to everybody until the next.

The loop that takes it also talks to every volunteer. So however many terminals, pages and scripts
look, it is taken once, and whoever wants to see everybody in a large crowd gets them in parts. The
picture of how the data spreads costs more, and is taken more seldom.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from crowdgrad.host.keeping.keeper import Health
from crowdgrad.host.telling.status import MemberStatus, Others, Status
from crowdgrad.host.telling.swarm_status import SpreadSummary, SwarmStatus, summarise
from crowdgrad.host.telling.swarm_taking import Spreads, take_swarm
from crowdgrad.host.telling.taking import checkpoint_status, members_of, take_status
from crowdgrad.host.training import Training

FRESH_S = 0.2
"""A status that is older is not told any more; a tick is half of that."""
PART = 100
"""Members looked at before others have their turn on the loop."""
SWARM_EVERY_S = 0.5
SWARM_TIMES = 50
"""Taking the picture of the swarm is at most one part in so many of the loop's time."""


class Latest:
    def __init__(
        self,
        training: Training,
        health: Callable[[], Health],
        clock: Callable[[], float],
        spread: Callable[[], Spreads | None] = lambda: None,
    ) -> None:
        """`spread`: how the data reaches the members, where they pass it on."""
        self._training = training
        self._health = health
        self._clock = clock
        self._spread = spread
        self._swarm: SwarmStatus | None = None
        self._summary: SpreadSummary | None = None
        self._swarm_until = 0.0
        """When the picture is to be taken again."""
        self._status: Status | None = None
        self._taken_at = 0.0
        self._turn: object = None

    def take(self) -> Status:
        """As it is this moment."""
        now = self._clock()
        told = checkpoint_status(self._health(), now)
        self.swarm()
        self._status = take_status(self._training, now, told, spreading=self._summary)
        self._taken_at, self._turn = now, self._where()
        return self._status

    def status(self) -> Status:
        """The same object for all who ask within `FRESH_S`, unless it was paused, ended or given
        another rate since: who wished that wants to see it."""
        old = self._clock() - self._taken_at >= FRESH_S
        if self._status is None or old or self._turn != self._where():
            return self.take()
        return self._status

    def whole(self) -> Status:
        """With every member by name, at once: for the end, when nobody waits for the loop."""
        now = self._clock()
        told = checkpoint_status(self._health(), now)
        self.swarm()
        return take_status(self._training, now, told, most=None, spreading=self._summary)

    async def in_parts(self) -> Status:
        """The same while it runs. The last members are looked at a moment after the first."""
        status = self.status()
        everyone = self._training.ledger.everyone()
        members: list[MemberStatus] = []
        for first in range(0, len(everyone), PART):
            part = everyone[first : first + PART]
            members += members_of(self._training, part, self._clock())
            await asyncio.sleep(0)
        return replace(status, members=members, others=Others())

    def swarm(self) -> SwarmStatus | None:
        """The same object for all who ask within `SWARM_EVERY_S`, or longer where it took long."""
        if self._swarm is None or self._clock() >= self._swarm_until:
            self._look()
        return self._swarm

    def last_swarm(self) -> SwarmStatus | None:
        """As it is this moment, for good: the members go next, and with them what they held."""
        self._look()
        self._swarm_until = math.inf
        return self._swarm

    def _look(self) -> None:
        now, spread = self._clock(), self._spread()
        if spread is None:
            self._swarm = self._summary = None
            return
        names = {a.position: a.volunteer.name for a in self._training.ledger.everyone()}
        self._swarm = take_swarm(spread, names, now)
        self._summary = summarise(self._swarm)
        took_s = self._clock() - now
        self._swarm_until = now + max(SWARM_EVERY_S, SWARM_TIMES * took_s)

    def _where(self) -> object:
        course = self._training.course
        return course.phase, course.paused, course.ending, self._training.state.rate_factor
