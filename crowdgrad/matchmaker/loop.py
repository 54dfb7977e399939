"""The room: who is here now, whom the planner matches, and who is told what.

Everything happens on one thread, between two awaits. What somebody says changes the room at once
and marks it as changed; `keep` then runs one pass (`step`) for all changes of the moment: lost
people leave, the planner decides, everyone concerned is told. Clock and connections
are passed in, so the same room runs under a virtual clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from crowdgrad.domain.job import JobId, JobState, Roster
from crowdgrad.domain.matching import JobRecord, Presence, Waiting
from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker.desk import Desk, Rules
from crowdgrad.matchmaker.refusal import Refusal, nonsense, replaced
from crowdgrad.net import rooms
from crowdgrad.planner.matchmaking import Decision, Opening, match, place, presence
from crowdgrad.store.base import Store


class Connection(Protocol):
    """One side of a socket. Both methods return at once."""

    def send(self, message: rooms.Said) -> None: ...

    def close(self, why: Refusal | None = None) -> None: ...


class Host:
    """The owner of a job."""

    def __init__(self, heard_at: float) -> None:
        self.heard_at = heard_at
        self.connection: Connection | None = None
        self.announced = True
        """Published a moment ago: its socket is still on the way."""


class Guest:
    """A volunteer with an open socket."""

    def __init__(self, waiting: Waiting, connection: Connection, heard_at: float) -> None:
        self.waiting = waiting
        self.connection = connection
        self.heard_at = heard_at
        self.job: JobId | None = None
        self.told = ""


class Room:
    def __init__(
        self, store: Store, desk: Desk, *, clock: Callable[[], float], rules: Rules
    ) -> None:
        self._store = store
        self._desk = desk
        self._clock = clock
        self._rules = rules
        self._hosts: dict[JobId, Host] = {}
        self._guests: dict[VolunteerId, Guest] = {}
        self._groups: dict[JobId, set[VolunteerId]] = {}
        self._stirred: set[JobId] = set()
        """Jobs whose group changed since the last pass."""
        self._left_at: dict[VolunteerId, float] = {}
        self.changed = asyncio.Event()

    # What hosts do

    def publish(self, body: rooms.Publish) -> rooms.Published:
        """Raises Refusal or MessageError."""
        before = self._store.job(JobId(body.offer.id))
        record, token = self._desk.publish(body, self.host_presence(JobId(body.offer.id)))
        host = self._hosts.setdefault(record.listing.id, Host(self._clock()))
        if host.connection is not None:  # of another life: what it still says is out of date
            host.connection.close(replaced())
            host.connection = None
        host.heard_at, host.announced = self._clock(), True
        self.changed.set()
        if before is not None and before.listing.offer != record.listing.offer:
            roster = self._roster_message(record.listing.id)
            for guest in self._members_of(record.listing.id):
                reason = "the host has published the job again"
                guest.connection.send(self._matched(record, guest, roster, reason))
        return rooms.Published(code=record.listing.code, token=token)

    def host_arrives(self, job: JobId, token: str, connection: Connection) -> None:
        """Raises Refusal."""
        record = self._desk.job_of(job, token)
        host = self._hosts.setdefault(record.listing.id, Host(self._clock()))
        if host.connection is not None:
            host.connection.close(replaced())
        host.connection, host.announced, host.heard_at = connection, False, self._clock()
        connection.send(self._roster_message(record.listing.id))
        self.changed.set()

    def host_says(self, job: JobId, message: rooms.FROM_HOST, connection: Connection) -> None:
        """Raises Refusal when the message is out of place."""
        host = self._hosts.get(job)
        if host is None or host.connection is not connection:
            return
        host.heard_at = self._clock()
        if isinstance(message, rooms.StillHere):
            connection.send(message)
        elif isinstance(message, rooms.StateChanged):
            self._change_state(job, message.state)
        else:
            raise nonsense("You have said who you are already.")

    def host_leaves(self, job: JobId, connection: Connection) -> None:
        host = self._hosts.get(job)
        if host is not None and host.connection is connection:
            host.connection = None
            self.changed.set()

    def host_presence(self, job: JobId) -> Presence:
        host = self._hosts.get(job)
        if host is None:
            return "gone"
        connected = host.connection is not None or host.announced
        return presence(self._clock() - host.heard_at, connected, self._rules.patience)[0]

    def _change_state(self, job: JobId, state: JobState) -> None:
        record = self._store.job(job)
        assert record is not None, job
        if not record.listing.open and state != record.listing.state:
            raise nonsense(f"Job {job} is over ({record.listing.state}); publish it again.")
        record = replace(record, listing=replace(record.listing, state=state))
        self._store.put_job(record)
        if not record.listing.open:
            for guest in list(self._members_of(job)):
                guest.connection.send(rooms.JobEnded(job=job, state=state))
                self._wait_again(guest, guest.waiting.wants, guest.waiting.avoid)
        self.changed.set()

    # What volunteers do

    def register(self, body: rooms.Register) -> rooms.Registered:
        """Raises Refusal or MessageError."""
        record, token = self._desk.register(
            body, here=VolunteerId(body.volunteer.id) in self._guests
        )
        self._replace(record.volunteer.id)
        self._left_at[record.volunteer.id] = self._clock()
        return rooms.Registered(token=token)

    def volunteer_arrives(self, volunteer: VolunteerId, token: str, connection: Connection) -> None:
        """Raises Refusal."""
        record = self._desk.volunteer_of(volunteer, token)
        name = record.volunteer.id
        self._replace(name)
        self._guests[name] = Guest(record.waiting, connection, self._clock())
        self._left_at.pop(name, None)
        self.changed.set()

    def _replace(self, volunteer: VolunteerId) -> None:
        """It begins anew: what its earlier socket still says is out of date."""
        before = self._guests.get(volunteer)
        if before is not None:
            before.connection.close(replaced())
            self.volunteer_leaves(volunteer, before.connection)

    def volunteer_says(
        self, volunteer: VolunteerId, message: rooms.FROM_VOLUNTEER, connection: Connection
    ) -> None:
        """Raises Refusal when the message is out of place."""
        guest = self._guests.get(volunteer)
        if guest is None or guest.connection is not connection:
            return
        guest.heard_at = self._clock()
        if isinstance(message, rooms.StillHere):
            connection.send(message)
        elif isinstance(message, rooms.Free):
            avoid = frozenset(JobId(job) for job in message.avoid)
            self._wait_again(guest, message.wants, avoid)
        else:
            raise nonsense("You have said who you are already.")

    def volunteer_leaves(self, volunteer: VolunteerId, connection: Connection) -> None:
        """Its place in the roster stays its own; the room it took is free."""
        guest = self._guests.get(volunteer)
        if guest is None or guest.connection is not connection:
            return
        self._leave_group(guest)
        del self._guests[volunteer]
        self._left_at[volunteer] = self._clock()
        self.changed.set()

    def _wait_again(self, guest: Guest, wants: str | None, avoid: frozenset[JobId]) -> None:
        self._leave_group(guest)
        guest.waiting = self._desk.wait_again(guest.waiting.volunteer, wants, avoid)
        guest.told = ""
        self.changed.set()

    def _leave_group(self, guest: Guest) -> None:
        if guest.job is not None:
            self._groups[guest.job].discard(guest.waiting.volunteer)
            self._stirred.add(guest.job)
            guest.job = None

    # One pass

    def step(self) -> None:
        """Let lost people go, decide, tell."""
        self._let_go()
        openings = [self._opening(record) for record in self._store.jobs()]
        waiting = self._waiting()
        newly: dict[VolunteerId, str] = {}
        for decision in match(waiting, openings):
            if decision.job is not None:
                self._seat(decision, decision.job)
                newly[decision.volunteer] = decision.reason
            else:
                self._tell_waiting(self._guests[decision.volunteer], decision.reason)
        self._tell_rosters(newly)

    def _waiting(self) -> list[Waiting]:
        """Whoever has no job and is heard; the silent ones are told that this is why."""
        found = []
        for guest in self._guests.values():
            silent_s = self._clock() - guest.heard_at
            if guest.job is not None:
                continue
            if presence(silent_s, True, self._rules.patience)[0] == "alive":
                found.append(guest.waiting)
            else:
                self._tell_waiting(guest, "waiting: nothing was heard from you for a while")
        return found

    def _seat(self, decision: Decision, job: JobId) -> None:
        record = self._store.volunteer(decision.volunteer)
        assert record is not None, decision
        known = self._store.member(job, decision.volunteer)
        free = self._store.next_position(job)
        member, _ = place(known, free, decision.volunteer, record.volunteer.name)
        self._store.add_member(job, member)
        self._guests[decision.volunteer].job = job
        self._groups.setdefault(job, set()).add(decision.volunteer)
        self._stirred.add(job)

    def _tell_waiting(self, guest: Guest, reason: str) -> None:
        if guest.told != reason:
            guest.told = reason
            guest.connection.send(rooms.StillWaiting(reason=reason))

    def _tell_rosters(self, newly: dict[VolunteerId, str]) -> None:
        for job in sorted(self._stirred):
            record = self._store.job(job)
            if record is None:
                continue
            roster = self._roster_message(job)
            host = self._hosts.get(job)
            if host is not None and host.connection is not None:
                host.connection.send(roster)
            for guest in self._members_of(job):
                reason = newly.get(guest.waiting.volunteer)
                said = roster if reason is None else self._matched(record, guest, roster, reason)
                guest.connection.send(said)
        self._stirred.clear()

    def _let_go(self) -> None:
        now = self._clock()
        for name, guest in list(self._guests.items()):
            if now - guest.heard_at >= self._rules.patience.gone_after_s:
                guest.connection.close()
                self.volunteer_leaves(name, guest.connection)
        for name, left_at in list(self._left_at.items()):
            if now - left_at >= self._rules.forget_after_s:
                del self._left_at[name]
                self._store.forget_volunteer(name)
        for record in self._store.jobs():
            self._let_job_go(record, now)

    def _let_job_go(self, record: JobRecord, now: float) -> None:
        job = record.listing.id
        # A store that outlives the process knows jobs whose hosts have not come back yet.
        host = self._hosts.setdefault(job, Host(now))
        silent_s = now - host.heard_at
        if host.connection is not None and silent_s >= self._rules.patience.gone_after_s:
            host.connection.close()
            host.connection = None
        over = silent_s >= self._rules.forget_after_s
        if over and host.connection is None and not self._groups.get(job):
            self._hosts.pop(job, None)
            self._groups.pop(job, None)
            self._store.forget_job(job)

    # What is known

    def summary(self, record: JobRecord) -> rooms.JobSummary:
        listing, offer = record.listing, record.listing.offer
        return rooms.JobSummary(
            id=listing.id,
            title=offer.title,
            cause=offer.cause,
            key=offer.key,
            code=listing.code,
            state=listing.state,
            presence=self.host_presence(listing.id),
            minimum=offer.minimum,
            maximum=offer.maximum,
            volunteers=len(self._groups.get(listing.id, ())),
            published_at=listing.published_at,
            hyperparameters=offer.hyperparameters,
        )

    def health(self) -> rooms.Health:
        return rooms.Health(
            ok=True,
            jobs=self._store.count_jobs(),
            volunteers=len(self._guests),
            waiting=sum(guest.job is None for guest in self._guests.values()),
        )

    def close(self) -> None:
        """Say good-bye to everyone."""
        for host in self._hosts.values():
            if host.connection is not None:
                host.connection.close()
        for guest in self._guests.values():
            guest.connection.close()

    def _opening(self, record: JobRecord) -> Opening:
        job = record.listing.id
        return Opening(
            listing=record.listing,
            presence=self.host_presence(job),
            members=len(self._groups.get(job, ())),
            places=self._store.next_position(job),
        )

    def _members_of(self, job: JobId) -> list[Guest]:
        return [self._guests[name] for name in sorted(self._groups.get(job, ()))]

    def _roster(self, job: JobId) -> Roster:
        """The members present now, the host's own worker first."""
        here = self._groups.get(job, set())
        members = (m for m in self._store.members(job) if m.position == 0 or m.id in here)
        return Roster(job=job, members=tuple(members))

    def _roster_message(self, job: JobId) -> rooms.RosterChanged:
        return rooms.RosterChanged.of(self._roster(job), self._store.next_position(job))

    def _matched(
        self, record: JobRecord, guest: Guest, roster: rooms.RosterChanged, reason: str
    ) -> rooms.Matched:
        member = self._store.member(record.listing.id, guest.waiting.volunteer)
        assert member is not None, guest.waiting
        return rooms.Matched(
            listing=rooms.ListingBody.of(record.listing),
            roster=roster,
            position=member.position,
            reason=reason,
        )


async def keep(room: Room, *, tick_s: float = 1.0, pause_s: float = 0.01) -> None:
    """Run a pass whenever something changed, and now and then for the clock's sake."""
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(tick_s):
                await room.changed.wait()
        room.changed.clear()
        room.step()
        # What arrives in this pause is handled together: a thousand joins take a few passes.
        await asyncio.sleep(pause_s)
