"""How a host is to run, where it is found once it does, and how that ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from crowdgrad.domain.job import JobState
from crowdgrad.host.door import Admit
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.servers.hiring import NO_SERVERS, Wanted
from crowdgrad.host.telling.status import Status
from crowdgrad.numerics.vectors import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where and how a host runs; what it trains is in `Prepared`."""

    runs: Path
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str | None = None
    """The address told to others, where it is not the one we listen on."""
    http_port: int = 0
    matchmaker: str | None = None
    helpers: int = 0
    """Volunteer processes started on this machine besides worker 0."""
    paces_ms: tuple[float, ...] = ()
    """How long worker 0 and each helper pause after a batch: slow machines, played."""
    matchmaker_key: bytes = b""
    """The matchmaker's, as an earlier host of the run has learned it."""
    admit: Admit | None = None
    """Whom to let in; None: as the job says."""
    any_port: bool = False
    """Take another port where `port` is in use."""
    servers: Wanted = NO_SERVERS
    """Parameter servers; none: this process holds the parameters."""
    relays: tuple[str, ...] = ()
    """Routes to relays of the owner's choice."""
    router: bool = True
    """The router may be asked to open a port."""
    page: tuple[str, int] | None = None
    """Address and port of the public page, where one is wanted."""
    any_page_port: bool = False
    """Take another port for it where that is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Where a running host is found."""

    address: str
    url: str
    folder: Path
    code: str | None
    key: str
    """Fingerprint of the host's key: what volunteers see and can compare."""
    link: str = ""
    """Leads to the job and carries the key: its page at the matchmaker, or ways to this host."""
    local_code: str = ""
    """What people on the same network type; empty where it is not announced there."""
    routes: tuple[str, ...] = ()
    """All ways to this host, the best first."""
    words: str = ""
    """How others come to it."""
    admit: Admit = "anyone"
    page: str = ""
    """The public page, where there is a listener for it."""
    title: str = ""
    """Of the job."""
    token: str = field(default="", repr=False)
    """What proves to the API that a wish is the owner's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    folder: Path
    status: Status
    parameters: Vector
    history: tuple[Scores, ...]
    link: str = ""
    """The job's page at the matchmaker."""

    @property
    def state(self) -> JobState:
        return self.status.state
