"""What is measured: of this machine, and of those it talks to. No judgement yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Whose = Literal["matchmaker", "host", "relay", "else", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why something could not be seen."""

    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    crowdgrad: str
    protocol: tuple[int, int]
    python: str
    system: str
    tls: str
    has_tls13: bool
    lending: Mapping[str, str]
    """Version of each library that every install has; empty: it is missing."""
    hosting: Mapping[str, str]
    """… that only a host needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """One folder that is written to."""

    purpose: str
    path: str
    free_bytes: int
    trouble: str = ""
    """Why nothing can be written there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    number: int
    whose: Whose
    """Who listens there; empty: nobody, it can be had."""
    trouble: str = ""
    """Why it cannot be had although nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A question to everybody on one network, from our address there."""

    address: str
    trouble: str = ""
    """Why this machine does not hear it itself; empty: it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Multicast:
    """Whether this machine can ask its networks for hosts."""

    out: bool
    """The question was let out of the machine."""
    asked: tuple[Asking, ...]
    """The network by which the machine goes out first."""
    here: tuple[str, ...] = ()
    """All addresses of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matchmaker:
    url: str
    chosen: bool
    """Somebody named it; otherwise it is the default."""
    answers_ms: tuple[float, ...] = ()
    """How long it took to answer, each time."""
    offset_s: float | None = None
    """How far its clock is ahead of ours."""
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Where this machine is, and whether it can be dialled."""

    local: tuple[str, ...]
    """Its own addresses; the first is the one it goes out by."""
    external: str = ""
    """What its router says it is outside."""
    observed: str = ""
    """What a matchmaker sees."""
    reached: bool | None = None
    """Whether the matchmaker could dial it; None: nobody has tried."""
    by: str = ""
    """How: directly (empty), or by a port that the router opened (what it was asked by)."""
    why: str = ""
    """Why not."""
    router: str = ""
    """What the router said when it would not."""
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    route: str
    answer_ms: float = 0.0
    down_mbps: float = 0.0
    up_mbps: float = 0.0
    """0: not measured."""
    refused: Trouble | None = None
    """Why it would not be measured; without advice: it never will."""
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """An attempt to reach one host by one route."""

    route: str
    addresses: tuple[str, ...] = ()
    """What its name stands for."""
    key: str = ""
    """Fingerprint of whoever answered."""
    ms: float = 0.0
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a matchmaker says of the job with a code."""

    code: str
    title: str = ""
    state: str = ""
    key: str = ""
    """Fingerprint of its host's key."""
    present: bool = False
    """Its host is there."""
    trouble: Trouble | None = None
