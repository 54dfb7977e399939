"""The desk where hosts publish and volunteers register: who may, and what is remembered.

A token proves that somebody is who they were before. Its owner may bring its own, so that it stays
valid when the matchmaker comes back with an empty memory; only its hash is stored. A fingerprint of
a key is public and proves nothing by itself. It replaces the token only for those who are away (a
job whose host is gone, a volunteer without a socket), who could be announced afresh by anyone once
they were forgotten; hosts check keys themselves before they let anyone work.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import (
    CODE_ALPHABET,
    Code,
    JobListing,
    JobRecord,
    Presence,
    VolunteerRecord,
    Waiting,
    as_code,
)
from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker.refusal import already_here, nonsense, not_yours, too_many, unknown
from crowdgrad.net import rooms
from crowdgrad.planner.matchmaking import Patience
from crowdgrad.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the house is run."""

    heartbeat_s: float = 4.0
    """How often everyone says that they are still here."""
    patience: Patience = field(default_factory=Patience)
    forget_after_s: float = 3600.0
    """Jobs that are over or whose host is gone, and absent volunteers, are kept this long."""
    max_jobs: int = 10_000
    max_volunteers: int = 100_000
    hello_within_s: float = 10.0
    """A socket that has not said who it is by then is closed."""


def fingerprint(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


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
        stamps += [r.waiting.since for r in store.volunteers()]
        self._last_stamp = max(stamps, default=0.0)

    def stamp(self) -> float:
        """The time, always later than before: a clock set back turns no queue around."""
        self._last_stamp = max(self._wall(), self._last_stamp + 1e-6)
        return self._last_stamp

    def publish(self, body: rooms.Publish, host: Presence) -> tuple[JobRecord, str]:
        """Remember a job, new or again (`host`: how present its host is). Raises Refusal."""
        offer = body.offer.offer()
        known = self._store.job(offer.id)
        if known is None and self._store.count_jobs() >= self._rules.max_jobs:
            raise too_many("jobs", self._rules.max_jobs)
        if known is not None:
            heir = host == "gone" and offer.key != "" and offer.key == known.listing.offer.key
            if not heir and not _fits(body.token, known.owner):
                raise not_yours("job", offer.id)
        token = body.token or self._random_bytes(24).hex()
        record = JobRecord(
            listing=JobListing(
                offer=offer,
                state=body.state,
                published_at=self.stamp() if known is None else known.listing.published_at,
                code=self._code(body.code) if known is None else known.listing.code,
            ),
            owner=fingerprint(token),
            first_free=max(body.next_position, 1 if known is None else known.first_free),
        )
        self._check_members(body)
        self._store.put_job(record)
        self._seat(offer.id, body.members)
        return record, token

    def register(self, body: rooms.Register, *, here: bool) -> tuple[VolunteerRecord, str]:
        """Remember a volunteer, new or again (`here`: it has a socket). Raises Refusal.

        Its place in the queue stays.
        """
        volunteer = body.volunteer.volunteer()
        known = self._store.volunteer(volunteer.id)
        if known is None and self._store.count_volunteers() >= self._rules.max_volunteers:
            raise too_many("volunteers", self._rules.max_volunteers)
        if known is not None and here and not _fits(body.token, known.owner):
            raise already_here(volunteer.id)
        token = body.token or self._random_bytes(24).hex()
        record = VolunteerRecord(
            volunteer=volunteer,
            owner=fingerprint(token),
            waiting=Waiting(
                volunteer=volunteer.id,
                wants=body.wants,
                avoid=frozenset(JobId(job) for job in body.avoid),
                since=self.stamp() if known is None else known.waiting.since,
            ),
        )
        self._store.put_volunteer(record)
        return record, token

    def wait_again(
        self, volunteer: VolunteerId, wants: str | None, avoid: frozenset[JobId]
    ) -> Waiting:
        """Put a volunteer at the end of the queue."""
        record = self._store.volunteer(volunteer)
        assert record is not None, volunteer
        waiting = Waiting(volunteer=volunteer, wants=wants, avoid=avoid, since=self.stamp())
        self._store.put_volunteer(replace(record, waiting=waiting))
        return waiting

    def job_of(self, job: str, token: str) -> JobRecord:
        """Raises Refusal."""
        record = self._store.job(JobId(job))
        if record is None:
            raise unknown("job", job)
        if not _fits(token, record.owner):
            raise not_yours("job", job)
        return record

    def volunteer_of(self, volunteer: str, token: str) -> VolunteerRecord:
        """Raises Refusal."""
        record = self._store.volunteer(VolunteerId(volunteer))
        if record is None:
            raise unknown("volunteer", volunteer)
        if not _fits(token, record.owner):
            raise not_yours("volunteer", volunteer)
        return record

    def find_job(self, job_or_code: str) -> JobRecord:
        """Raises Refusal."""
        record = self._store.job(JobId(job_or_code))
        if record is None and (code := as_code(job_or_code)) is not None:
            record = self._store.job_by_code(code)
        if record is None:
            raise unknown("job", job_or_code)
        return record

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

    def _seat(self, job: JobId, members: tuple[rooms.MemberBody, ...]) -> None:
        """Take over what the host remembers; where it contradicts us, we remember better."""
        for told in members:
            with contextlib.suppress(ValueError):
                self._store.add_member(job, told.member())


def _fits(token: str | None, owner: str) -> bool:
    return token is not None and hmac.compare_digest(fingerprint(token), owner)
