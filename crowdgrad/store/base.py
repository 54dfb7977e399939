"""What the matchmaker must not forget: jobs, volunteers, places in rosters, and who gave what.

Who is connected right now is not here: it is true only as long as a socket is open. Every
implementation passes the suite in `tests/contracts/store_contract.py`.

All methods but `kept` return at once: a store answers from memory and writes behind. What was
changed before `kept` was called lasts once that returns, all of it or, after a crash before that,
a beginning of it in the order in which it was changed. Whoever is promised something is told only
after that.
"""

from __future__ import annotations

from typing import Protocol

from crowdgrad.domain.job import JobId, Member
from crowdgrad.domain.matching import Code, Credit, JobRecord, Totals, VolunteerRecord
from crowdgrad.domain.work import VolunteerId


class Store(Protocol):
    def put_job(self, record: JobRecord) -> None:
        """Remember a job, new or changed. Raises ValueError when its code is another job's."""
        ...

    def job(self, job: JobId) -> JobRecord | None: ...

    def job_by_code(self, code: Code) -> JobRecord | None: ...

    def jobs(self) -> list[JobRecord]:
        """All of them, the first published first."""
        ...

    def count_jobs(self) -> int: ...

    def forget_job(self, job: JobId) -> None:
        """Its roster goes with it. Forgetting what is not there is no error."""
        ...

    def put_volunteer(self, record: VolunteerRecord) -> None: ...

    def volunteer(self, volunteer: VolunteerId) -> VolunteerRecord | None: ...

    def volunteers(self) -> list[VolunteerRecord]:
        """All of them, the longest waiting first."""
        ...

    def jobs_of(self, owner: str) -> list[JobRecord]:
        """Those published with that public key, the first published first."""
        ...

    def count_volunteers(self) -> int: ...

    def forget_volunteer(self, volunteer: VolunteerId) -> None:
        """Its places in rosters stay: a position is never given twice."""
        ...

    def add_member(self, job: JobId, member: Member) -> None:
        """Give a place. Giving the same place again to the same volunteer changes only the name.

        Position 0 is the host's own worker, whichever key that runs with: it may change hands.
        Raises ValueError when the position is someone else's, when the volunteer has another one,
        or when the job is unknown.
        """
        ...

    def member(self, job: JobId, volunteer: VolunteerId) -> Member | None: ...

    def members(self, job: JobId) -> tuple[Member, ...]:
        """Everyone who ever had a place, by position."""
        ...

    def next_position(self, job: JobId) -> int:
        """The lowest position that nobody ever had and that is not reserved by `first_free`."""
        ...

    def forget_member(self, job: JobId, volunteer: VolunteerId) -> None:
        """Take the name off a place; the place itself is never given again (`first_free`)."""
        ...

    def places(self, volunteer: VolunteerId) -> list[tuple[JobId, Member]]:
        """Every place it has in any roster, by job."""
        ...

    def put_credit(self, credit: Credit) -> None:
        """Remember what a volunteer gave to a job; replaces what was known of the two."""
        ...

    def credit(self, job: JobId, volunteer: VolunteerId) -> Credit | None: ...

    def gave(self, volunteer: VolunteerId) -> list[Credit]:
        """By whom it was given, the latest report first. It outlives the job and the volunteer."""
        ...

    def received(self, host: str) -> list[Credit]:
        """What was given to a host, by the fingerprint of its key, the latest report first."""
        ...

    def forget_credit(self, job: JobId, volunteer: VolunteerId) -> None: ...

    def count_credits(self) -> int: ...

    def totals(self) -> Totals:
        """Of all credits there are; what is forgotten counts no more."""
        ...

    def secret(self, name: str) -> bytes | None:
        """What the service itself keeps, e.g. its key."""
        ...

    def keep_secret(self, name: str, value: bytes) -> None: ...

    @property
    def trouble(self) -> str:
        """Why nothing can be written just now; empty: all is well."""
        ...

    async def kept(self) -> None:
        """Return when everything changed so far lasts. Raises CannotWrite where it does not."""
        ...

    def close(self) -> None:
        """Write what is left; nothing may be changed afterwards."""
        ...
