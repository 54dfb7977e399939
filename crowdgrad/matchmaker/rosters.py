"""Rosters: who hears, and when, that the group of a job has changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import JobRecord
from crowdgrad.matchmaker.crowd import Crowd
from crowdgrad.matchmaker.guests import Guest
from crowdgrad.matchmaker.letters import Letters
from crowdgrad.matchmaker.mail import Mail
from crowdgrad.net import rooms
from crowdgrad.store.base import Store

ROSTER_S = 0.01
"""For each member, how long the others wait to hear that the roster has changed again: telling a
thousand members of a thousand members takes 70 MB."""
MOVED_S = 5.0
"""How long members wait at least to hear that the host has moved again."""


class Rosters:
    def __init__(self, store: Store, crowd: Crowd, letters: Letters, mail: Mail) -> None:
        self._store = store
        self._crowd = crowd
        self._letters = letters
        self._mail = mail
        self._stirred: set[JobId] = set()
        """Jobs whose group changed since the last pass."""
        self._untold: set[JobId] = set()
        """Jobs whose members do not know the roster of now."""
        self._told_at: dict[JobId, float] = {}
        self._moved: set[JobId] = set()
        """Jobs whose members do not know where the host is now."""
        self._told_moved_at: dict[JobId, float] = {}

    def of(self, job: JobId) -> rooms.RosterChanged:
        return self._letters.roster(job, self._crowd.group(job))

    def stir(self, job: JobId) -> None:
        """Its group has changed."""
        self._stirred.add(job)

    def move(self, job: JobId) -> None:
        """Its host is to be reached elsewhere."""
        self._moved.add(job)

    def forget(self, job: JobId) -> None:
        self._told_at.pop(job, None)
        self._told_moved_at.pop(job, None)

    def tell_some(self, record: JobRecord, guests: Iterable[Guest], reason: str) -> None:
        """Members hear which job they have, and why."""
        roster = self.of(record.listing.id)
        for guest in guests:
            said = self._letters.matched(record, guest, roster, reason)
            self._mail.write(guest.connection, said)

    def tell(self, newly: Mapping[Guest, str], now: float) -> None:
        """Host and newcomers hear of a change at once, the other members when it is their turn."""
        self._tell_moved(newly, now)
        for job in sorted(self._stirred | self._untold):
            record, here = self._store.job(job), len(self._crowd.group(job))
            if record is None:
                self._untold.discard(job)
                continue
            everybody = now - self._told_at.get(job, -math.inf) >= ROSTER_S * here
            if job in self._stirred or everybody:
                self._tell_group(record, newly, everybody=everybody)
            if everybody:
                self._told_at[job] = now
                self._untold.discard(job)
            else:
                self._untold.add(job)
        self._stirred.clear()

    def _tell_moved(self, newly: Mapping[Guest, str], now: float) -> None:
        """Members hear at once where their host is now; of one that moves often, now and then."""
        for job in sorted(self._moved):
            record, here = self._store.job(job), self._crowd.members_of(job)
            again_s = max(MOVED_S, ROSTER_S * len(here))
            if record is not None and now - self._told_moved_at.get(job, -math.inf) < again_s:
                continue
            self._moved.discard(job)
            if record is not None:
                self._told_moved_at[job] = now
                others = [guest for guest in here if guest not in newly]
                self.tell_some(record, others, "the host has moved")

    def _tell_group(
        self, record: JobRecord, newly: Mapping[Guest, str], *, everybody: bool
    ) -> None:
        job = record.listing.id
        roster = self.of(job)
        host = self._crowd.hosts.get(job)
        if host is not None:
            self._mail.write(host.connection, roster)
        for guest in self._crowd.members_of(job):
            reason = newly.get(guest)
            if reason is not None:
                said = self._letters.matched(record, guest, roster, reason)
                self._mail.write(guest.connection, said)
            elif everybody:
                self._mail.write(guest.connection, roster)
