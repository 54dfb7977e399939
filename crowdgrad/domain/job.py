"""A job: a program, a data set, a recipe and a stopping rule, published by a host."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NewType

from crowdgrad.domain.data import ChunkHash, check_hash
from crowdgrad.domain.work import MAX_COUNT, LocalSteps, VolunteerId

JobId = NewType("JobId", str)
JobState = Literal["waiting", "running", "finished", "stopped", "failed"]
Value = str | int | float | bool

MAX_TITLE = 120
MAX_ROSTER = 100_000
MAX_HYPERPARAMETERS = 64
MAX_CORES = 1 << 16
MAX_MEMORY_MB = 1 << 40
MAX_SERVERS = 64
MAX_ADDRESS = 261
"""The longest name of a machine, a colon, a port."""


def check_hyperparameters(values: dict[str, Value]) -> None:
    if len(values) > MAX_HYPERPARAMETERS:
        raise ValueError(f"{len(values)} hyperparameters; at most {MAX_HYPERPARAMETERS} can travel")
    for name, value in values.items():
        if not 0 < len(name) <= 64 or not name.isprintable():
            raise ValueError(f"a hyperparameter's name has 1 to 64 characters, not {name[:70]!r}")
        if isinstance(value, str) and (len(value) > 256 or not value.isprintable()):
            raise ValueError(f"hyperparameter {name!r} is not one line of at most 256 characters")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"hyperparameter {name!r} is not a 64-bit number")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"hyperparameter {name!r} is {value}")


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
    growing: bool = False
    """Whether data may be added while it is trained on; then the manifest is the newest."""

    def __post_init__(self) -> None:
        check_hash(self.program)
        check_hash(self.manifest)
        if not 0 < len(self.id) <= 64 or not self.id.replace("-", "").isalnum():
            raise ValueError(f"job id {self.id[:70]!r}")
        if not 0 < len(self.title) <= MAX_TITLE or len(self.cause) > MAX_TITLE:
            raise ValueError(f"a title has 1 to {MAX_TITLE} characters")
        if not self.title.isprintable() or not self.cause.isprintable():
            raise ValueError("title and cause are printable, on one line")
        if not 0 < len(self.recipe) <= 64 or not self.recipe.isprintable():
            raise ValueError(f"a recipe's name has 1 to 64 characters, not {self.recipe[:70]!r}")
        check_hyperparameters(self.hyperparameters)
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
        words = f"{self.engine}{self.software}"
        if max(len(self.engine), len(self.software)) > 64 or not words.isprintable():
            raise ValueError(f"volunteer {self.name!r} describes itself strangely")
        if not 1 <= self.cores <= MAX_CORES or not 0 <= self.memory_mb <= MAX_MEMORY_MB:
            raise ValueError(
                f"volunteer {self.name!r} says it has {self.cores} cores, {self.memory_mb} MB"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One place in a roster. The host's own worker has place 0."""

    position: int
    id: VolunteerId
    name: str

    def __post_init__(self) -> None:
        if not 0 <= self.position < MAX_COUNT or not 0 < len(self.id) <= 64:
            raise ValueError(
                f"a member has a place and an id, not {self.position} {self.id[:70]!r}"
            )
        if len(self.name) > 64 or not self.name.isprintable():
            raise ValueError(f"a member's name has at most 64 characters, not {self.name[:70]!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The ordered list of a job's members; a position, once given, stays its owner's."""

    job: JobId
    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        positions = [member.position for member in self.members]
        if positions != sorted(set(positions)) or len(positions) > MAX_ROSTER:
            raise ValueError(f"roster of {self.job[:70]}: positions {positions[:10]}")
        if len(self.job) > 64:
            raise ValueError(f"roster of job {self.job[:70]!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """One of those that hold the parameters: where it is and which words of the state it has.

    Several together hold all words, each exactly one part; or one alone holds everything.
    """

    address: str
    """host:port"""
    token: str = field(repr=False)
    """What proves there that the host has admitted whoever shows it, this time."""
    start: int
    stop: int
    """Words [start, stop) of the state are here."""
    update_stop: int
    """Words [start, update_stop) of an update belong here."""
    admission: int = 0
    """Which admission by the host it is: every time somebody joins it is a higher one."""
    key: str = ""
    """A pin: how the fingerprint of the server's key begins."""

    def __post_init__(self) -> None:
        host, _, port = self.address.rpartition(":")
        if len(self.key) > 64 or not all(digit in "0123456789abcdef" for digit in self.key):
            raise ValueError("a pin has at most 64 hexadecimal digits")
        known = host and port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16
        if not known or len(self.address) > MAX_ADDRESS or not self.address.isprintable():
            raise ValueError(f"a server's address is host:port, not {self.address[:70]!r}")
        if len(self.token) > 64 or not self.token.isprintable():
            raise ValueError("a server's token has at most 64 printable characters")
        if not 0 <= self.admission < MAX_COUNT:
            raise ValueError(f"admission {self.admission}")
        if not 0 <= self.start < self.update_stop <= self.stop < MAX_COUNT:
            raise ValueError(
                f"a server has words {self.start} to {self.stop}, {self.update_stop} of an update"
            )
