"""What was given in all, counted as credits come, change and go.

In whole numbers: what is taken away again leaves nothing behind, however often. Two strangers may
sign any amount for each other, so the sum is cut off where a message could not carry it.
"""

from __future__ import annotations

from collections import Counter

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Credit, Totals
from crowdgrad.domain.work import MAX_COUNT, VolunteerId


class Tally:
    def __init__(self) -> None:
        self._samples = 0
        self._flop = 0
        self._givers: Counter[VolunteerId] = Counter()
        self._jobs: Counter[JobId] = Counter()

    def change(self, before: Credit | None, after: Credit | None) -> None:
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)

    def totals(self) -> Totals:
        return Totals(
            volunteers=len(self._givers),
            jobs=len(self._jobs),
            samples=min(self._samples, MAX_COUNT - 1),
            flop=float(self._flop),
        )

    def _count(self, credit: Credit, sign: int) -> None:
        sure = credit.sure
        if not sure.samples:
            return
        self._samples += sign * sure.samples
        self._flop += sign * int(sure.flop)
        self._givers[credit.volunteer] += sign
        self._jobs[credit.job] += sign
        if not self._givers[credit.volunteer]:
            del self._givers[credit.volunteer]
        if not self._jobs[credit.job]:
            del self._jobs[credit.job]
