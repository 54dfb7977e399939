"""The room: who is here now, whom the planner matches, and who is told what.

Everything happens on one thread, between two awaits. What somebody says changes the room at once
and marks it as changed; `loop.keep` then runs one pass (`step`) for all changes of the moment: lost
people leave, the planner decides, everyone concerned is written to, and the letters go out once the
store has kept what they promise. Clocks and connections are passed in, so the same room runs under
a virtual clock.

A pass looks only at what is new: volunteers that came or changed, and, in the order in which they
wait, as many others as it takes to fill the jobs that have room which they had not before. The
reasons why the others wait are told a few at a time.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from crowdgrad.domain.job import JobId, JobState
from crowdgrad.domain.matching import JobRecord, Presence, VolunteerRecord, Wants
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CannotWrite
from crowdgrad.matchmaker import credits
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
from crowdgrad.net import rooms
from crowdgrad.net.identity import Identity
from crowdgrad.planner.matchmaking import Decision, Hall, Opening, place, rhythm
from crowdgrad.store.base import Store

SEATS_AT_ONCE = 200
"""How many are given a seat in one pass: others are to be heard in between."""
TELL_AT_ONCE = 25
"""Of those who wait, how many are told in one pass that the reason has changed."""
ROSTER_S = 0.01
"""For each member, how long the others wait to hear that the roster has changed again: telling a
thousand members of a thousand members takes 70 MB."""
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
        self._hosts: dict[JobId, Host] = {}
        self._guests: dict[VolunteerId, Guest] = {}
        self._groups: dict[JobId, set[VolunteerId]] = {}
        self._left_at: OrderedDict[VolunteerId, float] = OrderedDict()
        """Those who were lost and may come back for their place in the line."""
        self._mail = Mail()
        self._stirred: set[JobId] = set()
        """Jobs whose group changed since the last pass."""
        self._untold: set[JobId] = set()
        """Jobs whose members do not know the roster of now."""
        self._told_at: dict[JobId, float] = {}
        self._line = Line()
        self._hall: Hall | None = None
        """The openings as the last pass left them; None: something about them has changed."""
        self._roomier: set[JobId] = set()
        """Jobs that may take somebody now whom they did not take before."""
        self._passed_over: dict[str, int] = {}
        self._looked_at, self._minute = clock(), 0
        self.changed = asyncio.Event()
        self._remember()

    def _remember(self) -> None:
        """Those who were here when the service last ended have a while to come back."""
        now = self._clock()
        for record in self._store.jobs():
            self._hosts[record.listing.id] = Host(now)
        for volunteer in self._store.volunteers():
            if volunteer.job is not None and volunteer.job in self._hosts:
                self._guests[volunteer.id] = Guest(volunteer, now, self._rules.patience)
                self._groups.setdefault(volunteer.job, set()).add(volunteer.id)
            else:
                self._left_at[volunteer.id] = now

    # What hosts do

    def host_arrives(self, key: str, body: rooms.Publish, connection: Connection) -> JobId:
        """A host publishes its job, new or again, and stays. Raises Refusal or MessageError."""
        self._check_store()
        before = self._store.job(JobId(body.offer.id))
        record = self._desk.publish(key, body)
        job = record.listing.id
        host = self._hosts.setdefault(job, Host(self._clock()))
        if host.connection is not None:  # of another life: what it still says is out of date
            host.connection.close(replaced())
        host.connection, host.heard_at = connection, self._clock()
        rules = self._rules
        welcome = self._letters.welcome(rules.heartbeat_s, rules.patience.gone_after_s, record)
        self._mail.write(connection, welcome)
        self._mail.write(connection, self._roster(job))
        if before is not None and before.listing.offer != record.listing.offer:
            self._tell_again(record)
        self._tell("published", job=job, host=record.listing.offer.key, again=before is not None)
        self._openings_changed(roomier=job)
        return job

    def _tell_again(self, record: JobRecord) -> None:
        roster = self._roster(record.listing.id)
        for guest in self._members_of(record.listing.id):
            reason = "the host has published the job again"
            said = self._letters.matched(record, guest, roster, reason)
            self._mail.write(guest.connection, said)

    def host_says(self, job: JobId, message: rooms.FROM_HOST, connection: Connection) -> None:
        """Raises Refusal when the message is out of place."""
        host = self._hosts.get(job)
        if host is None or host.connection is not connection:
            return
        host.heard_at = self._clock()
        if isinstance(message, rooms.StillHere):
            connection.send(message)
            if host.seen != "alive":
                self._openings_changed(roomier=job)
        elif isinstance(message, rooms.StateChanged):
            self._change_state(job, message.state)
        elif isinstance(message, rooms.Credited):
            self._credit(job, message)
        else:
            raise nonsense("You have said who you are already.")

    def host_leaves(self, job: JobId, connection: Connection) -> None:
        host = self._hosts.get(job)
        if host is not None and host.connection is connection:
            host.connection = None
            self._tell("host left", job=job)
            self._openings_changed()

    def host_presence(self, job: JobId) -> Presence:
        host = self._hosts.get(job)
        if host is None:
            return "gone"
        return host.presence(self._clock(), self._rules.patience)

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

    def _dismiss(self, job: JobId, state: JobState) -> None:
        """The job is over: its members wait for another."""
        for guest in self._members_of(job):
            self._mail.write(guest.connection, rooms.JobEnded(job=job, state=state))
            self._wait_again(guest, guest.record.wants, guest.record.avoid)
            if guest.connection is None:
                self._let_volunteer_go(guest)

    def _credit(self, job: JobId, message: rooms.Credited) -> None:
        record = self._store.job(job)
        assert record is not None, job
        for credit in credits.report(self._store, record, message, self._wall()):
            guest = self._guests.get(credit.volunteer)
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
        host = self._hosts.pop(job, None)
        if host is not None and host.connection is not None:
            host.connection.close(withdrawn(job))
        self._groups.pop(job, None)
        self._told_at.pop(job, None)
        self._openings_changed()

    # What volunteers do

    def volunteer_arrives(self, key: str, body: rooms.Register, connection: Connection) -> None:
        """A volunteer comes, new or again, and stays. Raises Refusal or MessageError."""
        self._check_store()
        now, name = self._clock(), VolunteerId(body.volunteer.id)
        here = self._guests.get(name)
        if here is not None and here.session != body.session and here.presence(now) == "alive":
            raise already_here(name)
        before = self._store.volunteer(name)
        if before is None and self._store.count_volunteers() >= self._rules.max_volunteers:
            self._forget_the_longest_absent()
        record = self._desk.register(key, body)
        people = len(self._guests) + 1
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
        self._guests[name] = guest
        self._left_at.pop(name, None)
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
        if self._left_at:
            name, _ = self._left_at.popitem(last=False)
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
            roster, reason = self._roster(listed.listing.id), "you are back at your place"
            said = self._letters.matched(listed, guest, roster, reason)
            self._mail.write(guest.connection, said)
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
        guest = self._guests.get(volunteer)
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
            self._left_at.pop(volunteer, None)
            self._store.forget_volunteer(volunteer)
        elif isinstance(message, rooms.CreditSigned):
            credits.countersign(self._store, guest.record, message)
            self.changed.set()
        else:
            raise nonsense("You have said who you are already.")

    def volunteer_leaves(self, volunteer: VolunteerId, connection: Connection) -> None:
        """Its socket is lost. One that works keeps its room until it is gone."""
        guest = self._guests.get(volunteer)
        if guest is None or guest.connection is not connection:
            return
        guest.connection = None
        if guest.record.job is None:
            self._let_volunteer_go(guest)

    def _let_volunteer_go(self, guest: Guest) -> None:
        """Its place in the roster stays its own; the room it took is free."""
        self._leave_group(guest)
        self._line.leave(guest.id)
        if self._guests.get(guest.id) is guest:
            del self._guests[guest.id]
            self._left_at[guest.id] = self._clock()
            self._tell("left", volunteer=guest.id)
            if len(self._left_at) > self._rules.max_absent:
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
        self._groups.get(job, set()).discard(guest.id)
        self._stirred.add(job)
        self._openings_changed(roomier=job)

    def forget(self, key: str) -> None:
        """Whoever has that public key is shown out, as a volunteer and as a host."""
        guest = self._guests.get(VolunteerId(fingerprint(key)))
        if guest is not None:
            connection = guest.connection
            self._let_volunteer_go(guest)
            if connection is not None:
                connection.close(forgotten())
        self._left_at.pop(VolunteerId(fingerprint(key)), None)
        for record in self._store.jobs_of(key):
            self._close_job(record)

    # One pass

    def step(self) -> None:
        """Let lost people go, decide, and write to everyone concerned."""
        now = self._clock()
        if now - self._looked_at >= LOOK_EVERY_S or now < self._looked_at:
            self._looked_at = now
            self._let_go(now)
        hall = self._hall or self._look_around()
        newly = self._seat_all(hall, now)
        self._passed_over = hall.passed_over
        # The hall knows who has just sat down; only what else has changed makes it out of date.
        self._hall = hall
        self._tell_rosters(newly, now)
        self._tell_some(hall, now)
        self._tell("passed", seconds=self._clock() - now)

    def _look_around(self) -> Hall:
        openings = [self._opening(record) for record in self._store.jobs()]
        self._line.reasons_changed()
        return Hall(openings, now=self._wall(), passed_over=self._passed_over)

    def _openings_changed(self, *, roomier: JobId | None = None) -> None:
        """`roomier`: the job that may take somebody now whom it did not take before."""
        self._hall = None
        if roomier is not None:
            self._roomier.add(roomier)
        self.changed.set()

    def _seat_all(self, hall: Hall, now: float) -> dict[VolunteerId, str]:
        """Give seats to those who wait, in their order; returns who got one, and why."""
        newly: dict[VolunteerId, str] = {}
        new = self._line.newcomers
        for name in self._line.everyone() if self._fillable() else self._line.only_new():
            if not new and not self._fillable():
                break
            if len(newly) >= SEATS_AT_ONCE:
                self.changed.set()
                return newly
            guest, is_new = self._guests[name], name in new
            new.discard(name)
            if not self._is_heard(guest, now):
                continue
            decision = hall.seat(guest.as_matched())
            if decision is not None and decision.job is not None:
                self._seat(guest, decision, decision.job)
                newly[name] = decision.reason
            elif is_new:
                self._tell_waiting(guest, hall.why(guest.as_matched()))
        self._roomier.clear()
        return newly

    def _fillable(self) -> bool:
        """Whether a job that has become roomier still has room."""
        while self._roomier:
            job = next(iter(self._roomier))
            if self._has_room(job):
                return True
            self._roomier.discard(job)
        return False

    def _has_room(self, job: JobId) -> bool:
        record, host = self._store.job(job), self._hosts.get(job)
        if record is None or not record.listing.open or host is None or host.seen != "alive":
            return False
        return len(self._groups.get(job, ())) < record.listing.offer.maximum

    def _is_heard(self, guest: Guest, now: float) -> bool:
        """The silent ones are told that this is why they are passed over."""
        if guest.presence(now) == "alive":
            return True
        self._tell_waiting(guest, "waiting: nothing was heard from you for a while")
        return False

    def _seat(self, guest: Guest, decision: Decision, job: JobId) -> None:
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
        self._groups.setdefault(job, set()).add(guest.id)
        self._stirred.add(job)
        waited_s = self._clock() - guest.waits_from
        self._tell("matched", volunteer=guest.id, job=job, why=decision.reason, waited_s=waited_s)

    def _tell_waiting(self, guest: Guest, reason: str) -> None:
        if guest.told != reason:
            guest.told = reason
            self._mail.write(guest.connection, rooms.StillWaiting(reason=reason))

    def _tell_some(self, hall: Hall, now: float) -> None:
        """Tell the next few of those who wait why, where that has changed."""
        for name in self._line.next_to_tell(TELL_AT_ONCE):
            guest = self._guests[name]
            if guest.presence(now) == "alive":
                self._tell_waiting(guest, hall.why(guest.as_matched()))
        if self._line.has_to_tell:
            self.changed.set()

    def _tell_rosters(self, newly: dict[VolunteerId, str], now: float) -> None:
        """Host and newcomers hear of a change at once, the other members when it is their turn."""
        for job in sorted(self._stirred | self._untold):
            record, here = self._store.job(job), len(self._groups.get(job, ()))
            if record is None:
                self._untold.discard(job)
                continue
            everybody = now - self._told_at.get(job, -math.inf) >= ROSTER_S * here
            if job in self._stirred or everybody:
                self._tell_roster(record, newly, everybody=everybody)
            if everybody:
                self._told_at[job] = now
                self._untold.discard(job)
            else:
                self._untold.add(job)
        self._stirred.clear()

    def _tell_roster(
        self, record: JobRecord, newly: dict[VolunteerId, str], *, everybody: bool
    ) -> None:
        job = record.listing.id
        roster = self._roster(job)
        host = self._hosts.get(job)
        if host is not None:
            self._mail.write(host.connection, roster)
        for guest in self._members_of(job):
            reason = newly.get(guest.id)
            if reason is not None:
                said = self._letters.matched(record, guest, roster, reason)
                self._mail.write(guest.connection, said)
            elif everybody:
                self._mail.write(guest.connection, roster)

    def _let_go(self, now: float) -> None:
        gone = [
            guest
            for guest in self._guests.values()
            if now - guest.heard_at >= guest.patience.gone_after_s
        ]
        for guest in gone:
            connection = guest.connection
            self._let_volunteer_go(guest)
            if connection is not None:
                connection.close()
        while self._left_at and now - next(iter(self._left_at.values())) >= self._rules.absent_s:
            self._forget_the_longest_absent()
        for record in self._store.jobs():
            self._let_job_go(record, now)
        minute = int(self._wall() // 60)
        if minute != self._minute:  # somebody's hours may have begun
            self._minute = minute
            self._roomier.update(self._hosts)
            self._openings_changed()

    def _let_job_go(self, record: JobRecord, now: float) -> None:
        job = record.listing.id
        host = self._hosts.setdefault(job, Host(now))
        silent_s = now - host.heard_at
        if host.connection is not None and silent_s >= self._rules.patience.gone_after_s:
            host.connection.close()
            host.connection = None
        if self.host_presence(job) != host.seen:
            self._openings_changed(roomier=job)
        over = silent_s >= self._rules.forget_after_s
        if over and host.connection is None and not self._groups.get(job):
            self._hosts.pop(job, None)
            self._groups.pop(job, None)
            self._told_at.pop(job, None)
            self._forget_job(record)
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
        for connection in self._connections():
            connection.close()

    def _connections(self) -> list[Connection]:
        everyone: list[Host | Guest] = [*self._hosts.values(), *self._guests.values()]
        return [person.connection for person in everyone if person.connection is not None]

    # What is known

    def summary(self, record: JobRecord) -> rooms.JobSummary:
        job = record.listing.id
        return self._letters.summary(
            record, self.host_presence(job), len(self._groups.get(job, ()))
        )

    def health(self) -> rooms.Health:
        return rooms.Health(
            ok=True,
            jobs=self._store.count_jobs(),
            volunteers=len(self._guests),
            waiting=len(self._line),
        )

    def figures(self) -> dict[str, float]:
        """What /metrics shows besides what it counts itself."""
        present = [host.connection is not None for host in self._hosts.values()]
        return {
            "jobs": self._store.count_jobs(),
            "hosts": sum(present),
            "volunteers": len(self._guests),
            "waiting": len(self._line),
            "known_volunteers": self._store.count_volunteers(),
            "credits": self._store.count_credits(),
            "store_trouble": float(bool(self._store.trouble)),
        }

    def _opening(self, record: JobRecord) -> Opening:
        if not record.listing.open:  # all that matters of it is that it is over
            return Opening(listing=record.listing, presence="gone", members=0)
        job = record.listing.id
        present = self.host_presence(job)
        if job in self._hosts:
            self._hosts[job].seen = present
        members = self._groups.get(job, ())
        return Opening(
            listing=record.listing,
            presence=present,
            members=len(members),
            places=self._store.next_position(job),
            help=sum(self._guests[name].gflops for name in members),
        )

    def _members_of(self, job: JobId) -> list[Guest]:
        return [self._guests[name] for name in sorted(self._groups.get(job, ()))]

    def _roster(self, job: JobId) -> rooms.RosterChanged:
        return self._letters.roster(job, self._groups.get(job, ()))
