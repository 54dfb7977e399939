"""Seating: whom the planner gives a seat in one pass, and what the others are told.

A pass looks only at what is new: volunteers that came or changed, and, in the order in which they
wait, as many others as it takes to fill the jobs that have room which they had not before. The
reasons why the others wait are told a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crowdgrad.domain.job import JobId
from crowdgrad.matchmaker import credits
from crowdgrad.matchmaker.crowd import Crowd
from crowdgrad.matchmaker.guests import Guest
from crowdgrad.matchmaker.line import Line
from crowdgrad.matchmaker.mail import Mail
from crowdgrad.net import rooms
from crowdgrad.planner.matchmaking import Hall, place
from crowdgrad.store.base import Store

SEATS_AT_ONCE = 200
"""How many are given a seat in one pass: others are to be heard in between."""
TELL_AT_ONCE = 25
"""Of those who wait, how many are told in one pass that the reason has changed."""

FEW = 4
"""With more jobs than that it takes longer to ask each of them than to ask the hall."""


class Seating:
    def __init__(
        self,
        store: Store,
        crowd: Crowd,
        line: Line,
        mail: Mail,
        *,
        wall: Callable[[], float],
    ) -> None:
        self._store = store
        self._crowd = crowd
        self._line = line
        self._mail = mail
        self._wall = wall
        self._hall: Hall | None = None
        """The openings as the last pass left them; None: something about them has changed."""
        self._roomier: set[JobId] = set()
        """Jobs that may take somebody now whom they did not take before."""
        self._passed_over: dict[str, int] = {}
        self.unfinished = False
        """Whether the last pass left something for another one."""

    def openings_changed(self, *roomier: JobId) -> None:
        """`roomier`: the jobs that may take somebody now whom they did not take before."""
        self._hall = None
        self._roomier.update(roomier)

    def step(self, now: float) -> dict[Guest, str]:
        """One pass; returns who got a seat, and why."""
        self.unfinished = False
        hall = self._hall or self._look_around()
        newly = self._seat_all(hall, now)
        self._passed_over = hall.passed_over
        # The hall knows who has just sat down; only what else has changed makes it out of date.
        self._hall = hall
        self._tell_some(hall, now)
        return newly

    def _look_around(self) -> Hall:
        openings = [self._crowd.opening(record) for record in self._store.jobs()]
        self._line.reasons_changed()
        return Hall(openings, now=self._wall(), passed_over=self._passed_over)

    # Seats

    def _seat_all(self, hall: Hall, now: float) -> dict[Guest, str]:
        newly: dict[Guest, str] = {}
        new, fillable = self._line.newcomers, self._fillable()
        for name in self._line.everyone() if fillable else self._line.only_new():
            if not new and not fillable:
                break
            if len(newly) >= SEATS_AT_ONCE:
                self.unfinished = True
                return newly
            guest, is_new = self._crowd.guests[name], name in new
            new.discard(name)
            if not is_new and not self._is_worth_a_look(guest, hall):
                continue
            if not self._is_heard(guest, now):
                continue
            decision = hall.seat(guest.as_matched())
            if decision is not None and decision.job is not None:
                self._seat(guest, decision.job)
                newly[guest] = decision.reason
                fillable = self._fillable()
            elif is_new:
                self._tell_waiting(guest, hall.why(guest.as_matched()))
        self._roomier.clear()
        return newly

    def _fillable(self) -> bool:
        """Whether a job that has become roomier still has room."""
        while self._roomier:
            job = next(iter(self._roomier))
            if self._crowd.has_room(job):
                return True
            self._roomier.discard(job)
        return False

    def _is_worth_a_look(self, guest: Guest, hall: Hall) -> bool:
        """Nobody whom a pass has looked at gets a seat but from a job that is roomier since."""
        return len(self._roomier) > FEW or hall.might_take(guest.as_matched(), self._roomier)

    def _is_heard(self, guest: Guest, now: float) -> bool:
        """The silent ones are told that this is why they are passed over."""
        if guest.presence(now) == "alive":
            return True
        self._tell_waiting(guest, "waiting: nothing was heard from you for a while")
        return False

    def _seat(self, guest: Guest, job: JobId) -> None:
        known = self._store.member(job, guest.id)
        if known is not None and known.position == 0:  # the host calls its own worker like that
            self._store.forget_member(job, guest.id)
            known = None
        free = self._store.next_position(job)
        member, _ = place(known, free, guest.id, guest.record.volunteer.name)
        self._store.add_member(job, member)
        self._line.leave(guest.id)
        guest.record = replace(guest.record, job=job)
        self._store.put_volunteer(guest.record)
        record = self._store.job(job)
        assert record is not None, job
        credits.open_account(self._store, record, guest.id, self._wall())
        guest.returning = None
        self._crowd.join(guest.id, job)

    # Reasons

    def _tell_waiting(self, guest: Guest, reason: str) -> None:
        if guest.told != reason:
            guest.told = reason
            self._mail.write(guest.connection, rooms.StillWaiting(reason=reason))

    def _tell_some(self, hall: Hall, now: float) -> None:
        """Tell the next few of those who wait why, where that has changed."""
        for name in self._line.next_to_tell(TELL_AT_ONCE):
            guest = self._crowd.guests[name]
            if guest.presence(now) == "alive":
                self._tell_waiting(guest, hall.why(guest.as_matched()))
        self.unfinished |= self._line.has_to_tell
