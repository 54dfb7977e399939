"""One opening while it fills: whether it has room, who comes before whom, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crowdgrad.domain.job import MAX_ROSTER, JobId
from crowdgrad.domain.matching import JobListing, Presence, VolunteerRecord
from crowdgrad.planner.obstacles import MAX_REASON, clip, liked, obstacle, tidy, title_of

OVERDUE: Final = 16
"""A host that was passed over this often comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A job as the matching sees it."""

    listing: JobListing
    presence: Presence
    """Of the host."""
    members: int
    """Volunteers present, the host's own worker not counted."""
    places: int = 0
    """Positions ever given."""
    help: float = 0.0
    """The members' measured speeds together, 10⁹ FLOP/s; an unknown one counts 1."""


class Host:
    """What all openings of one host share."""

    __slots__ = ("help", "passed_over")

    def __init__(self, passed_over: int) -> None:
        self.help = 0.0
        self.passed_over = passed_over


class Seats:
    __slots__ = ("_age", "_places", "_taken", "available", "cause", "host", "listing", "offer",
                 "room")  # fmt: skip

    def __init__(self, opening: Opening, host: Host) -> None:
        self.listing = opening.listing
        self.offer = opening.listing.offer
        self.host = host
        self.available = opening.listing.open and opening.presence == "alive"
        self.cause = tidy(self.offer.cause)
        self._age = (self.listing.published_at, self.listing.id)
        self._taken = opening.members
        self._places = opening.places
        self.room = self._has_room()
        host.help += opening.help

    def _has_room(self) -> bool:
        return self.available and self._taken < self.offer.maximum and self._places < MAX_ROSTER

    @property
    def _lacking(self) -> bool:
        return self._taken < max(1, self.offer.minimum)

    def order(self) -> tuple[int, bool, float, tuple[float, JobId]]:
        """The lower, the sooner somebody comes."""
        passed_over, lacking = self.host.passed_over, self._lacking
        overdue = passed_over if passed_over >= OVERDUE else 0
        return -overdue, not lacking, 0.0 if lacking else self.host.help, self._age

    def take(self, gflops: float) -> None:
        self._taken += 1
        self._places += 1
        self.room = self._has_room()
        self.host.help += gflops or 1.0
        self.host.passed_over = 0

    def visible(self, volunteer: VolunteerRecord, *, named: bool) -> bool:
        """Whether somebody may know of it."""
        if self.offer.visibility == "group":
            return volunteer.id in self.offer.invited
        return named or self.offer.visibility == "public"

    def why(self, volunteer: VolunteerRecord) -> str:
        """Why somebody comes, said before it has come."""
        why = f"job {title_of(self.offer)} {self._state()}"
        if volunteer.wants.job is not None:
            why += "; you asked for it"
        elif self.cause in liked(volunteer.wants.causes):
            why += f"; you like {clip(self.offer.cause.strip(), 60)}"
        if self.host.passed_over >= OVERDUE:
            why += "; its host had waited long"
        return clip(why, MAX_REASON)

    def _state(self) -> str:
        minimum = self.offer.minimum
        if not self._lacking:
            return f"has room ({self._taken} of {self.offer.maximum})"
        if minimum == 0:
            return "had no volunteer yet"
        volunteers = "volunteer" if minimum == 1 else "volunteers"
        return f"needs {minimum} {volunteers} and had {self._taken or 'none'}"

    def why_not(self, volunteer: VolunteerRecord) -> str:
        """Why somebody does not come, be there room or not; empty: it would."""
        job = f"job {title_of(self.offer)}"
        if not self.listing.open:
            return f"{job} is over ({self.listing.state})"
        row = obstacle(self.offer, volunteer)
        if row is not None:
            return row.one(job, self.offer, volunteer)
        return "" if self.available else f"the host of {job} does not answer"

    def how_full(self) -> str:
        job = f"job {title_of(self.offer)}"
        if self.room:
            return f"{job} has room, in a moment it is your turn"
        if self._places >= MAX_ROSTER:
            return f"{job} has given away all its {MAX_ROSTER:,} places"
        return f"{job} is full ({self._taken} of {self.offer.maximum})"
