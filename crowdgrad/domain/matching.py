"""What the matchmaker knows: jobs on offer, who waits for one, and who owns which place.

A job's members are its volunteers besides the host's own worker, which always has position 0;
`minimum` and `maximum` count those volunteers only. Times are seconds since 1970.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, NewType

from crowdgrad.domain.job import (
    MAX_TITLE,
    JobId,
    JobState,
    Value,
    Volunteer,
    check_hyperparameters,
)
from crowdgrad.domain.work import VolunteerId

Code = NewType("Code", str)
"""What a person types to find a job: `K7Q-2MP`."""
Presence = Literal["alive", "suspect", "gone"]

OPEN_STATES: tuple[JobState, ...] = ("waiting", "running")
CODE_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""No letter or digit that is mistaken for another when read aloud or from a screen."""
MAX_VOLUNTEERS = 1000
MAX_AVOIDED = 16

_CODE = re.compile(f"[{CODE_ALPHABET}]{{3}}-[{CODE_ALPHABET}]{{3}}")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


def is_code(text: str) -> bool:
    return _CODE.fullmatch(text) is not None


def as_code(text: str) -> Code | None:
    """The code a person meant: case, spaces and the dash do not matter."""
    letters = "".join(c for c in text.upper() if c not in "- ")
    candidate = f"{letters[:3]}-{letters[3:]}"
    return Code(candidate) if is_code(candidate) else None


def check_job_id(job: str) -> None:
    if not _JOB_ID.fullmatch(job):
        raise ValueError(f"a job id has 1 to 64 letters, digits and dashes, not {job[:70]!r}")
    if is_code(job.upper()):
        raise ValueError(f"job id {job!r} looks like a join code; choose a longer one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a host says of its job when it publishes it."""

    id: JobId
    title: str
    cause: str
    address: str
    """`host:port` where volunteers reach the host; told to members only."""
    key: str
    """Fingerprint of the host's public key."""
    minimum: int
    maximum: int
    hyperparameters: dict[str, Value]

    def __post_init__(self) -> None:
        check_job_id(self.id)
        check_hyperparameters(self.hyperparameters)
        if not 0 < len(self.title) <= MAX_TITLE or not self.title.isprintable():
            raise ValueError(f"a title has 1 to {MAX_TITLE} printable characters")
        if len(self.cause) > MAX_TITLE or not self.cause.isprintable():
            raise ValueError(f"a cause has at most {MAX_TITLE} printable characters")
        host, _, port = self.address.rpartition(":")
        if not 0 < len(host) <= 255 or not host.isprintable() or " " in host:
            raise ValueError(f"an address is HOST:PORT, not {self.address[:70]!r}")
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16):
            raise ValueError(f"a port is between 1 and 65535, not {port[:20]!r}")
        if len(self.key) > 128 or not self.key.isprintable():
            raise ValueError("a key's fingerprint has at most 128 printable characters")
        if not 0 <= self.minimum <= self.maximum or not 0 < self.maximum <= MAX_VOLUNTEERS:
            raise ValueError(
                f"{self.minimum} to {self.maximum} volunteers; a job takes 1 to {MAX_VOLUNTEERS}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListing:
    """A published job."""

    offer: Offer
    state: JobState
    published_at: float
    """Jobs are served in this order."""
    code: Code

    def __post_init__(self) -> None:
        if not is_code(self.code):
            raise ValueError(f"a join code looks like K7Q-2MP, not {self.code[:20]!r}")
        if not (math.isfinite(self.published_at) and self.published_at >= 0):
            raise ValueError(f"published at {self.published_at}")

    @property
    def id(self) -> JobId:
        return self.offer.id

    @property
    def title(self) -> str:
        return self.offer.title

    @property
    def address(self) -> str:
        return self.offer.address

    @property
    def open(self) -> bool:
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A volunteer without a job."""

    volunteer: VolunteerId
    wants: str | None
    """The id or code of the one job it will work for; None: whoever needs it."""
    avoid: frozenset[JobId]
    """Jobs it has just left or could not reach."""
    since: float

    def __post_init__(self) -> None:
        if self.wants is not None and not 0 < len(self.wants) <= 64:
            raise ValueError(f"a job is named by its id or its code, not by {self.wants[:70]!r}")
        if len(self.avoid) > MAX_AVOIDED or any(len(job) > 64 for job in self.avoid):
            raise ValueError(f"at most {MAX_AVOIDED} jobs can be avoided, not {len(self.avoid)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A listing and what proves its owner."""

    listing: JobListing
    owner: str
    """sha256 of the owner's token: what is stored lets nobody in."""
    first_free: int = 1
    """No position below this one is given away, whatever else is known of the roster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolunteerRecord:
    volunteer: Volunteer
    owner: str
    waiting: Waiting
