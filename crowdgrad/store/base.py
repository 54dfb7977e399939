"""What the matchmaker must not forget: jobs, volunteers, and who owns which place in a roster.

Who is connected right now is not here: it is true only as long as a socket is open. Every
implementation passes the suite in `tests/contracts/store_contract.py`. Methods are synchronous and
short; a store that waits for a disk is called from a thread.
"""

from __future__ import annotations

from typing import Protocol

from crowdgrad.domain.job import JobId, Member
from crowdgrad.domain.matching import Code, JobRecord, VolunteerRecord
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
