"""The parameters of a host that keeps none: each server holds a part, all change together.

What the host decides it tells every server in one breath and counts the version at once; nothing is
waited for. So a copy asked for after so many changes is, on every server, the state after exactly
these. What a server has lost cannot be had again: everything goes back to a checkpoint then, as
after numbers that were not finite, but with nobody to blame and at the same learning rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import numpy as np

from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import Update, Version, VolunteerId
from crowdgrad.errors import MessageError, PeerError
from crowdgrad.host.allocation import INLINE_BYTES, BufferPool, blank, copy_of
from crowdgrad.host.evaluation import is_evaluation
from crowdgrad.host.parameters import Saved
from crowdgrad.host.servers.arrivals import Arrival, Arrivals
from crowdgrad.host.servers.crew import Crew
from crowdgrad.host.servers.cut import Part
from crowdgrad.host.servers.link import Answer
from crowdgrad.host.snapshots import Snapshot
from crowdgrad.net.messages import Apply, ApplyMerged, Dismiss, Merge, Refuse, Staged
from crowdgrad.numerics import buffers
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.rules.base import Memory, Rule, begin
from crowdgrad.numerics.vectors import Vector, all_finite

T = TypeVar("T")
ADMISSIONS_BITS = 32
"""So many admissions fit into the life of one host of a job."""


class PartedParameters:
    def __init__(
        self,
        state: Vector,
        rule: Rule,
        version: Version,
        spec: ProgramSpec,
        parts: tuple[Part, ...],
        *,
        publish_every: int = 1,
    ) -> None:
        """`state`: what the servers begin with; ours until they have it. `publish_every`: as they
        publish, changes from one published version to the next."""
        self.version = self._published = version
        self._publish_every = publish_every
        self._rule = rule
        self._layout = StateLayout(spec)
        self.pool = BufferPool(0)
        self.arrivals = Arrivals(self.servers_of, self._refuse)
        self.crew = Crew(parts, rule, self.anew(state, version), detached=self.arrivals.lost)
        self._admitted = 0
        """The last admission."""
        self._merged = False
        """Whether anything waits for the round to be closed."""

    # -- who is there -------------------------------------------------------------------------

    @property
    def away(self) -> str:
        return self.crew.away

    def servers_of(self, who: VolunteerId) -> range:
        """Those a volunteer sends to: all of them."""
        return range(len(self.crew))

    def joined(self, who: VolunteerId) -> None:
        self.left(who)
        self._admitted = self.next_admission
        self.arrivals.joined(who, self._admitted)

    @property
    def next_admission(self) -> int:
        """Higher than any before, also those of hosts of this job before us."""
        return max(self._admitted, self.version.incarnation << ADMISSIONS_BITS) + 1

    def admission_of(self, who: VolunteerId) -> int:
        """What its token is for; 0 where it is no member."""
        return self.arrivals.admission_of(who)

    def left(self, who: VolunteerId) -> None:
        """Servers let nobody in with the token it has."""
        admission = self.arrivals.admission_of(who)
        self.arrivals.left(who)
        if admission:
            for server in self.servers_of(who):
                self.crew.dismiss(server, Dismiss(volunteer=who, admission=admission))

    def staged(self, server: int, said: Staged) -> None:
        """A server has a part of an update."""
        if said.incarnation == self.version.incarnation:
            self.arrivals.staged(server, said)
        # Otherwise it will hear that we went back, and forget it by itself.

    # -- updates ------------------------------------------------------------------------------

    async def received(
        self, who: VolunteerId, update: Update, payload: memoryview
    ) -> Arrival | None:
        """An update of which every server has its part; none where it is an evaluation.

        What began before we went back is not waited for. Raises ConnectionLost.
        """
        if is_evaluation(update.unit):
            return None
        if update.base.incarnation != self.version.incarnation:
            return Arrival(who, update.unit, ())
        arrival = self.arrivals.of(who, update.unit)
        try:
            await arrival.wait()
        except BaseException:
            self.arrivals.refuse(arrival)
            raise
        return arrival

    def received_at_once(self, payload: memoryview) -> Arrival:
        raise AssertionError("the parts of an update come when they come")

    def let_go(self, received: Arrival | None) -> None:
        if received is not None:
            self.arrivals.refuse(received)

    async def acceptable(self, update: Arrival) -> bool:
        return update.sound

    def acceptable_at_once(self, update: Arrival) -> bool:
        return update.sound

    async def apply(
        self,
        update: Arrival,
        base: Version,
        *,
        rate: float,
        batches: int = 1,
        under_way: int = 0,
        applied: Callable[[int], None] = lambda staleness: None,
    ) -> int | None:
        if base.incarnation != self.version.incarnation or update.over:
            return None
        staleness = self.apply_at_once(
            update, base, rate=rate, batches=batches, under_way=under_way
        )
        applied(staleness)
        return staleness

    def apply_at_once(
        self, update: Arrival, base: Version, *, rate: float, batches: int, under_way: int
    ) -> int:
        staleness = self.version.staleness(base)
        for server, push in self.arrivals.take(update).items():
            self.crew.tell(
                server,
                Apply(
                    push=push,
                    version=self.version,
                    base=base,
                    rate=rate,
                    batches=batches,
                    under_way=under_way,
                ),
            )
        self.version = self.version.next()
        return staleness

    async def merge(self, update: Arrival, base: Version, *, samples: int, batches: int) -> bool:
        if base.incarnation != self.version.incarnation or update.over:
            return False
        for server, push in self.arrivals.take(update).items():
            merge = Merge(push=push, version=self.version, samples=samples, batches=batches)
            self.crew.tell(server, merge)
        self._merged = True
        return True

    async def apply_merged(
        self, *, rate: float, applied: Callable[[], None] = lambda: None
    ) -> None:
        if not self._merged:
            return  # we have gone back since
        self.crew.tell_all(ApplyMerged(version=self.version, rate=rate))
        self._merged = False
        self.version = self.version.next()
        applied()

    def _refuse(self, server: int, push: int) -> None:
        self.crew.tell(server, Refuse(push=push))

    # -- looking at numbers -------------------------------------------------------------------

    async def finite(self, vector: Vector) -> bool:
        if vector.nbytes <= INLINE_BYTES:
            return self._finite(vector)
        return await asyncio.to_thread(self._finite, vector)

    def _finite(self, vector: Vector) -> bool:
        if not all_finite(vector[: self._layout.size]):
            return False
        return len(vector) == self._layout.size or buffers.finite(self._layout, vector)

    async def sound(self) -> bool:
        try:
            return all(kept.sound for kept, _ in await self.crew.save(state=False, memory=False))
        except PeerError:
            return True  # a server is away: all will go back, whatever it held

    # -- copies -------------------------------------------------------------------------------

    @asynccontextmanager
    async def published(self) -> AsyncIterator[Snapshot]:
        """Only which version: the numbers are with the servers."""
        yield self.publish_at_once()

    def publish_at_once(self) -> Snapshot:
        old, now = self._published, self.version
        if old.incarnation != now.incarnation or now.staleness(old) >= self._publish_every:
            self._published = now
        return Snapshot(NO_NUMBERS, NOTHING, self._published)

    def release(self, snapshot: Snapshot) -> None:
        """It takes no memory."""

    def abandon(self, snapshot: Snapshot) -> None:
        """It takes no memory."""

    async def hold(self, snapshot: Snapshot) -> None:
        """The servers know what they have sent."""

    def hold_at_once(self, snapshot: Snapshot) -> None:
        """The servers know what they have sent."""

    def drop(self, versions: Iterable[Version]) -> None:
        """The servers know what they have sent."""

    def anew(self, state: Vector, version: Version) -> Saved:
        return Saved(state, begin(self._rule, self._layout.size), version)

    def begin(self, initial: Vector) -> Saved:
        return self.anew(initial, self.version)

    async def save(self, beside: Callable[[], T]) -> tuple[Saved, T]:
        untouched = self._untouched()
        if untouched is not None:
            return untouched, beside()
        version, asking = self.version, self.crew.save()
        other = beside()
        return await self._assemble(await asking, version, self._rule.vectors), other

    async def copy(self) -> tuple[Vector, Version]:
        version = self.version
        saved = self._untouched()
        if saved is None:
            saved = await self._assemble(await self.crew.save(memory=False), version, ())
        return saved.vector, saved.version

    def _untouched(self) -> Saved | None:
        """What the servers are still to be given, where nothing has changed since: a copy."""
        origin = self.crew.origin
        if origin is None or origin[1] != self.version:
            return None
        return Saved(copy_of(origin[0].vector), origin[0].memory.copy(), self.version)

    async def _assemble(
        self, answers: list[Answer], version: Version, names: Sequence[str]
    ) -> Saved:
        """`names`: of the vectors that came with the state."""
        self._check(answers, version)
        if 4 * self._layout.words <= INLINE_BYTES:
            return self._joined(answers, version, names)
        return await asyncio.to_thread(self._joined, answers, version, names)

    def _check(self, answers: list[Answer], version: Version) -> None:
        """That all have told of one version. Raises MessageError."""
        found = {kept.version for kept, _ in answers}
        if found != {version}:
            told = ", ".join(map(str, sorted(found)))
            raise MessageError(f"The servers are at {told}, not at {version}.")

    def _joined(self, answers: list[Answer], version: Version, names: Sequence[str]) -> Saved:
        state, kept = blank(self._layout.words), answers[0][0]
        vectors = {name: np.empty(self._layout.size, np.float32) for name in names}
        for part, (_, numbers) in zip(self.crew.parts, answers, strict=True):
            words, size = part.stop - part.start, part.spec.size
            state[part.start : part.stop] = numbers[:words]
            for number, vector in enumerate(vectors.values()):
                begins = words + number * size
                vector[part.start : part.start + size] = numbers[begins : begins + size]
        return Saved(state, Memory(vectors, dict(kept.numbers), kept.steps), version)

    async def go_back(
        self, saved: Saved, version: Version, beside: Callable[[], None] = lambda: None
    ) -> None:
        payloads = await self.crew.payloads(saved)
        self.version = version
        self.arrivals.forget_all()
        self._merged = False
        self.crew.go_back(saved, version, payloads)
        beside()

    # -- what a host without numbers has none of ----------------------------------------------

    @property
    def elsewhere(self) -> bool:
        return True

    @property
    def at_once(self) -> bool:
        return False  # the parts of an update come when they come

    @property
    def state_bytes(self) -> int:
        return 0

    @property
    def update_bytes(self) -> int:
        return 0

    @property
    def backup_bytes(self) -> int:
        return 0

    @property
    def pinned(self) -> int:
        return 0


NOTHING = memoryview(b"")
NO_NUMBERS = Packing("fp32", 0)
