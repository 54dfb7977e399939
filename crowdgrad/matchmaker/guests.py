"""Who is here: the owner of a job, and a volunteer that waits or works."""

from __future__ import annotations

from dataclasses import replace

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Presence, VolunteerRecord, Wants
from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker.mail import Connection
from crowdgrad.planner.matchmaking import Patience, presence

UNKNOWN_GFLOPS = 1.0
"""What a volunteer of unknown speed counts for."""


class Host:
    """The owner of a job."""

    def __init__(self, heard_at: float) -> None:
        self.heard_at = heard_at
        self.connection: Connection | None = None
        self.seen: Presence = "suspect"
        """How present it was when the matching last asked."""
        self.progress: float | None = None
        """How much of its job is done, as it said last."""

    def presence(self, now: float, patience: Patience) -> Presence:
        return presence(now - self.heard_at, self.connection is not None, patience)[0]


class Guest:
    """A volunteer that is here, or that has a job and may be back."""

    def __init__(self, record: VolunteerRecord, heard_at: float, patience: Patience) -> None:
        self.record = record
        self.patience = patience
        self.heard_at = heard_at
        self.waits_from = heard_at
        self.connection: Connection | None = None
        self.session = ""
        self.returning: JobId | None = None
        """The job it says it works for, which is not known here (yet)."""
        self.asked = 0
        """Its question that is open, or was answered last."""
        self.told = ""

    @property
    def id(self) -> VolunteerId:
        return self.record.id

    @property
    def waits(self) -> bool:
        return self.record.job is None and self.connection is not None

    @property
    def gflops(self) -> float:
        return self.record.machine.gflops or UNKNOWN_GFLOPS

    def presence(self, now: float) -> Presence:
        return presence(now - self.heard_at, self.connection is not None, self.patience)[0]

    def as_matched(self) -> VolunteerRecord:
        """What the planner is shown: one that comes back to its job wants that and nothing else."""
        if self.returning is None:
            return self.record
        return replace(self.record, wants=Wants(job=self.returning), avoid=frozenset())
