"""What a volunteer tells of itself: the types of its HTTP API and of the terminal's view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from crowdgrad.domain.manners import Effort, Limits, Readings

State = Literal["starting", "looking", "asking", "working", "paused", "waiting", "over"]
"""starting: nothing is known yet, or a job is fetched and checked; looking: for a job; asking: a
question waits for its answer; paused: nothing is computed, `effort` says why; waiting: the host has
nothing for us just now, or is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """The job at hand, as its host tells it."""

    id: str
    title: str
    cause: str
    host: str
    """Fingerprint of the key the host has proven; empty where it has proven none."""
    host_name: str
    address: str
    why: str = ""
    """This job is helped, in one sentence; empty where nobody says."""
    engine: str = ""
    """What computes here, and in which version; empty until something was computed."""
    memory_bytes: int = 0
    """The most it may take here; 0 until it is known."""
    data_bytes: int = 0
    """Program, manifest and training data, once."""
    position: int
    """Our number among its volunteers."""
    share: float | None = None
    """Ours of all samples its members have given, in all our visits, as its host counts; None until
    it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whether to help this host: nothing is computed before it is answered."""

    id: str
    title: str
    cause: str
    host: str
    host_name: str
    lines: tuple[str, ...]
    """What it costs, what the host sees and what it does not, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Something that was said."""

    at: float
    """Seconds since 1970."""
    kind: str
    """state, effort, trouble, note or job (one has ended)."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """How the work for one job ended."""

    title: str
    host: str
    code: str
    samples: int
    credit: float | None
    """In FLOP, as the host counts it; None where it did not get to say."""
    share: float | None
    """Ours of all samples, as the host said last; None where it did not."""
    reason: str
    left: bool
    """We went before it was over."""
    ended_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What this key has given, in all its life on this machine."""

    samples: int = 0
    credit: float = 0.0
    """In FLOP, by our own count."""
    jobs: int = 0
    seconds: float = 0.0
    """Of computing, as far as the journal goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataHere:
    """Chunks of the shards that were needed so far."""

    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStatus:
    name: str
    key: str
    """Our own fingerprint."""
    state: State
    doing: str
    """One sentence in plain words."""
    effort: Effort
    readings: Readings
    limits: Limits
    job: JobSeen | None
    question: Question | None
    samples: int
    """Used by hosts, since `since`; so are the four that follow counted."""
    accepted: int
    """Updates …"""
    refused: int
    loss: float | None
    """Of the last unit."""
    compute_s: float
    samples_per_s: float
    """Over the last half minute."""
    since: float
    """When this process began, in seconds since 1970."""
    log: tuple[Line, ...]
    """The last of what was said, oldest first."""
    jobs: tuple[JobDone, ...]
    """Those that have ended since `since`, the last of them."""
    totals: Totals
    trouble: str
    """What went wrong last, while nothing has gone right since."""
    data: DataHere | None


def as_json(status: WorkStatus) -> str:
    """Numbers that are not finite become null."""
    return msgspec.json.encode(status).decode()
