"""The duty cycle: a trainer that may compute for a share of the time rests between its batches.

    owed ← owed + busy / share - passed

After a batch of t seconds that is t (1/share - 1). It is rested before the next batch, not before
the answer: an update that is done goes home at once, and the time until the next unit comes counts
as rest. What a late timer slept too long is made good; of what was idle by itself little is saved.

Busy is the thread that asks for a batch: it takes part in all that is computed, so with several
threads none of them computes for longer. An average over them would let one work without a rest
where a batch gives the others nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import overload

from crowdgrad.program.engines.base import Batch

SAVED_S = 0.05
"""Rest that is taken ahead, at most: so much may be worked off without a pause."""
LEAST_S = 0.002
"""Shorter rests are put off: a timer is not that exact."""


class Pacer:
    def __init__(
        self,
        *,
        busy: Callable[[], float] | None = time.thread_time,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`busy`: seconds spent so far; None: nobody says, as of a GPU, and all the time of a unit
        but its rests counts. `clock`: seconds passed."""
        self._says = busy is not None
        self._busy = busy or clock
        self._clock = clock
        self._sleep = sleep
        self._share = 1.0
        self._owed_s = 0.0
        self._at, self._spent = clock(), self._busy()

    def begin(self, share: float) -> None:
        """A unit, to be computed with this share of the time. What was idle since the last counts
        as rest, what it took to hear of it as work."""
        self._account(between=True)
        self._share = share
        if share == 1:
            self._owed_s = min(0.0, self._owed_s)

    def rest(self) -> None:
        """Before each batch."""
        self._account()
        if self._share < 1 and self._owed_s >= LEAST_S:
            self._sleep(self._owed_s)
            self._account(between=True)

    def end(self) -> None:
        """Of a unit."""
        self._account()

    def _account(self, *, between: bool = False) -> None:
        """`between`: nothing was asked of it since the last time."""
        at, spent = self._clock(), self._busy()
        busy_s = spent - self._spent if self._says or not between else 0.0
        self._owed_s = max(-SAVED_S, self._owed_s + busy_s / self._share - (at - self._at))
        self._at, self._spent = at, spent


class Paced(Sequence[Batch]):
    """Batches before each of which a rest is due, the first time it is taken."""

    def __init__(self, batches: Sequence[Batch], rest: Callable[[], None]) -> None:
        self._batches = batches
        self._rest = rest
        self._taken = 0

    def __len__(self) -> int:
        return len(self._batches)

    @overload
    def __getitem__(self, index: int) -> Batch: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Batch]: ...

    def __getitem__(self, index: int | slice) -> Batch | Sequence[Batch]:
        if isinstance(index, slice):
            return self._batches[index]
        if index == self._taken < len(self._batches):
            self._taken += 1
            self._rest()
        return self._batches[index]
