"""When a synchronous round is closed: all, or a quorum and a window of grace.

In a round everybody works from the same version; what arrives is merged, weighted by samples, and
applied once. Waiting for all is exact but as slow as the slowest. With a quorum (or with backup
volunteers, whose help is dropped when it comes last: Chen et al. 2016, arXiv 1604.00981) the round
closes a window of grace after enough have delivered.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, field

from crowdgrad.domain.work import VolunteerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    quorum: float = 1.0
    """The share of those at work whose updates suffice."""
    backup: int = 0
    """How many of those at work are not waited for."""
    grace_s: float = 0.0
    """How long the others may still deliver once there are enough."""

    def __post_init__(self) -> None:
        if not 0 < self.quorum <= 1:
            raise ValueError(f"a quorum of {self.quorum} is not a share above 0, at most 1")
        if self.backup < 0 or not 0 <= self.grace_s < 1e6:
            raise ValueError(f"{self.backup} backup volunteers, {self.grace_s} s of grace")

    def needed(self, at_work: int) -> int:
        """Updates that suffice when so many are at work."""
        return max(1, min(math.ceil(self.quorum * at_work - 1e-9), at_work - self.backup))


@dataclass(slots=True)
class Round:
    """Who takes part in the round under way, and how far it is."""

    working: set[VolunteerId] = field(default_factory=set)
    """Those who hold a unit of this round."""
    delivered: set[VolunteerId] = field(default_factory=set)
    enough_at: float | None = None
    """When there were first enough."""

    def may_begin(self, volunteer: VolunteerId) -> tuple[bool, str]:
        if volunteer in self.delivered or volunteer in self.working:
            return False, "waiting for the others of this round"
        return True, "a unit of this round"

    def should_close(
        self, now: float, barrier: Barrier, expected: Set[VolunteerId]
    ) -> tuple[bool, str]:
        """`expected`: members who have not had a unit of this round yet but will ask for one."""
        if not self.delivered:
            return False, "nobody has delivered yet"
        missing = self.working | (set(expected) - self.delivered)
        at_work = len(missing) + len(self.delivered)
        if not missing:
            return True, f"all {at_work} have delivered"
        needed = barrier.needed(at_work)
        if len(self.delivered) < needed:
            self.enough_at = None
            return False, f"{len(self.delivered)} of the {needed} needed have delivered"
        if self.enough_at is None:
            self.enough_at = now
        if now - self.enough_at < barrier.grace_s:
            return False, f"enough have delivered; {len(missing)} more have a moment left"
        return True, f"{len(self.delivered)} of {at_work} have delivered, enough"
