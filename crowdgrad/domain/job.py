"""A job: a program, a data set, a recipe and a stopping rule, published by a host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NewType

from crowdgrad.domain.data import ChunkHash, check_hash
from crowdgrad.domain.work import LocalSteps, VolunteerId

JobId = NewType("JobId", str)
JobState = Literal["waiting", "running", "finished", "stopped", "failed"]
Value = str | int | float | bool

MAX_TITLE = 120
MAX_ROSTER = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """Training ends with whichever comes first."""

    epochs: int
    target: float | None = None
    """The first metric, on the validation split, at or above this; below where less is better."""
    minutes: float | None = None

    def __post_init__(self) -> None:
        if type(self.epochs) is not int or not 0 < self.epochs <= 1_000_000:
            raise ValueError(f"{self.epochs} epochs is not a whole number from 1 to 1000000")
        if self.minutes is not None and not 0 < self.minutes < 1e7:
            raise ValueError(f"{self.minutes} minutes is not a positive time")
        if self.target is not None and not math.isfinite(self.target):
            raise ValueError(f"a target of {self.target} is never reached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every member of a job is told."""

    id: JobId
    title: str
    cause: str
    program: ChunkHash
    manifest: ChunkHash
    recipe: str
    hyperparameters: dict[str, Value]
    local: LocalSteps
    stop: StoppingRule
    seed: int

    def __post_init__(self) -> None:
        check_hash(self.program)
        check_hash(self.manifest)
        if not 0 < len(self.id) <= 64 or not self.id.replace("-", "").isalnum():
            raise ValueError(f"job id {self.id[:70]!r}")
        if not 0 < len(self.title) <= MAX_TITLE or len(self.cause) > MAX_TITLE:
            raise ValueError(f"a title has 1 to {MAX_TITLE} characters")
        if not self.title.isprintable() or not self.cause.isprintable():
            raise ValueError("title and cause are printable, on one line")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed {self.seed} is not a 64-bit number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Volunteer:
    """What a volunteer says of itself."""

    id: VolunteerId
    name: str
    cores: int
    memory_mb: int
    engine: str
    software: str

    def __post_init__(self) -> None:
        if not 0 < len(self.id) <= 64 or not self.id.isalnum():
            raise ValueError(f"volunteer id {self.id[:70]!r}")
        if not 0 < len(self.name) <= 64 or not self.name.isprintable():
            raise ValueError(
                f"a volunteer's name has 1 to 64 printable characters: {self.name[:70]!r}"
            )
        if len(self.engine) > 64 or len(self.software) > 64 or self.cores < 1 or self.memory_mb < 0:
            raise ValueError(f"volunteer {self.name!r} describes itself strangely")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One place in a roster. The host's own worker has place 0."""

    position: int
    id: VolunteerId
    name: str

    def __post_init__(self) -> None:
        if self.position < 0 or not self.name.isprintable():
            raise ValueError(
                f"a member has a place and a printable name, not {self.position} {self.name[:70]!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The ordered list of a job's members; a position, once given, stays its owner's."""

    job: JobId
    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        positions = [member.position for member in self.members]
        if positions != sorted(set(positions)) or len(positions) > MAX_ROSTER:
            raise ValueError(f"roster of {self.job[:70]}: positions {positions[:10]}")
