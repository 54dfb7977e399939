"""A store that lives as long as its process; one that lasts writes down what changes in it.

Whatever is asked often is found without looking through everything: by id, by code, by key, by
volunteer. The lists in order are kept in order; only what comes out of order is sorted, when
somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from crowdgrad.domain.job import JobId, Member
from crowdgrad.domain.matching import Code, Credit, JobRecord, Totals, VolunteerRecord
from crowdgrad.domain.work import VolunteerId
from crowdgrad.store.rows import (
    CREDITS,
    JOBS,
    MEMBERS,
    SECRETS,
    VOLUNTEERS,
    Key,
    Kind,
    Seat,
    Secret,
)
from crowdgrad.store.tally import Tally

G = TypeVar("G")
K = TypeVar("K")
R = TypeVar("R")

Pair = tuple[JobId, VolunteerId]


class MemoryStore:
    def __init__(self) -> None:
        self._jobs = _Queue[JobId, JobRecord](lambda r: (r.listing.published_at, r.listing.id))
        self._codes: dict[Code, JobId] = {}
        self._jobs_of = _Groups[str, JobId]()
        self._rosters: dict[JobId, _Roster] = {}
        self._places = _Groups[VolunteerId, JobId]()
        self._volunteers = _Queue[VolunteerId, VolunteerRecord](lambda r: (r.since, r.id))
        self._credits: dict[Pair, Credit] = {}
        self._gave = _Groups[VolunteerId, Pair]()
        self._received = _Groups[str, Pair]()
        self._tally = Tally()
        self._secrets: dict[str, bytes] = {}

    # Jobs

    def put_job(self, record: JobRecord) -> None:
        job, code = record.listing.id, record.listing.code
        if self._codes.get(code, job) != job:
            raise ValueError(f"code {code} is that of job {self._codes[code]}")
        before = self._jobs.get(job)
        if before is not None and before.first_free > record.first_free:
            record = replace(record, first_free=before.first_free)  # a place is never given again
        self._changed(JOBS, record)
        if before is not None:
            del self._codes[before.listing.code]
            self._jobs_of.drop(before.owner, job)
        self._jobs.put(job, record)
        self._codes[code] = job
        self._jobs_of.add(record.owner, job)
        self._rosters.setdefault(job, _Roster())

    def job(self, job: JobId) -> JobRecord | None:
        return self._jobs.get(job)

    def job_by_code(self, code: Code) -> JobRecord | None:
        job = self._codes.get(code)
        return None if job is None else self._jobs.get(job)

    def jobs(self) -> list[JobRecord]:
        return self._jobs.in_order()

    def jobs_of(self, owner: str) -> list[JobRecord]:
        return self._jobs.some_in_order(self._jobs_of.get(owner))

    def count_jobs(self) -> int:
        return len(self._jobs)

    def forget_job(self, job: JobId) -> None:
        record = self._jobs.get(job)
        if record is None:
            return
        for member in self._rosters[job].members.in_order():
            self._forgotten(MEMBERS, (job, member.position))
            self._places.drop(member.id, job)
        self._forgotten(JOBS, (job,))
        self._jobs.drop(job)
        del self._rosters[job], self._codes[record.listing.code]
        self._jobs_of.drop(record.owner, job)

    # Volunteers

    def put_volunteer(self, record: VolunteerRecord) -> None:
        self._changed(VOLUNTEERS, record)
        self._volunteers.put(record.volunteer.id, record)

    def volunteer(self, volunteer: VolunteerId) -> VolunteerRecord | None:
        return self._volunteers.get(volunteer)

    def volunteers(self) -> list[VolunteerRecord]:
        return self._volunteers.in_order()

    def count_volunteers(self) -> int:
        return len(self._volunteers)

    def forget_volunteer(self, volunteer: VolunteerId) -> None:
        if self._volunteers.get(volunteer) is not None:
            self._forgotten(VOLUNTEERS, (volunteer,))
            self._volunteers.drop(volunteer)

    # Places in rosters

    def add_member(self, job: JobId, member: Member) -> None:
        roster = self._rosters.get(job)
        if roster is None:
            raise ValueError(f"job {job} is unknown")
        owner = roster.owners.get(member.position, member.id)
        known = roster.members.get(member.id) or member
        if (owner != member.id and member.position != 0) or known.position != member.position:
            raise ValueError(f"job {job}: position {member.position} cannot be {member.id}'s")
        self._changed(MEMBERS, Seat(job, member))
        if owner != member.id:
            roster.members.drop(owner)
            self._places.drop(owner, job)
        roster.seat(member)
        self._places.add(member.id, job)

    def member(self, job: JobId, volunteer: VolunteerId) -> Member | None:
        roster = self._rosters.get(job)
        return None if roster is None else roster.members.get(volunteer)

    def members(self, job: JobId) -> tuple[Member, ...]:
        roster = self._rosters.get(job)
        return () if roster is None else tuple(roster.members.in_order())

    def next_position(self, job: JobId) -> int:
        record = self._jobs.get(job)
        return 1 if record is None else max(record.first_free, self._rosters[job].last + 1)

    def forget_member(self, job: JobId, volunteer: VolunteerId) -> None:
        member, record = self.member(job, volunteer), self._jobs.get(job)
        if member is None or record is None:
            return
        if record.first_free <= member.position:
            self.put_job(replace(record, first_free=member.position + 1))
        self._forgotten(MEMBERS, (job, member.position))
        self._rosters[job].leave(member)
        self._places.drop(volunteer, job)

    def places(self, volunteer: VolunteerId) -> list[tuple[JobId, Member]]:
        jobs = sorted(self._places.get(volunteer))
        return [(job, self._rosters[job].members[volunteer]) for job in jobs]

    # Who gave what

    def put_credit(self, credit: Credit) -> None:
        pair = (credit.job, credit.volunteer)
        self._changed(CREDITS, credit)
        before = self._credits.get(pair)
        if before is not None:
            self._received.drop(before.host, pair)
        self._credits[pair] = credit
        self._tally.change(before, credit)
        self._gave.add(credit.volunteer, pair)
        self._received.add(credit.host, pair)

    def credit(self, job: JobId, volunteer: VolunteerId) -> Credit | None:
        return self._credits.get((job, volunteer))

    def gave(self, volunteer: VolunteerId) -> list[Credit]:
        return self._latest_first(self._gave.get(volunteer))

    def received(self, host: str) -> list[Credit]:
        return self._latest_first(self._received.get(host))

    def forget_credit(self, job: JobId, volunteer: VolunteerId) -> None:
        credit = self._credits.get((job, volunteer))
        if credit is None:
            return
        self._forgotten(CREDITS, (job, volunteer))
        del self._credits[job, volunteer]
        self._tally.change(credit, None)
        self._gave.drop(volunteer, (job, volunteer))
        self._received.drop(credit.host, (job, volunteer))

    def count_credits(self) -> int:
        return len(self._credits)

    def totals(self) -> Totals:
        return self._tally.totals()

    def _latest_first(self, pairs: Iterable[Pair]) -> list[Credit]:
        found = (self._credits[pair] for pair in pairs)
        return sorted(found, key=lambda c: (-c.reported_at, c.job, c.volunteer))

    # What the service keeps for itself

    def secret(self, name: str) -> bytes | None:
        return self._secrets.get(name)

    def keep_secret(self, name: str, value: bytes) -> None:
        self._changed(SECRETS, Secret(name, value))
        self._secrets[name] = value

    # Lasting

    @property
    def trouble(self) -> str:
        return ""

    async def kept(self) -> None:
        return

    def close(self) -> None:
        return

    def _changed(self, kind: Kind[R], record: R) -> None:
        """Called before the change is made; what is raised here refuses it."""

    def _forgotten(self, kind: Kind[Any], key: Key) -> None:
        """Called before something is forgotten."""


class _Queue(Generic[K, R]):
    """Records by id, and in order. Whoever comes last, or changes without moving, costs nothing."""

    def __init__(self, place: Callable[[R], Any]) -> None:
        self._place = place
        self._records: dict[K, R] = {}
        self._sorted = True

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, key: K) -> R:
        return self._records[key]

    def get(self, key: K) -> R | None:
        return self._records.get(key)

    def put(self, key: K, record: R) -> None:
        before = self._records.get(key)
        place = self._place(record)
        if before is not None and self._place(before) != place:
            del self._records[key]
            before = None
        if before is None and self._sorted and self._records:
            last = self._records[next(reversed(self._records))]
            self._sorted = self._place(last) <= place
        self._records[key] = record

    def drop(self, key: K) -> None:
        del self._records[key]

    def in_order(self) -> list[R]:
        if not self._sorted:
            self._records = dict(sorted(self._records.items(), key=lambda i: self._place(i[1])))
            self._sorted = True
        return list(self._records.values())

    def some_in_order(self, keys: Iterable[K]) -> list[R]:
        return sorted((self._records[key] for key in keys), key=self._place)


class _Groups(Generic[G, K]):
    """Which keys belong to whom. Whoever has none is not there."""

    def __init__(self) -> None:
        self._groups: dict[G, set[K]] = {}

    def get(self, group: G) -> Iterable[K]:
        return self._groups.get(group, ())

    def add(self, group: G, key: K) -> None:
        self._groups.setdefault(group, set()).add(key)

    def drop(self, group: G, key: K) -> None:
        keys = self._groups[group]
        keys.discard(key)
        if not keys:
            del self._groups[group]


class _Roster:
    """The places of one job: by volunteer, by position, and the highest that was ever given."""

    def __init__(self) -> None:
        self.members = _Queue[VolunteerId, Member](lambda m: m.position)
        self.owners: dict[int, VolunteerId] = {}
        self.last = 0

    def seat(self, member: Member) -> None:
        self.members.put(member.id, member)
        self.owners[member.position] = member.id
        self.last = max(self.last, member.position)

    def leave(self, member: Member) -> None:
        self.members.drop(member.id)
        del self.owners[member.position]
