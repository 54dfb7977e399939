"""What the room writes to people: welcomes, rosters, introductions, and a job as all may see it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from crowdgrad.domain.job import JobId, Roster
from crowdgrad.domain.matching import JobRecord, Presence
from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker.guests import Guest
from crowdgrad.net import bodies, introduction, rooms
from crowdgrad.net.identity import Identity
from crowdgrad.store.base import Store


class Letters:
    def __init__(
        self,
        store: Store,
        *,
        key: Identity,
        wall: Callable[[], float],
        public_url: str,
    ) -> None:
        """`key`: the matchmaker's own, which introductions are signed with."""
        self._store = store
        self._key = key
        self._wall = wall
        self._public_url = public_url

    def welcome(
        self, heartbeat_s: float, gone_after_s: float, record: JobRecord | None = None
    ) -> rooms.Welcome:
        """`record`: the job just published, if it is a host."""
        return rooms.Welcome(
            heartbeat_s=heartbeat_s,
            gone_after_s=gone_after_s,
            key=self._key.public.hex(),
            code="" if record is None else record.listing.code,
            link="" if record is None else self.link(record),
            hears_progress=record is not None,
        )

    def roster(self, job: JobId, here: Collection[VolunteerId]) -> rooms.RosterChanged:
        """The members present now, the host's own worker first."""
        members = (m for m in self._store.members(job) if m.position == 0 or m.id in here)
        roster = Roster(job=job, members=tuple(members))
        return rooms.RosterChanged.of(roster, self._store.next_position(job))

    def matched(
        self, record: JobRecord, guest: Guest, roster: rooms.RosterChanged, reason: str
    ) -> rooms.Matched:
        listing = record.listing
        member = self._store.member(listing.id, guest.id)
        assert member is not None, guest.record
        said = introduction.Introduction(
            job=listing.id,
            host=listing.offer.key,
            volunteer=guest.id,
            position=member.position,
            written_at=self._wall(),
        )
        return rooms.Matched(
            listing=bodies.ListingBody.of(listing),
            roster=roster,
            position=member.position,
            reason=reason,
            introduction=introduction.write(self._key, said),
            asked=guest.asked,
        )

    def summary(
        self, record: JobRecord, host: Presence, volunteers: int, progress: float | None
    ) -> rooms.JobSummary:
        """What anybody may know who may see the job at all."""
        listing, offer = record.listing, record.listing.offer
        return rooms.JobSummary(
            id=listing.id,
            title=offer.title,
            cause=offer.cause,
            key=offer.key,
            code=listing.code,
            state=listing.state,
            presence=host,
            minimum=offer.minimum,
            maximum=offer.maximum,
            volunteers=volunteers,
            published_at=listing.published_at,
            hyperparameters=offer.hyperparameters,
            description=offer.description,
            contact=offer.contact,
            requirements=bodies.RequirementsBody.of(offer.requirements),
            visibility=offer.visibility,
            link=self.link(record),
            progress=progress,
        )

    def link(self, record: JobRecord) -> str:
        return f"{self._public_url}/j/{record.listing.code}"
