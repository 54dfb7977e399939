"""Where tensors go in one piece of memory: best fit with coalescing, as in onnxruntime.

A tensor takes the smallest free part that holds it, and gives the rest of that part back; free
parts that touch become one. Between tensors of different sizes some memory is free but useless, so
a program needs more than what is alive in it. How much more is found by doing the same here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

GRAIN: Final = 256
"""Every tensor is rounded up to this."""
Part = tuple[int, int]
"""Where it begins, and its size."""


class Placement:
    def __init__(self) -> None:
        self.high = 0
        """The end of the highest part ever in use: so much memory is needed."""
        self._top = 0
        """Everything from here on is free."""
        self._free: list[Part] = []
        """Size and beginning of the free parts below, the smallest first."""
        self._begins: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def take(self, size: int) -> Part:
        """A part for so many bytes."""
        size = -(-size // GRAIN) * GRAIN
        index = bisect_left(self._free, (size, 0))
        if index == len(self._free) or not size:
            start = self._top
            self._top += size
            self.high = max(self.high, self._top)
            return start, size
        found, start = self._free[index]
        self._forget(start, found)
        if found > size:
            self._keep(start + size, found - size)
        return start, size

    def give(self, part: Part) -> None:
        """Back, what `take` gave."""
        start, size = part
        if not size:
            return
        if start in self._ends:
            before = self._ends[start]
            self._forget(before, start - before)
            start, size = before, size + start - before
        if start + size in self._begins:
            behind = self._begins[start + size]
            self._forget(start + size, behind)
            size += behind
        if start + size == self._top:
            self._top = start
        else:
            self._keep(start, size)

    def _keep(self, start: int, size: int) -> None:
        insort(self._free, (size, start))
        self._begins[start] = size
        self._ends[start + size] = start

    def _forget(self, start: int, size: int) -> None:
        del self._free[bisect_left(self._free, (size, start))]
        del self._begins[start], self._ends[start + size]
