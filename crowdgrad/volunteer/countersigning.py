"""What hosts say that we gave: compared with our own count, countersigned or not, written down.

Offers come again and again while a job runs, since gifts add up. The journal has a line when the
job is over, or when an offer comes later still; whatever is not signed is said once, with why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Gift
from crowdgrad.volunteer.events import Event, Watch
from crowdgrad.volunteer.tally import Tally, judge

Write = Callable[[str, str], None]
"""A line of the journal: what kind, and the words."""
SETTLE_S = 1.0
"""How long a host's last word on our gift may take after its job is over."""
MAX_REMEMBERED = 256

T = TypeVar("T")


class Countersigning:
    def __init__(self, tally: Tally, write: Write, watch: Watch) -> None:
        self._tally = tally
        self._write = write
        self._watch = watch
        self._at: JobId | None = None
        """What we work for now."""
        self._signed: dict[JobId, Gift] = {}
        self._told: dict[JobId, Gift] = {}
        self._refused: dict[JobId, str] = {}
        self._news = asyncio.Event()

    def begin(self, job: JobId) -> None:
        self._at = job

    def end(self) -> None:
        """The job at hand is over, or we have left it."""
        job, self._at = self._at, None
        if job is not None and job in self._signed:
            self._tell(job, self._signed[job])

    def offered(self, job: JobId, gift: Gift) -> bool:
        """Whether we sign that."""
        agreed, why = judge(self._tally.of(job), gift)
        if not agreed:
            self._refuse(job, gift, why)
            return False
        _keep(self._signed, job, gift)
        self._news.set()
        if job != self._at:
            self._tell(job, gift)
        return True

    async def settle(self, samples: int) -> None:
        """Wait a moment for the last word on the job at hand: once we are gone nobody signs it."""
        job = self._at
        if job is None or samples == 0:
            return
        try:
            async with asyncio.timeout(SETTLE_S):
                while (signed := self._signed.get(job)) is None or signed.samples < samples:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return  # its host does not report it, or the matchmaker is away

    def _tell(self, job: JobId, gift: Gift) -> None:
        if self._told.get(job) != gift:
            _keep(self._told, job, gift)
            words = f"You gave {gift.samples:,} samples to {self._name(job)}, countersigned."
            self._write("credit", words)

    def _refuse(self, job: JobId, gift: Gift, why: str) -> None:
        if job not in self._refused:
            _keep(self._refused, job, why)
            said = f"Its host says you gave {gift.samples:,} samples to {self._name(job)}"
            self._watch(Event(kind="trouble", text=f"{said}. Not countersigned: {why}."))

    def _name(self, job: JobId) -> str:
        given = self._tally.of(job)
        return f"“{given.title}”" if given is not None and given.title else f"job {job}"


def _keep(rows: dict[JobId, T], job: JobId, value: T) -> None:
    """The latest, and not more than can be remembered."""
    rows.pop(job, None)
    rows[job] = value
    while len(rows) > MAX_REMEMBERED:
        del rows[next(iter(rows))]
