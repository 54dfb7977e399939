"""The parameters, what the rule remembers, and the copies on their way to volunteers.

The rule changes one vector in place, the state; the buffers behind the parameters are merged beside
(`numerics.buffers`). What volunteers receive is a snapshot: one copy per published version that
somebody asked for, shared by everyone who asked. The latest is written over where nobody receives
it; older ones live until their last send is over, so there are never more of them than sends under
way. A new version is published every `publish_every` changes. For rules that need it, what a unit
in flight started from is kept until nobody works from it any more (`backups`).

Vectors larger than `INLINE_BYTES` are worked on in a thread, so that the event loop is never held
for long; a lock keeps whoever copies from seeing half a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import Version
from crowdgrad.host.allocation import INLINE_BYTES, blank, copy_of
from crowdgrad.host.backups import Backups, HalfBackups, SharedBackups
from crowdgrad.numerics import buffers
from crowdgrad.numerics.decay import decay
from crowdgrad.numerics.layout import StateLayout, trained_parts
from crowdgrad.numerics.rules.base import Memory, Rule, Step, begin
from crowdgrad.numerics.staleness import weight
from crowdgrad.numerics.vectors import Vector, all_finite, as_bytes, blocks
from crowdgrad.recipes.base import Serving

MAX_SPARE = 1
T = TypeVar("T")


class Snapshot:
    """An immutable copy of the parameters at one version, in use by `users` sends and backups."""

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.version = Version(incarnation=0, count=0)
        self.users = 0

    @property
    def payload(self) -> memoryview:
        return as_bytes(self.vector)


@dataclass(frozen=True, slots=True)
class Saved:
    """Parameters, buffers and the rule's memory as they were at one version."""

    vector: Vector
    memory: Memory
    version: Version


class Parameters:
    def __init__(
        self,
        state: Vector,
        rule: Rule,
        version: Version,
        serving: Serving,
        spec: ProgramSpec,
    ) -> None:
        self.version = version
        self._state = state
        self._layout = StateLayout(spec)
        self._vector = state[: spec.size]
        """The parameters themselves, what the rule changes."""
        self._rule = rule
        self._memory = begin(rule, spec.size)
        self._serving = serving
        self._trained = trained_parts(spec)
        self._frozen = [
            (part, self._vector[part].copy()) for part in _gaps(self._trained, spec.size)
        ]
        self._lock = asyncio.Lock()
        self._latest: Snapshot | None = None
        self._spare: list[Snapshot] = []
        self._pinned = 0
        self._backups: Backups | None = None
        self._wanted: set[Version] = set()
        """What somebody works from, whether it is kept already or not."""
        self._held: dict[Version, Snapshot] = {}
        """Snapshots that backups share."""
        if rule.needs_base:
            half = serving.half_backups
            self._backups = HalfBackups(spec.size) if half else SharedBackups()
        self._merged: Vector | None = None
        self._merged_samples = self._merged_batches = 0

    @property
    def state_bytes(self) -> int:
        return 4 * self._layout.words

    @property
    def update_bytes(self) -> int:
        return 4 * self._layout.update_words

    @property
    def backup_bytes(self) -> int:
        return self._backups.bytes if self._backups is not None else 0

    async def acceptable(self, update: Vector) -> bool:
        """Whether an update's numbers are all finite and its counters credible."""
        return await self.finite(update) and buffers.credible(self._layout, update)

    async def finite(self, vector: Vector) -> bool:
        """Whether the numbers of a state, an update or the rule's memory are all finite."""
        if vector.nbytes <= INLINE_BYTES:
            return self._finite(vector)
        return await asyncio.to_thread(self._finite, vector)

    async def sound(self) -> bool:
        """Whether our own numbers are all finite."""
        async with self._lock:
            return await self.finite(self._state)

    def _finite(self, vector: Vector) -> bool:
        if not all_finite(vector[: self._layout.size]):
            return False
        return len(vector) == self._layout.size or buffers.finite(self._layout, vector)

    # -- changes ------------------------------------------------------------------------------

    async def apply(
        self,
        update: Vector,
        base: Version,
        *,
        rate: float,
        batches: int = 1,
        under_way: int = 0,
        applied: Callable[[int], None] = lambda staleness: None,
    ) -> int | None:
        """Apply one update; returns its staleness, or None where we have gone back since.

        `under_way`: how many others are being computed. The update is scratch space afterwards.
        `applied` is called before anybody else can look.
        """
        async with self._lock:
            if base.incarnation != self.version.incarnation:
                return None
            staleness = self.version.staleness(base)
            rate *= weight(max(staleness, under_way), self._patience(batches))
            part = buffers.share(staleness)
            await self._do(lambda: self._step(update, base, rate, batches, part))
            self.version = self.version.next()
            applied(staleness)
        return staleness

    def _patience(self, batches: int) -> float:
        """In versions: a unit of several batches is as many gradients at once, so it has less.

        Never below one: as many updates as are on their way then add up to their mean, which no
        number of volunteers makes overshoot.
        """
        patience = self._serving.patience
        return max(1.0, patience / batches) if patience else 0.0

    async def merge(self, update: Vector, base: Version, *, samples: int, batches: int) -> bool:
        """Add an update to the round's mean, weighted by its samples.

        False where we have gone back since: there is another round now.
        """
        async with self._lock:
            if base.incarnation != self.version.incarnation:
                return False
            await self._do(lambda: self._add(update, samples))
            self._merged_samples += samples
            self._merged_batches += batches * samples
        return True

    async def apply_merged(
        self, *, rate: float, applied: Callable[[], None] = lambda: None
    ) -> None:
        """Apply the round's mean as one change, and begin the next round's.

        `applied` is called before anybody else can look.
        """
        async with self._lock:
            total, mean = self._merged_samples, self._merged
            if mean is None:
                return  # we have gone back since
            batches = max(1, round(self._merged_batches / total))
            await self._do(lambda: self._step_mean(mean, total, rate, batches))
            self.version = self.version.next()
            self._merged_samples = self._merged_batches = 0
            applied()

    def _step(
        self, received: Vector, base: Version, rate: float, batches: int, part: float
    ) -> None:
        """`part`: how much the received buffers weigh."""
        buffers.mix(self._layout, self._state, received, part)
        update = received[: self._layout.size]
        for here, values in self._frozen:  # nor into the rule's memory
            update[here] = values if self._rule.takes_weights else 0.0
        before = self._backups.weights(base) if self._backups is not None else None
        step = Step(rate=rate, batches=batches, base_D=before, trained=self._trained)
        if self._serving.decay:
            amount = min(1.0, rate * self._serving.decay * batches)
            decay(self._vector, amount, self._trained)
        self._rule.step(self._vector, update, self._memory, step)
        for here, values in self._frozen:  # whatever a stranger sent for them
            self._vector[here] = values

    def _add(self, update: Vector, samples: int) -> None:
        if self._merged is None:
            self._merged = np.zeros(self._layout.update_words, np.float32)
        # Buffers as a running mean: a sum of large ones would overflow.
        part = samples / (self._merged_samples + samples)
        buffers.mix(self._layout, self._merged, update, part)
        share = np.float32(samples)
        update_D, merged_D = update[: self._layout.size], self._merged[: self._layout.size]
        with np.errstate(all="ignore"):
            for here in blocks(self._layout.size):
                scaled = np.multiply(update_D[here], share, out=update_D[here])
                np.add(merged_D[here], scaled, out=merged_D[here])

    def _step_mean(self, merged: Vector, total: int, rate: float, batches: int) -> None:
        mean_D = merged[: self._layout.size]
        np.divide(mean_D, np.float32(total), out=mean_D)
        self._step(merged, self.version, rate, batches, 1.0)
        merged.fill(0.0)

    # -- copies -------------------------------------------------------------------------------

    @asynccontextmanager
    async def published(self) -> AsyncIterator[Snapshot]:
        """The published parameters, unchanging while the context lasts."""
        snapshot = await self._current()
        try:
            yield snapshot
        finally:
            self._release(snapshot)

    async def hold(self, snapshot: Snapshot) -> None:
        """Somebody works from it: keep what the rule will need of it."""
        version, backups = snapshot.version, self._backups
        if backups is None:
            return
        self._wanted.add(version)
        if version in backups:
            return
        snapshot.users += 1
        try:
            async with self._lock:
                if version in self._wanted and version not in backups:
                    weights = snapshot.vector[: self._layout.size]
                    try:
                        await self._do(lambda: backups.keep(version, weights))
                    finally:
                        self._kept(snapshot)
        finally:
            self._release(snapshot)

    def _kept(self, snapshot: Snapshot) -> None:
        assert self._backups is not None
        if snapshot.version not in self._backups:
            return  # that went wrong
        if snapshot.version not in self._wanted:  # let go of while it was being kept
            self._backups.drop(snapshot.version)
        elif not self._serving.half_backups:  # there the difference is enough
            snapshot.users += 1
            self._held[snapshot.version] = snapshot

    def drop(self, versions: Iterable[Version]) -> None:
        """Nobody works from these any more."""
        if self._backups is None:
            return
        for version in versions:
            self._wanted.discard(version)
            self._backups.drop(version)
            if version in self._held:
                self._release(self._held.pop(version))

    def anew(self, state: Vector, version: Version) -> Saved:
        """That state, and a rule that remembers nothing."""
        return Saved(state, begin(self._rule, self._layout.size), version)

    def begin(self, initial: Vector) -> Saved:
        """What there was before anything changed, where somebody has a copy; only asked then."""
        return Saved(initial, self._memory.copy(), self.version)

    async def save(self, beside: Callable[[], T]) -> tuple[Saved, T]:
        """A copy of everything, and what `beside` says at that very moment."""
        copies: list[Saved] = []
        async with self._lock:
            other = beside()
            await self._do(
                lambda: copies.append(
                    Saved(copy_of(self._state), self._memory.copy(), self.version)
                )
            )
        return copies[0], other

    async def go_back(
        self, saved: Saved, version: Version, beside: Callable[[], None] = lambda: None
    ) -> None:
        """Be what was saved, under a new version; what was merged since is forgotten.

        `beside` is called at the very moment the version changes.
        """
        async with self._lock:
            await self._do(lambda: self._put_back(saved))
            self.version = version
            if self._backups is not None:
                self.drop([*self._wanted])
                self._backups.clear()
            self._merged = None
            self._merged_samples = self._merged_batches = 0
            beside()

    def _put_back(self, saved: Saved) -> None:
        np.copyto(self._state, saved.vector)
        self._memory = saved.memory.copy()

    async def copy(self) -> tuple[Vector, Version]:
        """A copy of its own, and which version it is."""
        copies: list[Vector] = []
        async with self._lock:
            await self._do(lambda: copies.append(copy_of(self._state)))
            return copies[0], self.version

    async def _current(self) -> Snapshot:
        async with self._lock:
            latest = self._latest
            if latest is None or self._outdated(latest.version):
                self._latest = None  # not to be had while it is written over
                self._pinned += latest is not None and latest.users > 0
                fresh = self._unused(latest)
                await self._do(lambda: np.copyto(fresh.vector, self._state))
                fresh.version = self.version
                self._latest = latest = fresh
            latest.users += 1
            return latest

    def _unused(self, latest: Snapshot | None) -> Snapshot:
        """One to write the next version into."""
        if latest is not None and latest.users == 0:
            return latest
        if self._spare:
            return self._spare.pop()
        return Snapshot(blank(len(self._state)))

    @property
    def pinned(self) -> int:
        """Snapshots that somebody still receives or works from although there is a newer one."""
        return self._pinned

    @property
    def spare(self) -> int:
        """Snapshots kept only to be written to again."""
        return len(self._spare)

    def trim(self, most: int) -> None:
        """Keep at most so many snapshots that nobody receives."""
        del self._spare[max(0, most) :]

    def _outdated(self, published: Version) -> bool:
        if published.incarnation != self.version.incarnation:
            return True
        return self.version.staleness(published) >= self._serving.publish_every

    def _release(self, snapshot: Snapshot) -> None:
        snapshot.users -= 1
        if snapshot.users == 0 and snapshot is not self._latest:
            self._pinned -= 1
            self._keep(snapshot)

    def _keep(self, snapshot: Snapshot) -> None:
        if len(self._spare) < MAX_SPARE:
            self._spare.append(snapshot)

    async def _do(self, work: Callable[[], None]) -> None:
        """Under the lock, and to the end: who is cancelled meanwhile waits for the thread, so that
        nobody looks before it is done."""
        if self._vector.nbytes <= INLINE_BYTES:
            work()
            return
        doing = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            await asyncio.shield(doing)
        finally:
            if not doing.done():
                await asyncio.wait([doing])


def _gaps(trained: tuple[slice, ...] | None, size: int) -> list[slice]:
    """What lies between the parts that learn."""
    if trained is None:
        return []
    ends = [0, *(part.stop for part in trained)]
    starts = [*(part.start for part in trained), size]
    return [slice(a, b) for a, b in zip(ends, starts, strict=True) if a < b]
