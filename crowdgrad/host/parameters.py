"""The parameters, and the copies of them that are on their way to volunteers.

The rule changes one vector in place. What volunteers receive is a snapshot: one copy per version
that somebody asked for, shared by everyone who asked, given back to a small pool after the last
send.

Vectors larger than `INLINE_BYTES` are worked on in a thread, so that the event loop is never held
for long; a lock keeps whoever copies from seeing half a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np

from crowdgrad.domain.work import Version
from crowdgrad.numerics.rules.base import ServerRule
from crowdgrad.numerics.vectors import Vector, all_finite, as_bytes

INLINE_BYTES = 1 << 20
MAX_SPARE = 4


class Snapshot:
    """An immutable copy of the parameters at one version, in use by `users` sends."""

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.version = Version(incarnation=0, count=0)
        self.users = 0

    @property
    def payload(self) -> memoryview:
        return as_bytes(self.vector)


class Parameters:
    def __init__(self, vector: Vector, rule: ServerRule, version: Version) -> None:
        self.version = version
        self._vector = vector
        self._rule = rule
        self._lock = asyncio.Lock()
        self._latest: Snapshot | None = None
        self._spare: list[Snapshot] = []

    @property
    def bytes(self) -> int:
        return int(self._vector.nbytes)

    async def finite(self, update: Vector) -> bool:
        if update.nbytes <= INLINE_BYTES:
            return all_finite(update)
        return await asyncio.to_thread(all_finite, update)

    async def apply(self, update: Vector, base: Version) -> int:
        """Apply one update; returns its staleness. The update is scratch space afterwards."""
        async with self._lock:
            staleness = self.version.staleness(base)
            await self._do(lambda: self._rule.apply(self._vector, update, staleness=staleness))
            self.version = self.version.next()
        return staleness

    @asynccontextmanager
    async def published(self) -> AsyncIterator[Snapshot]:
        """The parameters as they are now, unchanging while the context lasts."""
        snapshot = await self._current()
        try:
            yield snapshot
        finally:
            self._release(snapshot)

    async def copy(self) -> tuple[Vector, Version]:
        """A copy of its own, and which version it is."""
        fresh = np.empty_like(self._vector)
        async with self._lock:
            await self._do(lambda: np.copyto(fresh, self._vector))
            return fresh, self.version

    async def _current(self) -> Snapshot:
        async with self._lock:
            latest = self._latest
            if latest is None or latest.version != self.version:
                fresh = self._spare.pop() if self._spare else Snapshot(np.empty_like(self._vector))
                await self._do(lambda: np.copyto(fresh.vector, self._vector))
                fresh.version = self.version
                self._latest = fresh
                if latest is not None and latest.users == 0:
                    self._keep(latest)
                latest = fresh
            latest.users += 1
            return latest

    def _release(self, snapshot: Snapshot) -> None:
        snapshot.users -= 1
        if snapshot.users == 0 and snapshot is not self._latest:
            self._keep(snapshot)

    def _keep(self, snapshot: Snapshot) -> None:
        if len(self._spare) < MAX_SPARE:
            self._spare.append(snapshot)

    async def _do(self, work: Callable[[], None]) -> None:
        if self._vector.nbytes <= INLINE_BYTES:
            work()
        else:
            await asyncio.to_thread(work)


class BufferPool:
    """Reused buffers for payloads that arrive, all of one size."""

    def __init__(self, size: int, *, spare: int = 8) -> None:
        self._size = size
        self._spare: list[memoryview] = []
        self._max_spare = spare

    def take(self) -> memoryview:
        return self._spare.pop() if self._spare else memoryview(bytearray(self._size))

    def give(self, buffer: memoryview) -> None:
        if len(self._spare) < self._max_spare and len(buffer) == self._size:
            self._spare.append(buffer)
