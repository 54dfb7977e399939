"""What a volunteer that named no job finds among the openings; looked up once for all of its kind.

Thousands wait, and hardly two describe themselves in the same words. But two are of a kind when no
opening can tell them apart, and there are few kinds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterable
from operator import attrgetter

from crowdgrad.domain.matching import VolunteerRecord
from crowdgrad.planner.obstacles import (
    AMOUNTS,
    FULL,
    HOST,
    Found,
    add,
    liked,
    obstacle,
    waiting,
    why_nothing,
    why_waiting,
)
from crowdgrad.planner.seats import Seats


class Survey:
    """What volunteers of one kind, who named no job, find in the hall."""

    def __init__(self, volunteer: VolunteerRecord, vacant: Iterable[Seats]) -> None:
        ranks = liked(volunteer.wants.causes)
        tiers: dict[int, list[Seats]] = {}
        for seats in vacant:
            if seats.visible(volunteer, named=False) and obstacle(seats.offer, volunteer) is None:
                tiers.setdefault(ranks.get(seats.cause, len(ranks)), []).append(seats)
        self._tiers = [tiers[rank] for rank in sorted(tiers, reverse=True)]
        self._said: dict[Hashable, str] = {}
        self._found: Found | None = None
        """What is in their way, of all they may know of; None: nobody has asked yet."""
        self._suits: list[Seats] = []
        self._silent = 0

    def best(self) -> list[Seats]:
        """The openings they like best, of those that still have room."""
        while self._tiers:
            self._tiers[-1] = [seats for seats in self._tiers[-1] if seats.room]
            if self._tiers[-1]:
                return self._tiers[-1]
            self._tiers.pop()
        return []

    def why(
        self, volunteer: VolunteerRecord, known: Iterable[Seats], silent: Iterable[Seats]
    ) -> str:
        """Why one of them waits.

        `known`: all it may know of, full or not; `silent`: those whose hosts do not answer.
        """
        if best := self.best():
            return waiting(best[0].how_full())
        if self._found is None:
            self._found = self._look_around(volunteer, known)
            self._silent = sum(obstacle(seats.offer, volunteer) is not HOST for seats in silent)
        key = tuple([row.mentions(volunteer) for row in self._found])
        if key not in self._said:
            self._said[key] = self._sentence(self._found, volunteer)
        return self._said[key]

    def _look_around(self, volunteer: VolunteerRecord, known: Iterable[Seats]) -> Found:
        found: Found = {}
        for seats in known:
            row = obstacle(seats.offer, volunteer)
            if row is None:
                self._suits.append(seats)
            if row is not HOST:
                add(found, row or FULL, seats.offer)
        return found

    def _sentence(self, found: Found, volunteer: VolunteerRecord) -> str:
        if len(self._suits) == 1 and len(found) == 1:
            return waiting(self._suits[0].how_full())
        return why_waiting(found, volunteer) if found else why_nothing(self._silent, volunteer)


_AMOUNTS = attrgetter(*(row.have for row in AMOUNTS))


class Kinds:
    """Which volunteers these openings cannot tell apart.

    Speeds are measured and hardly ever equal, and people write what they like: what no opening asks
    for is left out, and of an amount only how many of the amounts asked for it reaches.
    """

    def __init__(self, known: Collection[Seats], silent: Collection[Seats] = ()) -> None:
        """`silent`: of these it only matters who may know of them, and whose they are."""
        offers = [seats.offer for seats in known]
        others = [*offers, *(seats.offer for seats in silent)]
        needs = [offer.requirements for offer in offers]
        self._levels = [sorted({row.need(need) for need in needs}) for row in AMOUNTS]
        self._data = sorted({need.data_mb for need in needs})
        self._engines = frozenset[str]().union(*(need.engines for need in needs))
        self._hosts = frozenset(offer.key for offer in others)
        self._causes = frozenset(seats.cause for seats in known)
        self._jobs = frozenset(offer.id for offer in offers)
        self._invited = frozenset[str]().union(*(offer.invited for offer in others))

    def of(self, volunteer: VolunteerRecord) -> Hashable:
        machine, wants, about = volunteer.machine, volunteer.wants, volunteer.volunteer
        limit = machine.most_download_mb
        return (
            tuple(map(bisect_right, self._levels, _AMOUNTS(volunteer))),
            bisect_right(self._data, limit) if limit else None,
            machine.kind,
            machine.gpu != "",
            about.engine if about.engine in self._engines else None,
            wants.hosts if wants.hosts is None else wants.hosts & self._hosts,
            wants.only_causes,
            wants.causes and tuple(c for c in liked(wants.causes) if c in self._causes),
            volunteer.avoid and volunteer.avoid & self._jobs,
            about.id if about.id in self._invited else None,
        )
