"""The parameters, what the rule remembers, and the copies on their way to volunteers.

The rule changes one vector in place, the state; the buffers behind the parameters are merged beside
(`numerics.buffers`). What volunteers receive are snapshots (`snapshots`). For rules that need it,
what a unit in flight started from is kept until nobody works from it any more (`backups`).

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
from crowdgrad.domain.work import CodecName, Update, Version, VolunteerId
from crowdgrad.host.allocation import INLINE_BYTES, BufferPool, copy_of
from crowdgrad.host.backups import Backups, CodedBackups, HalfBackups, SharedBackups
from crowdgrad.host.snapshots import Snapshot, Snapshots
from crowdgrad.host.unpacking import Unpacking
from crowdgrad.net.framing import SLACK_BYTES
from crowdgrad.numerics import buffers
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.decay import decay
from crowdgrad.numerics.layout import StateLayout, trained_parts
from crowdgrad.numerics.rules.base import Memory, Rule, Step, begin
from crowdgrad.numerics.staleness import weight
from crowdgrad.numerics.vectors import Vector, all_finite, as_vector, blocks
from crowdgrad.recipes.base import Serving

T = TypeVar("T")


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
        *,
        codec: CodecName = "fp32",
    ) -> None:
        """`codec`: how states and updates travel."""
        self.version = version
        self._state = state
        self._layout = StateLayout(spec)
        self._packing = Packing(codec, spec.size)
        self._unpacking = Unpacking(self._packing, spec.update_words)
        self.state_bytes = self._packing.bytes(spec.state_words)
        """Of a state on its way to volunteers."""
        self.update_bytes = self._packing.bytes(spec.update_words)
        """Of an update on its way to us."""
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
        self._small = state.nbytes <= INLINE_BYTES
        self.pool = BufferPool(max(self.state_bytes, self.update_bytes) + SLACK_BYTES)
        self.snapshots = Snapshots(
            self._packing, spec.state_words, self.pool, publish_every=serving.publish_every
        )
        self._backups: Backups | None = None
        self._wanted: set[Version] = set()
        """What somebody works from, whether it is kept already or not."""
        self._held: dict[Version, Snapshot] = {}
        """Snapshots that backups share."""
        if rule.needs_base:
            self._backups = self._make_backups()
        self._merged: Vector | None = None
        self._merged_samples = self._merged_batches = 0

    def _make_backups(self) -> Backups:
        if not self._packing.plain:
            return CodedBackups(self._packing, self._layout.size)
        return HalfBackups(self._layout.size) if self._serving.half_backups else SharedBackups()

    @property
    def backup_bytes(self) -> int:
        return self._backups.bytes if self._backups is not None else 0

    @property
    def elsewhere(self) -> bool:
        """Whether volunteers get them, and bring their updates, elsewhere."""
        return False

    @property
    def away(self) -> str:
        """Why nothing can be done at present: never, since all is here."""
        return ""

    def joined(self, who: VolunteerId) -> None:
        """Somebody may send updates from now on."""

    def left(self, who: VolunteerId) -> None:
        """Nothing more comes of it."""

    async def received(
        self, who: VolunteerId, update: Update | None, payload: memoryview
    ) -> Vector | None:
        """The numbers of an update; None where there are none. `let_go` must follow.

        Without a copy where they came as they are.
        """
        if not len(payload):
            return None
        if self._packing.plain:
            return as_vector(payload)
        return await self._unpacking.unpack(payload)

    def received_at_once(self, payload: memoryview) -> Vector:
        """`received`, for whoever has made sure that it can be done `at_once`, until it is asked
        again: there is nothing to let go of."""
        return as_vector(payload) if self._packing.plain else self._unpacking.at_once(payload)

    def let_go(self, received: Vector | None) -> None:
        """What `received` gave is not needed any more, whatever became of it."""
        if received is not None and not self._packing.plain:
            self._unpacking.let_go(received)

    @property
    def at_once(self) -> bool:
        """Whether nobody has to wait for anything: small vectors, and nobody is at them."""
        return self._small and not self._lock.locked()

    async def acceptable(self, update: Vector) -> bool:
        """Whether an update's numbers are all finite and its counters credible."""
        return await self.finite(update) and self._credible(update)

    def acceptable_at_once(self, update: Vector) -> bool:
        return self._finite(update) and self._credible(update)

    def _credible(self, update: Vector) -> bool:
        return len(update) == self._layout.size or buffers.credible(self._layout, update)

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
        started: Version | None = None,
        applied: Callable[[int], None] = lambda staleness: None,
    ) -> int | None:
        """Apply one update; returns its staleness, or None where we have gone back since.

        `under_way`: how many others are being computed. The update is scratch space afterwards.
        `started`: what it was computed from, where that is not its base, and may not be held.
        `applied` is called before anybody else can look.
        """
        async with self._lock:
            if base.incarnation != self.version.incarnation:
                return None
            staleness = self.version.staleness(base)
            rate *= weight(max(staleness, under_way), self._patience(batches))
            part = buffers.share(staleness)
            origin = base if started is None else self._held_of(started)
            await self._change(lambda: self._step(update, origin, rate, batches, part))
            self.version = self.version.next()
            applied(staleness)
        return staleness

    def apply_at_once(
        self, update: Vector, base: Version, *, rate: float, batches: int, under_way: int
    ) -> int:
        """`apply`, for whoever has made sure that it can be done `at_once`."""
        staleness = self.version.staleness(base)
        rate *= weight(max(staleness, under_way), self._patience(batches))
        if (parted := self.snapshots.part()) is not None:
            before, fresh = parted
            self._go_on_in(fresh)
            self.snapshots.release(before)
        self._step(update, base, rate, batches, buffers.share(staleness))
        self.version = self.version.next()
        return staleness

    async def _change(self, work: Callable[[], None]) -> None:
        """Do what changes the state; on a copy where somebody still receives the state itself."""
        parted = self.snapshots.part()
        if parted is None:
            await self._do(work)
            return
        before, fresh = parted

        def on_a_copy() -> None:
            self._go_on_in(fresh)
            work()

        try:
            await self._do(on_a_copy)
        finally:
            self.snapshots.release(before)

    def _go_on_in(self, fresh: Vector) -> None:
        np.copyto(fresh, self._state)
        self._state, self._vector = fresh, fresh[: self._layout.size]

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
            await self._change(lambda: self._step_mean(mean, total, rate, batches))
            self.version = self.version.next()
            self._merged_samples = self._merged_batches = 0
            applied()

    async def shift(self, by: Vector) -> None:
        """Add a state's worth of differences, as one change; what counts stays as it is."""
        async with self._lock:
            await self._change(lambda: self._add_to_state(by))
            self.version = self.version.next()

    def _add_to_state(self, by: Vector) -> None:
        by_D = by[: self._layout.size]
        for here in blocks(self._layout.size):
            np.add(self._vector[here], by_D[here], out=self._vector[here])
        buffers.shift(self._layout, self._state, by)

    def _held_of(self, version: Version) -> Version | None:
        return version if self._backups is not None and version in self._backups else None

    def _step(
        self, received: Vector, base: Version | None, rate: float, batches: int, part: float
    ) -> None:
        """`part`: how much the received buffers weigh. `base`: None is what there is now."""
        if len(received) > self._layout.size:
            buffers.mix(self._layout, self._state, received, part)
        update = received[: self._layout.size]
        for here, values in self._frozen:  # nor into the rule's memory
            update[here] = values if self._rule.takes_weights else 0.0
        before = None
        if self._backups is not None:
            before = self._backups.weights(base) if base is not None else self._vector.copy()
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
    async def published(self, since: Version | None = None) -> AsyncIterator[Snapshot]:
        """The published parameters, unchanging while the context lasts.

        `since`: a version that there is, where nothing older will do.
        """
        snapshot = await self._current(since)
        try:
            yield snapshot
        except BaseException:
            self.abandon(snapshot)
            raise
        self.release(snapshot)

    def publish_at_once(self) -> Snapshot:
        """`published`, for whoever has made sure that it can be done `at_once`, until `release`."""
        latest = self.snapshots.latest(self.version)
        if latest is None and self.snapshots.shares:
            latest = self.snapshots.share(self._state, self.version)
        elif latest is None:
            latest = self.snapshots.make_way()
            self._packing.encode(self._state, latest.payload)
            self.snapshots.publish(latest, self.version)
        latest.users += 1
        return latest

    def release(self, snapshot: Snapshot) -> None:
        """One of those it was published to does not need it any more."""
        self.snapshots.release(snapshot)

    def abandon(self, snapshot: Snapshot) -> None:
        """`release`, where its sending was broken off."""
        self.snapshots.abandon(snapshot)

    def hold_at_once(self, snapshot: Snapshot) -> None:
        """`hold`, for whoever has made sure that it can be done `at_once`."""
        if self._backups is None:
            return
        self._wanted.add(snapshot.version)
        if snapshot.version not in self._backups:
            self._backups.keep(snapshot.version, self._packing.coded(snapshot.payload))
            self._kept(snapshot)

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
                    published = self._packing.coded(snapshot.payload)
                    try:
                        await self._do(lambda: backups.keep(version, published))
                    finally:
                        self._kept(snapshot)
        finally:
            self.release(snapshot)

    def _kept(self, snapshot: Snapshot) -> None:
        assert self._backups is not None
        if snapshot.version not in self._backups:
            return  # that went wrong
        if snapshot.version not in self._wanted:  # let go of while it was being kept
            self._backups.drop(snapshot.version)
        elif not isinstance(self._backups, HalfBackups):  # there the difference is enough
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
                self.release(self._held.pop(version))

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
            await self._change(lambda: self._put_back(saved))
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

    async def _current(self, since: Version | None = None) -> Snapshot:
        async with self._lock:
            latest = self.snapshots.latest(self.version, since)
            if latest is None and self.snapshots.shares:
                latest = self.snapshots.share(self._state, self.version)
            elif latest is None:
                latest = fresh = self.snapshots.make_way()
                await self._do(lambda: self._packing.encode(self._state, fresh.payload))
                self.snapshots.publish(fresh, self.version)
            latest.users += 1
            return latest

    @property
    def pinned(self) -> int:
        return self.snapshots.pinned

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
