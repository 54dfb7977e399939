"""What the matchmaker knows: jobs on offer, who waits for one, who owns which place, who gave what.

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
from crowdgrad.domain.routes import MAX_ROUTES, route_of
from crowdgrad.domain.work import MAX_COUNT, VolunteerId

Code = NewType("Code", str)
"""What a person types to find a job: `K7Q-2MP`."""
Presence = Literal["alive", "suspect", "gone"]
Visibility = Literal["public", "link", "group"]
"""Who sees a job: everybody; whoever was given its code; whose keys its host has invited."""
Kind = Literal["native", "browser"]

OPEN_STATES: tuple[JobState, ...] = ("waiting", "running")
CODE_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""No letter or digit that is mistaken for another when read aloud or from a screen."""
MAX_VOLUNTEERS = 1000
MAX_AVOIDED = 16
MAX_CAUSES = 16
MAX_HOSTS = 64
MAX_INVITED = 256
MAX_DESCRIPTION = 2000
MINUTES_A_DAY = 24 * 60

_CODE = re.compile(f"[{CODE_ALPHABET}]{{3}}-[{CODE_ALPHABET}]{{3}}")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_PUBLIC = re.compile(r"([0-9a-f]{64})?")


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
    if as_code(job) is not None:
        raise ValueError(f"job id {job!r} looks like a join code; choose a longer one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """When a volunteer is willing, in minutes of the day, UTC; `start` > `end` spans midnight."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not (0 <= self.start < MINUTES_A_DAY and 0 <= self.end < MINUTES_A_DAY):
            raise ValueError(f"hours from minute {self.start} to {self.end} of the day")
        if self.start == self.end:
            raise ValueError("hours that begin when they end; leave them out for the whole day")

    def include(self, now: float) -> bool:
        """`now`: seconds since 1970."""
        minute = int(now // 60) % MINUTES_A_DAY
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a volunteer offers besides the cores, memory and engine it tells every host."""

    kind: Kind = "native"
    gpu: str = ""
    """Its name; empty: none."""
    gpu_memory_mb: int = 0
    gflops: float = 0.0
    """Measured, 10⁹ multiplications and additions a second; 0: not known."""
    download_mbps: float = 0.0
    upload_mbps: float = 0.0
    """0: not known."""
    most_download_mb: int = 0
    """Of data a job may make it fetch; 0: as much as it needs."""
    hours: Hours | None = None
    """None: at any time."""
    reachable: bool = False
    """Others can dial it, as a matchmaker found."""

    def __post_init__(self) -> None:
        if len(self.gpu) > 64 or not self.gpu.isprintable():
            raise ValueError(f"a GPU's name has at most 64 printable characters: {self.gpu[:70]!r}")
        numbers = (self.gpu_memory_mb, self.gflops, self.download_mbps, self.upload_mbps)
        if not all(0 <= number < 1e12 for number in (*numbers, self.most_download_mb)):
            raise ValueError("a machine's numbers are between 0 and 10¹²")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a job needs of every volunteer."""

    cores: int = 1
    memory_mb: int = 0
    gpu: bool = False
    gpu_memory_mb: int = 0
    gflops: float = 0.0
    download_mbps: float = 0.0
    data_mb: int = 0
    """How much a volunteer has to fetch."""
    engines: frozenset[str] = frozenset()
    """One of these; none named: any."""
    kinds: frozenset[Kind] = frozenset()
    """Browsers, native ones; none named: both."""

    def __post_init__(self) -> None:
        numbers = (self.cores, self.memory_mb, self.gpu_memory_mb, self.gflops)
        if not all(0 <= n < 1e12 for n in (*numbers, self.download_mbps, self.data_mb)):
            raise ValueError("a job's requirements are between 0 and 10¹²")
        if len(self.engines) > 8 or any(len(e) > 64 or not e.isprintable() for e in self.engines):
            raise ValueError("at most 8 engines of at most 64 printable characters")
        if not self.kinds <= {"native", "browser"}:
            raise ValueError("volunteers are native or browser")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """What a volunteer would work for; everything left out: whoever needs it."""

    job: str | None = None
    """The id or code of the only job."""
    hosts: frozenset[str] | None = None
    """Fingerprints of the only hosts, named or trusted ones; None: any."""
    causes: tuple[str, ...] = ()
    """The most liked first."""
    only_causes: bool = False
    """No others than those."""

    def __post_init__(self) -> None:
        if self.job is not None and not 0 < len(self.job) <= 64:
            raise ValueError(f"a job is named by its id or its code, not by {self.job[:70]!r}")
        if self.hosts is not None and (
            len(self.hosts) > MAX_HOSTS or any(len(host) > 128 for host in self.hosts)
        ):
            raise ValueError(f"at most {MAX_HOSTS} hosts can be named, by their keys' fingerprints")
        if len(self.causes) > MAX_CAUSES or any(
            not 0 < len(cause) <= MAX_TITLE or not cause.isprintable() for cause in self.causes
        ):
            raise ValueError(f"at most {MAX_CAUSES} causes of 1 to {MAX_TITLE} characters")


ANYONE = Wants()


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
    description: str = ""
    contact: str = ""
    """Where people reach the host, as it wants to be shown."""
    requirements: Requirements = Requirements()
    visibility: Visibility = "public"
    invited: frozenset[VolunteerId] = frozenset()
    """Who may help, where only a group may."""
    public: str = ""
    """The host's whole public key, in hexadecimal digits, for members to check whom they reach;
    empty: only its fingerprint is known."""
    routes: tuple[str, ...] = ()
    """Ways to the host (`domain.routes`), the best first; told to members only. None: `address`."""

    def __post_init__(self) -> None:
        check_job_id(self.id)
        check_hyperparameters(self.hyperparameters)
        if not 0 < len(self.title) <= MAX_TITLE or not self.title.isprintable():
            raise ValueError(f"a title has 1 to {MAX_TITLE} printable characters")
        if len(self.cause) > MAX_TITLE or not self.cause.isprintable():
            raise ValueError(f"a cause has at most {MAX_TITLE} printable characters")
        if len(self.contact) > MAX_TITLE or not self.contact.isprintable():
            raise ValueError(f"a contact has at most {MAX_TITLE} printable characters")
        if len(self.description) > MAX_DESCRIPTION or not _is_prose(self.description):
            raise ValueError(f"a description has at most {MAX_DESCRIPTION} printable characters")
        route = route_of(self.address)
        if route.kind != "direct" or route.url:
            raise ValueError(f"an address is HOST:PORT, not {self.address[:70]!r}")
        if len(self.key) > 128 or not self.key.isprintable():
            raise ValueError("a key's fingerprint has at most 128 printable characters")
        if not 0 <= self.minimum <= self.maximum or not 0 < self.maximum <= MAX_VOLUNTEERS:
            raise ValueError(
                f"{self.minimum} to {self.maximum} volunteers; a job takes 1 to {MAX_VOLUNTEERS}"
            )
        if len(self.invited) > MAX_INVITED or any(not 0 < len(who) <= 64 for who in self.invited):
            raise ValueError(f"at most {MAX_INVITED} volunteers are invited, by their ids")
        if self.invited and self.visibility != "group":
            raise ValueError("only a job for a group invites; set its visibility to group")
        if not _PUBLIC.fullmatch(self.public):
            raise ValueError("a public key has 64 lower-case hexadecimal digits")
        check_routes(self.routes)


def check_routes(routes: tuple[str, ...]) -> None:
    """Raises ValueError."""
    if len(routes) > MAX_ROUTES:
        raise ValueError(f"at most {MAX_ROUTES} ways to a host, not {len(routes)}")
    for route in routes:
        route_of(route)


def _is_prose(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


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
class JobRecord:
    """A listing and whose it is."""

    listing: JobListing
    owner: str
    """The host's public key, in hexadecimal digits."""
    first_free: int = 1
    """No position below this one is given away, whatever else is known of the roster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolunteerRecord:
    """A registered volunteer: who it is, what it offers and wants, and whom it works for."""

    volunteer: Volunteer
    owner: str
    """Its public key, in hexadecimal digits."""
    since: float
    """When it began to wait: its place in the queue."""
    machine: Machine = Machine()
    wants: Wants = ANYONE
    avoid: frozenset[JobId] = frozenset()
    """Jobs it has just left or could not reach."""
    job: JobId | None = None
    """What it works for; None: it waits."""

    def __post_init__(self) -> None:
        if len(self.avoid) > MAX_AVOIDED or any(len(job) > 64 for job in self.avoid):
            raise ValueError(f"at most {MAX_AVOIDED} jobs can be avoided, not {len(self.avoid)}")
        if not (math.isfinite(self.since) and self.since >= 0):
            raise ValueError(f"waiting since {self.since}")

    @property
    def id(self) -> VolunteerId:
        return self.volunteer.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Gift:
    """What a volunteer gave to a job, all of it so far."""

    units: int
    samples: int
    flop: float
    """Multiplications and additions its samples took."""

    def __post_init__(self) -> None:
        if not (0 <= self.units < MAX_COUNT and 0 <= self.samples < MAX_COUNT):
            raise ValueError(f"{self.units} units of {self.samples} samples")
        if not 0 <= self.flop < 1e30:
            raise ValueError(f"{self.flop} FLOP")


NOTHING = Gift(units=0, samples=0, flop=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """A volunteer's gift to a job, as the host reports it and as the volunteer has signed it."""

    job: JobId
    title: str
    host: str
    """Fingerprint of the host's key."""
    volunteer: VolunteerId
    reported: Gift
    reported_at: float
    signed: Gift | None = None
    signature: str = ""
    """The volunteer's, over `signed`, in hexadecimal digits; both or neither."""

    def __post_init__(self) -> None:
        if (self.signed is None) != (self.signature == ""):
            raise ValueError("a countersigned gift comes with its signature")
        if not math.isfinite(self.reported_at):
            raise ValueError(f"reported at {self.reported_at}")

    @property
    def agreed(self) -> bool:
        """Whether both sides say the same."""
        return self.signed == self.reported

    @property
    def sure(self) -> Gift:
        """What both sides say at least: neither alone can make it more."""
        one, other = self.reported, self.signed or NOTHING
        return Gift(
            units=min(one.units, other.units),
            samples=min(one.samples, other.samples),
            flop=min(one.flop, other.flop),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What all volunteers gave to all jobs, as far as both sides are sure of it."""

    volunteers: int
    """Who gave anything."""
    jobs: int
    """Who were given anything."""
    samples: int
    flop: float
