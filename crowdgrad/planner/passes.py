"""Epochs as passes over what is there: each covers the shards that were there when it began.

Shards only ever come at the end of a split, so how many there were says which. Epochs may differ in
size then: how many are done is counted along their sizes, one after the other. What is handed out
belongs to an epoch that has begun, so data that comes never makes what was done less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise

Step = tuple[int, int]
"""From this epoch on, every epoch has so many shards."""


class Passes:
    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._steps = list(steps)

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(self._steps)

    def begin(self, epoch: int, shards: int) -> None:
        """That epoch begins, and finds so many."""
        if not self._steps or self._steps[-1][1] != shards:
            self._steps.append((epoch, shards))

    def shards_in(self, epoch: int) -> int | None:
        """How many an epoch that has begun covers; None where that was not noted."""
        at = bisect_right(self._steps, epoch, key=lambda step: step[0])
        return self._steps[at - 1][1] if at else None

    def done(self, samples: int, epoch: int, now: int, records_in: Callable[[int], int]) -> float:
        """How many epochs so many samples are.

        `epoch`: the last that has begun; later ones will find `now` shards, as it is now.
        `records_in(shards)`: of so many of the first.
        """
        sizes = [(first, records_in(shards)) for first, shards in self._steps]
        if epoch < 0 or not sizes:
            sizes = [(0, records_in(now))]
        elif sizes[-1][1] != records_in(now):
            sizes.append((epoch + 1, records_in(now)))
        left = samples
        for (first, size), (following, _) in pairwise(sizes):
            if left < (following - first) * size:
                return first + left / size
            left -= (following - first) * size
        first, size = sizes[-1]
        return first + left / size


def wrong(steps: tuple[Step, ...], epoch: int, shards: int) -> str:
    """Why these cannot be the passes of a split of so many shards; "" where they may be."""
    epochs = [first for first, _ in steps]
    counts = [count for _, count in steps]
    if epochs != sorted(set(epochs)) or (epochs and (epochs[0] != 0 or epochs[-1] > epoch)):
        return f"its passes began with the epochs {epochs[:10]}"
    if counts != sorted(set(counts)) or (counts and not 0 < counts[0] <= counts[-1] <= shards):
        return f"its passes had {counts[:10]} of {shards} shards"
    return ""
