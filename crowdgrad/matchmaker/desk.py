"""The desk where hosts publish and volunteers register: who may, and what is remembered.

Whoever comes here has proven a key (`doorkeeper`). A job belongs to the key that published it, a
volunteer's record to the volunteer's own; nobody else can change either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import (
    CODE_ALPHABET,
    Code,
    JobListing,
    JobRecord,
    VolunteerRecord,
    Wants,
    as_code,
)
from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker.refusal import nonsense, not_yours, too_many, unknown
from crowdgrad.net import bodies, rooms
from crowdgrad.net.identity import id_of
from crowdgrad.planner.matchmaking import Patience
from crowdgrad.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the house is run."""

    heartbeat_s: float = 4.0
    """How often everyone says that they are still here; less often where there are many."""
    beats_per_s: float = 500.0
    """How many heartbeats of waiting volunteers are heard at most."""
    patience: Patience = field(default_factory=Patience)
    forget_after_s: float = 3600.0
    """Jobs that are over or whose host is gone are kept this long."""
    absent_s: float = 600.0
    """A volunteer that was lost keeps its place in the line this long."""
    max_absent: int = 10_000
    """… and so many of them do."""
    max_jobs: int = 10_000
    max_jobs_of_one: int = 100
    """Of one host, with those that are over and not forgotten yet."""
    max_volunteers: int = 100_000
    hello_within_s: float = 5.0
    """A socket that has not said who it is by then is closed."""


class Desk:
    def __init__(
        self,
        store: Store,
        *,
        wall: Callable[[], float],
        random_bytes: Callable[[int], bytes],
        rules: Rules,
    ) -> None:
        self._store = store
        self._wall = wall
        self._random_bytes = random_bytes
        self._rules = rules
        stamps = [r.listing.published_at for r in store.jobs()]
        stamps += [r.since for r in store.volunteers()]
        self._last_stamp = max(stamps, default=0.0)

    def stamp(self) -> float:
        """The time, always later than before: a clock set back turns no queue around."""
        self._last_stamp = max(self._wall(), self._last_stamp + 1e-6)
        return self._last_stamp

    def publish(self, key: str, body: rooms.Publish) -> JobRecord:
        """Remember a job, new or again, of the host with that public key. Raises Refusal."""
        offer = body.offer.offer()
        if offer.public not in ("", key):
            raise nonsense("The job names another public key than the one that publishes it.")
        # Of its key nobody has to be believed: it is the one that signed.
        offer = replace(offer, key=fingerprint(key), public=key)
        known = self._store.job(offer.id)
        if known is None:
            self._check_room(key)
        elif known.owner != key:
            raise not_yours("job", offer.id)
        record = JobRecord(
            listing=JobListing(
                offer=offer,
                state=body.state,
                published_at=self.stamp() if known is None else known.listing.published_at,
                code=self._code(body.code) if known is None else known.listing.code,
            ),
            owner=key,
            first_free=max(body.next_position, 1 if known is None else known.first_free),
        )
        self._check_members(body)
        self._store.put_job(record)
        # Of a job that is known, we know who had a place, and who wants to be forgotten.
        self._seat(offer.id, body.members if known is None else body.members[:1])
        return record

    def move(self, job: JobId, message: rooms.Moved) -> JobRecord | None:
        """Remember where a host is now; None: there already. Raises MessageError."""
        record = self._store.job(job)
        assert record is not None, job
        offer = record.listing.offer
        moved = bodies.sensible(
            lambda: replace(offer, address=message.address, routes=message.routes)
        )
        if moved == offer:
            return None
        record = replace(record, listing=replace(record.listing, offer=moved))
        self._store.put_job(record)
        return record

    def register(self, key: str, body: rooms.Register) -> VolunteerRecord:
        """Remember a volunteer, new or again; its place in the queue stays. Raises Refusal."""
        volunteer = body.volunteer.volunteer()
        known = self._store.volunteer(volunteer.id)
        if known is None and self._store.count_volunteers() >= self._rules.max_volunteers:
            raise too_many("volunteers", self._rules.max_volunteers)
        if known is not None and known.owner != key:
            raise not_yours("volunteer", volunteer.id)
        record = VolunteerRecord(
            volunteer=volunteer,
            owner=key,
            since=self.stamp() if known is None else known.since,
            machine=body.machine.machine(),
            wants=body.wants.wants(),
            avoid=frozenset(JobId(job) for job in body.avoid),
            job=None if known is None else known.job,
        )
        self._store.put_volunteer(record)
        return record

    def wait_again(
        self, record: VolunteerRecord, wants: Wants, avoid: frozenset[JobId]
    ) -> VolunteerRecord:
        """Put a volunteer at the end of the queue."""
        record = replace(record, wants=wants, avoid=avoid, since=self.stamp(), job=None)
        self._store.put_volunteer(record)
        return record

    def find_job(self, job_or_code: str) -> JobRecord:
        """What anybody may see who knows its name. Raises Refusal."""
        record = self._store.job(JobId(job_or_code))
        if record is None and (code := as_code(job_or_code)) is not None:
            record = self._store.job_by_code(code)
        if record is None or record.listing.offer.visibility == "group":
            raise unknown("job", job_or_code)
        return record

    def owned(self, key: str, job: JobId) -> JobRecord:
        """Raises Refusal where it is not known, or another key's."""
        record = self._store.job(job)
        if record is None:
            raise unknown("job", job)
        if record.owner != key:
            raise not_yours("job", job)
        return record

    def _check_room(self, key: str) -> None:
        if self._store.count_jobs() >= self._rules.max_jobs:
            raise too_many("jobs", self._rules.max_jobs)
        if len(self._store.jobs_of(key)) >= self._rules.max_jobs_of_one:
            raise too_many("jobs of yours", self._rules.max_jobs_of_one)

    def _code(self, wished: str | None) -> Code:
        code = as_code(wished) if wished is not None else None
        while code is None or self._store.job_by_code(code) is not None:
            # 240 is the largest multiple of 30 letters in a byte: no letter is favoured.
            fair = [b for b in self._random_bytes(16) if b < 240]
            letters = "".join(CODE_ALPHABET[b % len(CODE_ALPHABET)] for b in fair)
            code = as_code(letters[:6])
        return code

    def _check_members(self, body: rooms.Publish) -> None:
        positions = [member.position for member in body.members]
        ids = {member.id for member in body.members}
        if positions[0] != 0 or positions != sorted(set(positions)) or len(ids) != len(positions):
            raise nonsense("The members are not in order, from the host's own worker at 0.")
        if any(not member.name.isprintable() for member in body.members):
            raise nonsense("A member's name has characters that cannot be printed.")
        worker = self._store.member(JobId(body.offer.id), VolunteerId(body.members[0].id))
        if worker is not None and worker.position != 0:
            raise nonsense(f"The host's own worker already has position {worker.position}.")

    def _seat(self, job: JobId, members: tuple[bodies.MemberBody, ...]) -> None:
        """Take over what the host remembers; where it contradicts us, we remember better."""
        for told in members:
            with contextlib.suppress(ValueError):
                self._store.add_member(job, told.member())


def fingerprint(key: str) -> str:
    """Of a public key in hexadecimal digits."""
    return id_of(bytes.fromhex(key))
