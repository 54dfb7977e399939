"""One status for all who watch: taken with every tick, and told to everybody until the next.

The loop that takes it also talks to every volunteer. So however many terminals, pages and scripts
look, it is taken once, and whoever wants to see everybody in a large crowd gets them in parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from crowdgrad.host.keeping.keeper import Health
from crowdgrad.host.telling.status import MemberStatus, Others, Status
from crowdgrad.host.telling.taking import checkpoint_status, members_of, take_status
from crowdgrad.host.training import Training

FRESH_S = 0.2
"""A status that is older is not told any more; a tick is half of that."""
PART = 100
"""Members looked at before others have their turn on the loop."""


class Latest:
    def __init__(
        self, training: Training, health: Callable[[], Health], clock: Callable[[], float]
    ) -> None:
        self._training = training
        self._health = health
        self._clock = clock
        self._status: Status | None = None
        self._taken_at = 0.0
        self._turn: object = None

    def take(self) -> Status:
        """As it is this moment."""
        now = self._clock()
        told = checkpoint_status(self._health(), now)
        self._status = take_status(self._training, now, told)
        self._taken_at, self._turn = now, self._where()
        return self._status

    def status(self) -> Status:
        """The same object for all who ask within `FRESH_S`, unless it was paused or ended since:
        who wished that wants to see it."""
        old = self._clock() - self._taken_at >= FRESH_S
        if self._status is None or old or self._turn != self._where():
            return self.take()
        return self._status

    def whole(self) -> Status:
        """With every member by name, at once: for the end, when nobody waits for the loop."""
        now = self._clock()
        told = checkpoint_status(self._health(), now)
        return take_status(self._training, now, told, most=None)

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

    def _where(self) -> object:
        course = self._training.course
        return course.phase, course.paused, course.ending
