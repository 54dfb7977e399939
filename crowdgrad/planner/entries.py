"""One unit in the lease book: its state, who may finish it, and everything that happened to it.

waiting ──lease──→ leased ──finish──→ done
   ↑                  │
   └─ lapse, leave, give back; the third failure: ──→ set_aside; its owner leaves: ──→ void
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from crowdgrad.domain.work import Unit, Version, VolunteerId

State = Literal["waiting", "leased", "done", "set_aside", "void"]
TRANSITIONS: dict[State, frozenset[State]] = {
    "waiting": frozenset({"leased", "done", "set_aside", "void"}),
    "leased": frozenset({"waiting", "done", "set_aside", "void"}),
    "done": frozenset(),
    "set_aside": frozenset(),
    "void": frozenset(),
}
STORY_KEPT = 40


@dataclass(slots=True)
class Lease:
    base: Version
    ends_at: float
    link: int = 0
    """How many units of the same chain came before."""
    running: bool = True
    lapsed: bool = False
    """It ran out, but its holder may still be at work."""
    failed: bool = False
    """Said once, it counts once."""


@dataclass(slots=True)
class Entry:
    """A unit that is not done yet, and everything that happened to it."""

    unit: Unit
    owner: VolunteerId | None = None
    """Who alone may work on it; None: anyone."""
    state: State = "waiting"
    samples: int = 0
    """How many records it is about, once it was leased."""
    leases: dict[VolunteerId, Lease] = field(default_factory=dict)
    """At most one of them runs: then the unit is leased."""
    failed_on: dict[VolunteerId, int] = field(default_factory=dict)
    """How often on whom."""
    lapses: int = 0
    story: list[str] = field(default_factory=list)

    def become(self, state: State, why: str) -> None:
        if state not in TRANSITIONS[self.state]:
            told = "; ".join(self.story)
            raise AssertionError(
                f"unit {self.unit.id}: {self.state} → {state} ({why}) after {told}"
            )
        self.state = state
        self.tell(why)

    def tell(self, why: str) -> None:
        self.story.append(why)
        if len(self.story) > STORY_KEPT:
            del self.story[STORY_KEPT // 2]  # how it began and how it ended matter

    @property
    def failures(self) -> tuple[int, str]:
        """How often it failed: on different volunteers, or on the only one who may try."""
        if self.owner is None:
            return len(self.failed_on), f"failed on {len(self.failed_on)} volunteers"
        times = sum(self.failed_on.values())
        return times, f"failed {times} times on its owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptUnit:
    """What a checkpoint keeps of a unit."""

    unit: Unit
    owner: VolunteerId | None
    failed_on: tuple[tuple[VolunteerId, int], ...]
    story: tuple[str, ...]

    @classmethod
    def of(cls, entry: Entry) -> KeptUnit:
        return cls(
            unit=entry.unit,
            owner=entry.owner,
            failed_on=tuple(entry.failed_on.items()),
            story=tuple(entry.story),
        )

    def entry(self, state: State = "waiting") -> Entry:
        """As it was, without any leases."""
        return Entry(
            self.unit, self.owner, state, failed_on=dict(self.failed_on), story=list(self.story)
        )
