"""What happened in the virtual world, line by line, and what must never have happened."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque

from crowdgrad.simulator.virtual_time import START_S, VirtualLoop

LINES = 60
"""What is told of a life that went wrong, where nobody asked for all of it."""


class Violation(Exception):
    """Something that must never be."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind
        self.what = what


class Story:
    def __init__(self, loop: VirtualLoop, *, trace: bool = False) -> None:
        """`trace`: remember everything."""
        self._loop = loop
        self._hash = hashlib.sha256()
        self.last: deque[str] = deque(maxlen=None if trace else LINES)
        self.lines = 0
        self.counts: Counter[str] = Counter()
        """How often what happened."""
        self.violation: Violation | None = None
        self.broken: asyncio.Future[None] = loop.create_future()
        """Done with the first violation."""

    def tell(self, text: str) -> None:
        line = f"{self._loop.now - START_S:10.4f}  {text}"
        self._hash.update(line.encode())
        self.last.append(line)
        self.lines += 1

    @property
    def fingerprint(self) -> str:
        """Of everything that was told: the same seed gives the same."""
        return self._hash.hexdigest()

    def violate(self, kind: str, what: str) -> None:
        """The first one counts; what follows from it does not.

        It is noted, not raised: the code that is watched would catch it.
        """
        if self.violation is None:
            self.tell(f"VIOLATION {kind}: {what}")
            self.violation = Violation(kind, what)
            if not self.broken.done():
                self.broken.set_result(None)

    def must(self, holds: bool, kind: str, what: str) -> None:
        if not holds:
            self.violate(kind, what)
