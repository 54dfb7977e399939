"""Who works for whom: first in, first out, as far as people and jobs suit each other.

Volunteers are taken in the order in which they began to wait. Of the openings that suit one
(`obstacles.py`) and have room, those for the cause it likes best are left; of these it takes, in
this order of importance (`seats.py`),

1. one of the host that was passed over most often, if that is often (`OVERDUE`);
2. one that lacks its minimum (a job with nobody lacks one), the oldest first, so that groups fill
   one after the other;
3. one of the host with the least help, then the oldest.

A host is passed over when a volunteer that could have come, and likes its job as much, goes to
another; when somebody comes it begins anew at 0. With at most H hosts at a time none is passed over
more than OVERDUE + H - 2 times in a row, since after every seat at most H - 1 - k of them stand at
OVERDUE + k or above. For k = 0: whoever was served stands at 0. For a higher k: if somebody rises
to OVERDUE + k, the one served stood no lower than that one did, at OVERDUE + k - 1; there or above
stood at most H - k, and they are one less now.

A pass costs O(volunteers + kinds of volunteers × jobs with room) (`survey.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from crowdgrad.domain.job import JobId, Member
from crowdgrad.domain.matching import Hours, Presence, VolunteerRecord, as_code
from crowdgrad.domain.work import VolunteerId
from crowdgrad.planner.obstacles import obstacle, waiting
from crowdgrad.planner.seats import OVERDUE, Host, Opening, Seats
from crowdgrad.planner.survey import Kinds, Survey

__all__ = [
    "OVERDUE",
    "Decision",
    "Hall",
    "Opening",
    "Patience",
    "match",
    "place",
    "presence",
    "rhythm",
]

SLOWEST_BEAT_S: Final = 30.0


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


def rhythm(
    people: int, heartbeat_s: float, patience: Patience, most_per_s: float = 500.0
) -> tuple[float, Patience]:
    """How often each of so many says that it is here, and how long its silence is borne then.

    In a crowd beats are further apart, up to SLOWEST_BEAT_S, so that at most `most_per_s` arrive.
    Whoever was told a rhythm has to be judged by that one.
    """
    spaced_s = min(people / most_per_s, SLOWEST_BEAT_S)
    if spaced_s <= heartbeat_s:
        return heartbeat_s, patience
    slower = spaced_s / heartbeat_s
    return spaced_s, Patience(
        suspect_after_s=patience.suspect_after_s * slower,
        gone_after_s=patience.gone_after_s * slower,
    )


def place(
    known: Member | None, next_position: int, volunteer: VolunteerId, name: str
) -> tuple[Member, str]:
    """A volunteer's place in a roster: the one it had, or a new one that nobody ever had."""
    if known is not None:
        return known, f"back at position {known.position}"
    member = Member(position=next_position, id=volunteer, name=name)
    return member, f"new at position {next_position}"


def match(
    queue: Iterable[VolunteerRecord],
    openings: Iterable[Opening],
    *,
    now: float,
    passed_over: Mapping[str, int] | None = None,
) -> tuple[Decision, ...]:
    """One decision for everybody who waits, in order of arrival."""
    hall = Hall(openings, now=now, passed_over=passed_over or {})
    decisions = []
    for volunteer in sorted(queue, key=attrgetter("since", "volunteer.id")):
        seated = hall.seat(volunteer)
        decisions.append(
            seated or Decision(volunteer=volunteer.id, job=None, reason=hall.why(volunteer))
        )
    return tuple(decisions)


class Hall:
    """The openings, while volunteers take their seats one after the other.

    It only fills: nobody for whom there was no seat finds one later in the same hall.
    """

    def __init__(
        self, openings: Iterable[Opening], *, now: float, passed_over: Mapping[str, int]
    ) -> None:
        self._now = now
        self._hosts: dict[str, Host] = {}
        self._by_id: dict[str, Seats] = {}
        for opening in sorted(openings, key=attrgetter("listing.published_at", "listing.id")):
            key = opening.listing.offer.key
            if key not in self._hosts:
                self._hosts[key] = Host(passed_over.get(key, 0))
            self._by_id[opening.listing.id] = Seats(opening, self._hosts[key])
        everything = self._by_id.values()
        available = [seats for seats in everything if seats.available]
        self._by_code = {seats.listing.code: seats for seats in everything}
        self._vacant = [seats for seats in available if seats.room]
        self._answering = _Notices(available)
        self._silent = _Notices(s for s in everything if s.listing.open and not s.available)
        self._kinds = Kinds(self._answering.all, self._silent.all)
        self._surveys: dict[Hashable, Survey] = {}

    @property
    def room(self) -> bool:
        """Whether there is a seat left for anybody at all."""
        return bool(self._vacant)

    @property
    def passed_over(self) -> dict[str, int]:
        """How often in a row each host was passed over, by its fingerprint; left out: never."""
        return {key: host.passed_over for key, host in self._hosts.items() if host.passed_over}

    def seat(self, volunteer: VolunteerRecord) -> Decision | None:
        """Give somebody who waits a seat; None: none suits."""
        assert volunteer.job is None, volunteer
        if not self._vacant or self._too_early(volunteer) is not None:
            return None
        suitable = self._suitable(volunteer)
        if not suitable:
            return None
        chosen = min(suitable, key=Seats.order)
        reason = chosen.why(volunteer)
        for host in {seats.host for seats in suitable}:
            host.passed_over += 1
        chosen.take(volunteer.machine.gflops)
        if not chosen.room:
            self._vacant.remove(chosen)
        return Decision(volunteer=volunteer.id, job=chosen.offer.id, reason=reason)

    def might_take(self, volunteer: VolunteerRecord, jobs: Iterable[JobId]) -> bool:
        """Whether it is worth the while to ask `seat`, where only these jobs are new to it."""
        if volunteer.wants.job is not None:
            return True
        for seats in map(self._by_id.get, jobs):
            if (
                seats is not None
                and seats.room
                and seats.visible(volunteer, named=False)
                and obstacle(seats.offer, volunteer) is None
            ):
                return True
        return False

    def why(self, volunteer: VolunteerRecord) -> str:
        """Why somebody waits whom `seat` gave none."""
        seats = None
        if volunteer.wants.job is not None:
            seats = self._named(volunteer, volunteer.wants.job)
            if seats is None:
                return waiting(_unknown(volunteer.wants.job))
            if why_not := seats.why_not(volunteer):
                return waiting(why_not)
        if (hours := self._too_early(volunteer)) is not None:
            return waiting(f"your hours begin at {hours.start // 60:02}:{hours.start % 60:02} UTC")
        if seats is not None:
            return waiting(seats.how_full())
        known, silent = self._answering.known_to(volunteer), self._silent.known_to(volunteer)
        return self._survey(volunteer).why(volunteer, known, silent)

    def _too_early(self, volunteer: VolunteerRecord) -> Hours | None:
        """The hours of somebody who is not willing now."""
        hours = volunteer.machine.hours
        return None if hours is None or hours.include(self._now) else hours

    def _suitable(self, volunteer: VolunteerRecord) -> Collection[Seats]:
        """The openings with room that it likes best."""
        if volunteer.wants.job is None:
            return self._survey(volunteer).best()
        seats = self._named(volunteer, volunteer.wants.job)
        if seats is None or not seats.room or seats.why_not(volunteer):
            return ()
        return (seats,)

    def _named(self, volunteer: VolunteerRecord, job: str) -> Seats | None:
        """The job of that id or code, as far as the volunteer may know of it."""
        seats = self._by_id.get(job)
        if seats is not None and seats.visible(volunteer, named=True):
            return seats
        code = as_code(job)
        seats = None if code is None else self._by_code.get(code)
        return seats if seats is not None and seats.visible(volunteer, named=True) else None

    def _survey(self, volunteer: VolunteerRecord) -> Survey:
        kind = self._kinds.of(volunteer)
        survey = self._surveys.get(kind)
        if survey is None:
            survey = self._surveys[kind] = Survey(volunteer, self._vacant)
        return survey


class _Notices:
    """Openings that people may hear of who have named none."""

    def __init__(self, openings: Iterable[Seats]) -> None:
        self.all = [seats for seats in openings if seats.offer.visibility != "link"]
        self._public = [seats for seats in self.all if seats.offer.visibility == "public"]
        self._groups = [seats for seats in self.all if seats.offer.visibility == "group"]

    def known_to(self, volunteer: VolunteerRecord) -> Iterable[Seats]:
        yield from self._public
        yield from (seats for seats in self._groups if volunteer.id in seats.offer.invited)


def _unknown(job: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in job)
    hint = "" if as_code(job) is not None else "; a code looks like K7Q-2MP"
    return f"nobody has published a job called {shown}{hint}"
