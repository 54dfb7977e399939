"""A store that lives as long as its process."""

from __future__ import annotations

from crowdgrad.domain.job import JobId, Member
from crowdgrad.domain.matching import Code, JobRecord, VolunteerRecord
from crowdgrad.domain.work import VolunteerId


class MemoryStore:
    def __init__(self) -> None:
        self._jobs: dict[JobId, JobRecord] = {}
        self._codes: dict[Code, JobId] = {}
        self._volunteers: dict[VolunteerId, VolunteerRecord] = {}
        self._members: dict[JobId, dict[VolunteerId, Member]] = {}
        self._owners: dict[JobId, dict[int, VolunteerId]] = {}
        self._last: dict[JobId, int] = {}

    def put_job(self, record: JobRecord) -> None:
        job, code = record.listing.id, record.listing.code
        if self._codes.get(code, job) != job:
            raise ValueError(f"code {code} is that of job {self._codes[code]}")
        before = self._jobs.get(job)
        if before is not None:
            del self._codes[before.listing.code]
        self._jobs[job] = record
        self._codes[code] = job
        self._members.setdefault(job, {})
        self._owners.setdefault(job, {})

    def job(self, job: JobId) -> JobRecord | None:
        return self._jobs.get(job)

    def job_by_code(self, code: Code) -> JobRecord | None:
        job = self._codes.get(code)
        return None if job is None else self._jobs[job]

    def jobs(self) -> list[JobRecord]:
        return sorted(self._jobs.values(), key=lambda r: (r.listing.published_at, r.listing.id))

    def count_jobs(self) -> int:
        return len(self._jobs)

    def forget_job(self, job: JobId) -> None:
        record = self._jobs.pop(job, None)
        if record is not None:
            del self._codes[record.listing.code]
        for roster in (self._members, self._owners, self._last):
            roster.pop(job, None)

    def put_volunteer(self, record: VolunteerRecord) -> None:
        self._volunteers[record.volunteer.id] = record

    def volunteer(self, volunteer: VolunteerId) -> VolunteerRecord | None:
        return self._volunteers.get(volunteer)

    def volunteers(self) -> list[VolunteerRecord]:
        return sorted(self._volunteers.values(), key=lambda r: (r.waiting.since, r.volunteer.id))

    def count_volunteers(self) -> int:
        return len(self._volunteers)

    def forget_volunteer(self, volunteer: VolunteerId) -> None:
        self._volunteers.pop(volunteer, None)

    def add_member(self, job: JobId, member: Member) -> None:
        if job not in self._jobs:
            raise ValueError(f"job {job} is unknown")
        owner = self._owners[job].get(member.position, member.id)
        known = self._members[job].get(member.id, member)
        if (owner != member.id and member.position != 0) or known.position != member.position:
            raise ValueError(f"job {job}: position {member.position} cannot be {member.id}'s")
        if owner != member.id:
            del self._members[job][owner]
        self._owners[job][member.position] = member.id
        self._members[job][member.id] = member
        self._last[job] = max(self._last.get(job, 0), member.position)

    def member(self, job: JobId, volunteer: VolunteerId) -> Member | None:
        return self._members.get(job, {}).get(volunteer)

    def members(self, job: JobId) -> tuple[Member, ...]:
        return tuple(sorted(self._members.get(job, {}).values(), key=lambda m: m.position))

    def next_position(self, job: JobId) -> int:
        record = self._jobs.get(job)
        reserved = 1 if record is None else record.first_free
        return max(reserved, self._last.get(job, 0) + 1)
