"""Who works for whom: first in, first out.

Volunteers are taken in the order in which they began to wait. Each goes to the oldest open job that
still lacks its minimum, else to the oldest open job with room, else it goes on waiting and is told
why. One that named a job goes there or nowhere. As long as few volunteers avoid jobs, a pass costs
O(volunteers + jobs), so that ten thousand can wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crowdgrad.domain.job import MAX_ROSTER, JobId, Member
from crowdgrad.domain.matching import JobListing, Presence, Waiting, as_code
from crowdgrad.domain.work import VolunteerId


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    volunteer: VolunteerId
    job: JobId | None
    """None: it goes on waiting."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long silence is borne."""

    suspect_after_s: float = 12.0
    """Three heartbeats: a suspect is given no new partner."""
    gone_after_s: float = 30.0
    """From here on it is treated as if it had said good-bye."""

    def __post_init__(self) -> None:
        if not 0 < self.suspect_after_s <= self.gone_after_s:
            raise ValueError(
                f"suspect after {self.suspect_after_s}, gone after {self.gone_after_s}"
            )


def presence(silent_s: float, connected: bool, patience: Patience) -> tuple[Presence, str]:
    """How present someone is who was last heard `silent_s` ago."""
    if silent_s >= patience.gone_after_s:
        return "gone", f"silent for {silent_s:.0f} s"
    if not connected:
        return "suspect", "the connection was lost"
    if silent_s >= patience.suspect_after_s:
        return "suspect", f"silent for {silent_s:.0f} s"
    return "alive", "heard a moment ago"


def place(
    known: Member | None, next_position: int, volunteer: VolunteerId, name: str
) -> tuple[Member, str]:
    """A volunteer's place in a roster: the one it had, or a new one that nobody ever had."""
    if known is not None:
        return known, f"back at position {known.position}"
    member = Member(position=next_position, id=volunteer, name=name)
    return member, f"new at position {next_position}"


def match(waiting: Iterable[Waiting], openings: Iterable[Opening]) -> tuple[Decision, ...]:
    """One decision for every waiting volunteer, in order of arrival."""
    hall = _Hall(sorted(openings, key=lambda o: (o.listing.published_at, o.listing.id)))
    queue = sorted(waiting, key=lambda w: (w.since, w.volunteer))
    return tuple(hall.decide(volunteer) for volunteer in queue)


class _Seats:
    """One opening while it fills."""

    def __init__(self, opening: Opening) -> None:
        self.offer = opening.listing.offer
        self.listing = opening.listing
        self.presence = opening.presence
        self.taken = opening.members
        self.places = opening.places

    @property
    def available(self) -> bool:
        return self.listing.open and self.presence == "alive"

    @property
    def room(self) -> bool:
        return self.taken < self.offer.maximum and self.places < MAX_ROSTER

    @property
    def lacking(self) -> bool:
        return self.room and self.taken < self.offer.minimum

    def take(self) -> str:
        before, lacking = self.taken, self.lacking
        self.taken += 1
        self.places += 1
        if lacking:
            return f"job {self.offer.title} needs {self.offer.minimum} volunteers and had {before}"
        return f"job {self.offer.title} has room ({before} of {self.offer.maximum})"

    def why_not(self) -> str:
        title = self.offer.title
        if not self.listing.open:
            return f"waiting: job {title} is over ({self.listing.state})"
        if self.presence != "alive":
            return f"waiting: the host of job {title} does not answer"
        if self.places >= MAX_ROSTER:
            return f"waiting: job {title} has given away all its {MAX_ROSTER} places"
        return f"waiting: job {title} is full ({self.taken} of {self.offer.maximum})"


class _Hall:
    """The openings during one pass; the two queues drop a job once its seats are taken."""

    def __init__(self, openings: Sequence[Opening]) -> None:
        seats = [_Seats(opening) for opening in openings]
        self._by_id = {s.offer.id: s for s in seats}
        self._by_code = {s.listing.code: s for s in seats}
        self._available = [s for s in seats if s.available]
        self._lacking = deque(s for s in self._available if s.lacking)
        self._roomy = deque(s for s in self._available if s.room)

    def decide(self, volunteer: Waiting) -> Decision:
        seats = self._named(volunteer) if volunteer.wants is not None else self._first(volunteer)
        if isinstance(seats, str):
            return Decision(volunteer=volunteer.volunteer, job=None, reason=seats)
        return Decision(volunteer=volunteer.volunteer, job=seats.offer.id, reason=seats.take())

    def _named(self, volunteer: Waiting) -> _Seats | str:
        wants = volunteer.wants or ""
        seats = self._by_id.get(JobId(wants))
        if seats is None and (code := as_code(wants)) is not None:
            seats = self._by_code.get(code)
        if seats is None:
            return f"waiting: nobody has published a job called {wants}"
        if seats.offer.id in volunteer.avoid:
            return f"waiting: you left job {seats.offer.title}"
        return seats if seats.available and seats.room else seats.why_not()

    def _first(self, volunteer: Waiting) -> _Seats | str:
        while self._lacking and not self._lacking[0].lacking:
            self._lacking.popleft()
        while self._roomy and not self._roomy[0].room:
            self._roomy.popleft()
        for seats in self._lacking:
            if seats.lacking and seats.offer.id not in volunteer.avoid:
                return seats
        for seats in self._roomy:
            if seats.room and seats.offer.id not in volunteer.avoid:
                return seats
        return self._why_none(volunteer)

    def _why_none(self, volunteer: Waiting) -> str:
        if not self._available:
            return "waiting: no job is open"
        if volunteer.avoid and any(s.offer.id in volunteer.avoid for s in self._available):
            return "waiting: no job has room besides those you left"
        if len(self._available) == 1:
            return self._available[0].why_not()
        return f"waiting: all {len(self._available)} open jobs are full"
