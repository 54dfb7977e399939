"""What volunteers receive: the published parameters, one copy a version, shared by all who asked.

A snapshot does not change while anybody receives it. Where parameters travel as they are and every
version is published, the snapshot is the state itself, without a copy: only where somebody still
receives it when it is about to change does the state go on elsewhere (`part`). Over a quick link
that is hardly ever so, since the system has taken all of it by then.

Otherwise it is a copy, encoded as it travels. The latest is written over where nobody receives it.
Older ones live until their last send is over, so there are never more of them than sends under way.
"""

from __future__ import annotations

from crowdgrad.domain.work import Version
from crowdgrad.host.allocation import BufferPool
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.vectors import Vector, as_bytes, as_vector

NEVER = Version(incarnation=0, count=0)
"""Of a snapshot that nothing is written to yet."""


class Snapshot:
    """The parameters at one version, as they travel, in use by `users` sends and backups."""

    def __init__(self, packing: Packing, payload: memoryview, version: Version) -> None:
        self._packing = packing
        self.payload = payload
        self.version = version
        self.users = 0
        self.abandoned = False
        """Somebody went while it was being sent: for all we know it still is."""

    @property
    def vector(self) -> Vector:
        """What whoever receives it starts from."""
        return self._packing.decoded(self.payload)


class Snapshots:
    def __init__(
        self, packing: Packing, words: int, pool: BufferPool, *, publish_every: int
    ) -> None:
        """`words`: of a state. `publish_every`: changes from one published version to the next.

        `pool`: for copies. Of its buffers in use we count the pinned ones.
        """
        self._packing = packing
        self._bytes = packing.bytes(words)
        self._pool = pool
        self._every = publish_every
        self._latest: Snapshot | None = None
        self._lies_in: memoryview | None = None
        """The pool's memory that the state is in by now."""
        self.pinned = 0
        """Snapshots that somebody still receives or works from although there is a newer one."""
        self.shares = packing.plain and publish_every == 1
        """Whether a snapshot is the state itself."""

    def latest(self, now: Version, since: Version | None = None) -> Snapshot | None:
        """The published one; None where it is time for another. `since`: nothing older will do."""
        latest = self._latest
        if latest is None or latest.version.incarnation != now.incarnation:
            return None
        if since is not None and latest.version < since:
            return None
        return latest if now.staleness(latest.version) < self._every else None

    def share(self, state: Vector, version: Version) -> Snapshot:
        """Publish the state itself; `part` must be asked before it changes."""
        lies_in = as_bytes(state) if self._lies_in is None else self._lies_in
        self._latest = fresh = Snapshot(self._packing, lies_in, version)
        return fresh

    def part(self) -> tuple[Snapshot, Vector] | None:
        """The state is about to change: where it has to go on, if somebody receives it as it is.

        With the snapshot that it was until now, to be released when the state is in its new place:
        until then nobody else may have that memory.
        """
        latest = self._latest
        if latest is None or not self.shares:
            return None
        self._latest = None
        if latest.users == 0 and not latest.abandoned:
            return None
        self.pinned += 1
        latest.users += 1
        self._lies_in = self._pool.take(self._bytes)
        return latest, as_vector(self._lies_in)

    def make_way(self) -> Snapshot:
        """One to encode the next version into; until it is published there is none to be had."""
        latest, self._latest = self._latest, None
        if latest is not None and latest.users == 0 and not latest.abandoned:
            return latest
        fresh = Snapshot(self._packing, self._pool.take(self._bytes), NEVER)
        if latest is None or latest.users == 0:
            self._pool.forget(1)  # it is there to stay
        else:
            self.pinned += 1
        return fresh

    def publish(self, fresh: Snapshot, version: Version) -> None:
        fresh.version = version
        self._latest = fresh

    def release(self, snapshot: Snapshot) -> None:
        """One of those it was published to does not need it any more."""
        snapshot.users -= 1
        if snapshot.users == 0 and snapshot is not self._latest:
            self.pinned -= 1
            if snapshot.abandoned:
                self._pool.forget(1)
            else:
                self._pool.give(snapshot.payload)

    def abandon(self, snapshot: Snapshot) -> None:
        """`release`, where its sending was broken off: nobody may write there any more.

        A connection that ends still sends what it was given, for a moment.
        """
        snapshot.abandoned = True
        self.release(snapshot)
