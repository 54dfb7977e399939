"""The room: who comes, what they say, and who goes.

Everything happens on one thread, between two awaits. What somebody says changes the room at once
and marks it as changed; `loop.keep` then runs one pass (`step`) for all changes of the moment: lost
people leave, the planner decides (`seating`), everyone concerned is written to (`rosters`), and the
letters go out once the store has kept what they promise. Clocks and connections are passed in, so
the same room runs under a virtual clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from crowdgrad.domain.job import JobId, JobState
from crowdgrad.domain.matching import JobRecord, Presence, VolunteerRecord, Wants
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CannotWrite
from crowdgrad.matchmaker import credits
from crowdgrad.matchmaker.crowd import Crowd
from crowdgrad.matchmaker.desk import Desk, Rules, fingerprint
from crowdgrad.matchmaker.guests import Guest, Host
from crowdgrad.matchmaker.letters import Letters
from crowdgrad.matchmaker.line import Line
from crowdgrad.matchmaker.mail import Connection, Mail
from crowdgrad.matchmaker.refusal import (
    already_here,
    cannot_keep,
    forgotten,
    nonsense,
    replaced,
    withdrawn,
)
from crowdgrad.matchmaker.rosters import Rosters
from crowdgrad.matchmaker.seating import Seating
from crowdgrad.net import rooms
from crowdgrad.net.identity import Identity
from crowdgrad.planner.matchmaking import rhythm
from crowdgrad.store.base import Store

LOOK_EVERY_S = 1.0
"""How often the room is searched for people that have fallen silent."""

Tell = Callable[..., None]
"""What happened, for logs and figures: a word, and fields by name."""


class Room:
    def __init__(
        self,
        store: Store,
        desk: Desk,
        *,
        key: Identity,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rules: Rules,
        public_url: str = "",
        tell: Tell = lambda event, **fields: None,
    ) -> None:
        """`key`: the matchmaker's own. `clock` measures silence, `wall` dates introductions."""
        self._store = store
        self._desk = desk
        self._clock = clock
        self._wall = wall
        self._rules = rules
        self._tell = tell
        self._letters = Letters(store, key=key, wall=wall, public_url=public_url)
        self._crowd = Crowd(store, clock=clock, patience=rules.patience)
        self._line = Line()
        self._mail = Mail()
        self._rosters = Rosters(store, self._crowd, self._letters, self._mail)
        self._seating = Seating(store, self._crowd, self._line, self._mail, wall=wall)
        self._looked_at, self._minute = clock(), 0
        self.changed = asyncio.Event()

    # What hosts do

    def host_arrives(self, key: str, body: rooms.Publish, connection: Connection) -> JobId:
        """A host publishes its job, new or again, and stays. Raises Refusal or MessageError."""
        self._check_store()
        before = self._store.job(JobId(body.offer.id))
        record = self._desk.publish(key, body)
        job = record.listing.id
        host = self._crowd.hosts.setdefault(job, Host(self._clock()))
        if host.connection is not None:  # of another life: what it still says is out of date
            host.connection.close(replaced())
        host.connection, host.heard_at = connection, self._clock()
        rules = self._rules
        welcome = self._letters.welcome(rules.heartbeat_s, rules.patience.gone_after_s, record)
        self._mail.write(connection, welcome)
        self._mail.write(connection, self._rosters.of(job))
        if before is not None and before.listing.offer != record.listing.offer:
            members = self._crowd.members_of(job)
            self._rosters.tell_some(record, members, "the host has published the job again")
        self._tell("published", job=job, host=record.listing.offer.key, again=before is not None)
        self._openings_changed(job)
        return job

    def host_says(self, job: JobId, message: rooms.FROM_HOST, connection: Connection) -> None:
        """Raises Refusal when the message is out of place, MessageError when it makes no sense."""
        host = self._crowd.hosts.get(job)
        if host is None or host.connection is not connection:
            return
        host.heard_at = self._clock()
        if isinstance(message, rooms.StillHere):
            connection.send(message)
            if host.seen != "alive":
                self._openings_changed(job)
        elif isinstance(message, rooms.StateChanged):
            self._change_state(job, message.state)
        elif isinstance(message, rooms.Progressed):
            host.progress = message.share
        elif isinstance(message, rooms.Moved):
            self._move(job, message)
        elif isinstance(message, rooms.Credited):
            self._credit(job, message)
        else:
            raise nonsense("You have said who you are already.")

    def host_leaves(self, job: JobId, connection: Connection) -> None:
        host = self._crowd.hosts.get(job)
        if host is not None and host.connection is connection:
            host.connection = None
            self._tell("host left", job=job)
            self._openings_changed()

    def host_presence(self, job: JobId) -> Presence:
        return self._crowd.host_presence(job)

    def _change_state(self, job: JobId, state: JobState) -> None:
        record = self._store.job(job)
        assert record is not None, job
        if not record.listing.open and state != record.listing.state:
            raise nonsense(f"Job {job} is over ({record.listing.state}); publish it again.")
        record = replace(record, listing=replace(record.listing, state=state))
        self._store.put_job(record)
        if not record.listing.open:
            self._tell("job ended", job=job, state=state)
            self._dismiss(job, state)
        self._openings_changed()

    def _move(self, job: JobId, message: rooms.Moved) -> None:
        if self._desk.move(job, message) is not None:
            self._tell("host moved", job=job)
            self._rosters.move(job)
            self.changed.set()

    def _dismiss(self, job: JobId, state: JobState) -> None:
        """The job is over: its members wait for another."""
        for guest in self._crowd.members_of(job):
            self._mail.write(guest.connection, rooms.JobEnded(job=job, state=state))
            self._wait_again(guest, guest.record.wants, guest.record.avoid)
            if guest.connection is None:
                self._let_volunteer_go(guest)

    def _credit(self, job: JobId, message: rooms.Credited) -> None:
        record = self._store.job(job)
        assert record is not None, job
        for credit in credits.report(self._store, record, message, self._wall()):
            guest = self._crowd.guests.get(credit.volunteer)
            if guest is not None:
                self._mail.write(guest.connection, credits.offered(credit))
        self.changed.set()

    def withdraw(self, key: str, job: JobId) -> None:
        """The host takes its job back: it is forgotten. Raises Refusal."""
        record = self._desk.owned(key, job)
        self._close_job(record)
        self._forget_job(record)

    def _close_job(self, record: JobRecord) -> None:
        job = record.listing.id
        if record.listing.open:
            self._dismiss(job, "stopped")
        host = self._crowd.hosts.pop(job, None)
        if host is not None and host.connection is not None:
            host.connection.close(withdrawn(job))
        self._forget_group(job)

    # What volunteers do

    def volunteer_arrives(self, key: str, body: rooms.Register, connection: Connection) -> None:
        """A volunteer comes, new or again, and stays. Raises Refusal or MessageError."""
        self._check_store()
        now, name = self._clock(), VolunteerId(body.volunteer.id)
        here = self._crowd.guests.get(name)
        if here is not None and here.session != body.session and here.presence(now) == "alive":
            raise already_here(name)
        before = self._store.volunteer(name)
        if before is None and self._store.count_volunteers() >= self._rules.max_volunteers:
            self._forget_the_longest_absent()
        record = self._desk.register(key, body)
        people = len(self._crowd.guests) + 1
        heartbeat_s, patience = rhythm(
            people, self._rules.heartbeat_s, self._rules.patience, self._rules.beats_per_s
        )
        guest = here or Guest(record, now, patience)
        if guest.connection is not None:  # what its earlier socket still says is out of date
            guest.connection.close(replaced())
        self._line.leave(name)
        guest.record, guest.connection, guest.session = record, connection, body.session
        guest.heard_at, guest.patience, guest.told = now, patience, ""
        guest.asked = body.asked
        self._crowd.guests[name] = guest
        self._crowd.left_at.pop(name, None)
        self._mail.write(connection, self._letters.welcome(heartbeat_s, patience.gone_after_s))
        self._find_place(guest, before, body)
        for credit in credits.unsigned(self._store, name):
            self._mail.write(connection, credits.offered(credit))
        self._tell("joined", volunteer=name)
        self.changed.set()

    def _check_store(self) -> None:
        """Whom nothing can be promised is not let in. Raises Refusal."""
        if self._store.trouble:
            raise cannot_keep(self._store.trouble)

    def _forget_the_longest_absent(self) -> None:
        """Who is not here makes room for who is."""
        if self._crowd.left_at:
            name, _ = self._crowd.left_at.popitem(last=False)
            self._store.forget_volunteer(name)

    def _find_place(
        self, guest: Guest, before: VolunteerRecord | None, body: rooms.Register
    ) -> None:
        """Back to the job it has here, if that is still what it wants; else it waits."""
        record, job = guest.record, guest.record.job
        working_for = None if body.working_for is None else JobId(body.working_for)
        as_before = before is not None and before.wants == record.wants and job not in record.avoid
        listed = None if job is None else self._store.job(job)
        if listed is not None and (working_for == job or (working_for is None and as_before)):
            self._rosters.tell_some(listed, [guest], "you are back at your place")
            return
        self._leave_group(guest)
        known = None if working_for is None else self._store.job(working_for)
        if known is not None and not known.listing.open:
            ended = rooms.JobEnded(job=known.listing.id, state=known.listing.state)
            self._mail.write(guest.connection, ended)
            working_for = None
        guest.returning = working_for
        self._begin_to_wait(guest)

    def volunteer_says(
        self, volunteer: VolunteerId, message: rooms.FROM_VOLUNTEER, connection: Connection
    ) -> None:
        """Raises Refusal when the message is out of place."""
        guest = self._crowd.guests.get(volunteer)
        if guest is None or guest.connection is not connection:
            return
        now = self._clock()
        if guest.waits and guest.presence(now) != "alive":
            self._line.look_again_at(volunteer)
            self.changed.set()
        guest.heard_at = now
        if isinstance(message, rooms.StillHere):
            connection.send(message)
        elif isinstance(message, rooms.Free):
            avoid = frozenset(JobId(job) for job in message.avoid)
            guest.asked = message.asked
            self._wait_again(guest, message.wants.wants(), avoid)
        elif isinstance(message, rooms.Leaving):
            self._let_volunteer_go(guest)
            self._crowd.left_at.pop(volunteer, None)
            self._store.forget_volunteer(volunteer)
        elif isinstance(message, rooms.CreditSigned):
            credits.countersign(self._store, guest.record, message)
            self.changed.set()
        else:
            raise nonsense("You have said who you are already.")

    def volunteer_leaves(self, volunteer: VolunteerId, connection: Connection) -> None:
        """Its socket is lost. One that works keeps its room until it is gone."""
        guest = self._crowd.guests.get(volunteer)
        if guest is None or guest.connection is not connection:
            return
        guest.connection = None
        if guest.record.job is None:
            self._let_volunteer_go(guest)

    def _let_volunteer_go(self, guest: Guest) -> None:
        """Its place in the roster stays its own; the room it took is free."""
        self._leave_group(guest)
        self._line.leave(guest.id)
        if self._crowd.guests.get(guest.id) is guest:
            del self._crowd.guests[guest.id]
            self._crowd.left_at[guest.id] = self._clock()
            self._tell("left", volunteer=guest.id)
            if len(self._crowd.left_at) > self._rules.max_absent:
                self._forget_the_longest_absent()
        guest.connection = None
        self.changed.set()

    def _wait_again(self, guest: Guest, wants: Wants, avoid: frozenset[JobId]) -> None:
        self._leave_group(guest)
        guest.record = self._desk.wait_again(guest.record, wants, avoid)
        guest.returning = None
        self._begin_to_wait(guest)

    def _begin_to_wait(self, guest: Guest) -> None:
        guest.told, guest.waits_from = "", self._clock()
        if guest.connection is not None:
            self._line.join(guest.id, guest.record.since)
            self.changed.set()

    def _leave_group(self, guest: Guest) -> None:
        job = guest.record.job
        if job is None:
            return
        guest.record = replace(guest.record, job=None)
        if self._store.volunteer(guest.id) is not None:
            self._store.put_volunteer(guest.record)
        self._crowd.leave(guest.id, job)
        self._rosters.stir(job)
        self._openings_changed(job)

    def forget(self, key: str) -> None:
        """Whoever has that public key is shown out, as a volunteer and as a host."""
        guest = self._crowd.guests.get(VolunteerId(fingerprint(key)))
        if guest is not None:
            connection = guest.connection
            self._let_volunteer_go(guest)
            if connection is not None:
                connection.close(forgotten())
        self._crowd.left_at.pop(VolunteerId(fingerprint(key)), None)
        for record in self._store.jobs_of(key):
            self._close_job(record)

    # One pass

    def step(self) -> None:
        """Let lost people go, decide, and write to everyone concerned."""
        now = self._clock()
        if now - self._looked_at >= LOOK_EVERY_S or now < self._looked_at:
            self._looked_at = now
            self._let_go(now)
        newly = self._seating.step(now)
        for guest, reason in newly.items():
            self._note_match(guest, reason)
        self._rosters.tell(newly, now)
        if self._seating.unfinished:
            self.changed.set()
        self._tell("passed", seconds=self._clock() - now)

    def _note_match(self, guest: Guest, reason: str) -> None:
        job = guest.record.job
        assert job is not None, guest.record
        self._rosters.stir(job)
        waited_s = self._clock() - guest.waits_from
        self._tell("matched", volunteer=guest.id, job=job, why=reason, waited_s=waited_s)

    def _openings_changed(self, *roomier: JobId) -> None:
        """`roomier`: the jobs that may take somebody now whom they did not take before."""
        self._seating.openings_changed(*roomier)
        self.changed.set()

    def _let_go(self, now: float) -> None:
        for guest in self._crowd.silent(now):
            connection = guest.connection
            self._let_volunteer_go(guest)
            if connection is not None:
                connection.close()
        while now - self._crowd.absent_since() >= self._rules.absent_s:
            self._forget_the_longest_absent()
        for record in self._store.jobs():
            self._let_job_go(record, now)
        minute = int(self._wall() // 60)
        if minute != self._minute:  # somebody's hours may have begun
            self._minute = minute
            self._openings_changed(*self._crowd.hosts)

    def _let_job_go(self, record: JobRecord, now: float) -> None:
        job = record.listing.id
        host = self._crowd.hosts.setdefault(job, Host(now))
        silent_s = now - host.heard_at
        if host.connection is not None and silent_s >= self._rules.patience.gone_after_s:
            host.connection.close()
            host.connection = None
        if self.host_presence(job) != host.seen:
            self._openings_changed(job)
        over = silent_s >= self._rules.forget_after_s
        if over and host.connection is None and not self._crowd.group(job):
            self._crowd.hosts.pop(job, None)
            self._forget_group(job)
            self._forget_job(record)

    def _forget_group(self, job: JobId) -> None:
        self._crowd.disband(job)
        self._rosters.forget(job)
        self._openings_changed()

    def _forget_job(self, record: JobRecord) -> None:
        credits.close_accounts(self._store, record)
        self._store.forget_job(record.listing.id)

    # How it is told

    async def deliver(self) -> None:
        """Send what was written so far, once it lasts. Raises CannotWrite, and has sent nothing."""
        letters, began = self._mail.take(), self._clock()
        if not letters:
            return
        try:
            await self._store.kept()
        except BaseException as error:
            self._mail.put_back(letters)
            if isinstance(error, CannotWrite):
                self._tell("store trouble", why=error.message)
            raise
        self._tell("kept", seconds=self._clock() - began)
        for connection, message in letters:
            connection.send(message)

    def post(self) -> None:
        """Send everything at once, lasting or not: where there is nothing to wait for."""
        for connection, message in self._mail.take():
            connection.send(message)

    def close(self) -> None:
        """Say good-bye to everyone."""
        for connection in self._crowd.connections():
            connection.close()

    # What is known

    def in_public(self, records: Iterable[JobRecord]) -> list[JobRecord]:
        """Those that everybody may see, and help."""
        return [
            record
            for record in records
            if record.listing.offer.visibility == "public"
            and record.listing.open
            and self.host_presence(record.listing.id) != "gone"
        ]

    def summary(self, record: JobRecord) -> rooms.JobSummary:
        job = record.listing.id
        host = self._crowd.hosts.get(job)
        return self._letters.summary(
            record,
            self.host_presence(job),
            len(self._crowd.group(job)),
            host.progress if host is not None else None,
        )

    def health(self) -> rooms.Health:
        return rooms.Health(
            ok=True,
            jobs=self._store.count_jobs(),
            volunteers=len(self._crowd.guests),
            waiting=len(self._line),
            now_ms=int(self._wall() * 1000),
        )

    def figures(self) -> dict[str, float]:
        """What /metrics shows besides what it counts itself."""
        present = [host.connection is not None for host in self._crowd.hosts.values()]
        return {
            "jobs": self._store.count_jobs(),
            "hosts": sum(present),
            "volunteers": len(self._crowd.guests),
            "waiting": len(self._line),
            "known_volunteers": self._store.count_volunteers(),
            "credits": self._store.count_credits(),
            "store_trouble": float(bool(self._store.trouble)),
        }
