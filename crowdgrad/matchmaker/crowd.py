"""The crowd: who is here now or may be back, and in which group."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import JobRecord, Presence
from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker.guests import Guest, Host
from crowdgrad.matchmaker.mail import Connection
from crowdgrad.planner.matchmaking import Opening, Patience
from crowdgrad.store.base import Store


class Crowd:
    def __init__(self, store: Store, *, clock: Callable[[], float], patience: Patience) -> None:
        """Those who were here when the service last ended have a while to come back."""
        self._store = store
        self._clock = clock
        self._patience = patience
        self.hosts: dict[JobId, Host] = {}
        self.guests: dict[VolunteerId, Guest] = {}
        self._groups: dict[JobId, set[VolunteerId]] = {}
        self.left_at: OrderedDict[VolunteerId, float] = OrderedDict()
        """Those who were lost and may come back for their place in the line."""
        now = clock()
        for record in store.jobs():
            self.hosts[record.listing.id] = Host(now)
        for volunteer in store.volunteers():
            if volunteer.job is not None and volunteer.job in self.hosts:
                self.guests[volunteer.id] = Guest(volunteer, now, patience)
                self.join(volunteer.id, volunteer.job)
            else:
                self.left_at[volunteer.id] = now

    # Groups

    def join(self, volunteer: VolunteerId, job: JobId) -> None:
        self._groups.setdefault(job, set()).add(volunteer)

    def leave(self, volunteer: VolunteerId, job: JobId) -> None:
        self.group(job).discard(volunteer)

    def disband(self, job: JobId) -> None:
        """The job is forgotten."""
        self._groups.pop(job, None)

    def group(self, job: JobId) -> set[VolunteerId]:
        return self._groups.get(job, set())

    def members_of(self, job: JobId) -> list[Guest]:
        return [self.guests[name] for name in sorted(self.group(job))]

    # What the matching asks

    def opening(self, record: JobRecord) -> Opening:
        if not record.listing.open:  # all that matters of it is that it is over
            return Opening(listing=record.listing, presence="gone", members=0)
        job = record.listing.id
        present = self.host_presence(job)
        if job in self.hosts:
            self.hosts[job].seen = present
        members = self.group(job)
        return Opening(
            listing=record.listing,
            presence=present,
            members=len(members),
            places=self._store.next_position(job),
            help=sum(self.guests[name].gflops for name in members),
        )

    def has_room(self, job: JobId) -> bool:
        """As far as the matching has seen."""
        record, host = self._store.job(job), self.hosts.get(job)
        if record is None or not record.listing.open or host is None or host.seen != "alive":
            return False
        return len(self.group(job)) < record.listing.offer.maximum

    def host_presence(self, job: JobId) -> Presence:
        host = self.hosts.get(job)
        return "gone" if host is None else host.presence(self._clock(), self._patience)

    # Everyone

    def silent(self, now: float) -> list[Guest]:
        """Those of whom nothing was heard for so long that they are gone."""
        return [
            guest
            for guest in self.guests.values()
            if now - guest.heard_at >= guest.patience.gone_after_s
        ]

    def absent_since(self) -> float:
        """Since when whoever left first is away; infinity: nobody is."""
        return next(iter(self.left_at.values()), math.inf)

    def connections(self) -> list[Connection]:
        everyone: list[Host | Guest] = [*self.hosts.values(), *self.guests.values()]
        return [person.connection for person in everyone if person.connection is not None]
