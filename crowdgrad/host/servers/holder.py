"""The part of the parameters that one server holds, changed in the order the host says.

What volunteers push is only *staged*: received, and looked at for numbers that are not finite. The
host decides when all servers have told it of their parts; then each applies its own, or forgets it.
Every server is told the same in the same order, so after so many of the host's words all parts are
of one version. Underneath are the ordinary `Parameters`: rules work on each number by itself.

A push stays as it came until it is decided: where it is in half precision, it becomes float32 once
to be looked at and once to be applied, so that what waits for the host needs no second buffer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from crowdgrad.domain.work import Version, VolunteerId
from crowdgrad.errors import MessageError
from crowdgrad.host.allocation import INLINE_BYTES, BufferPool, copy_of
from crowdgrad.host.parameters import Parameters, Saved
from crowdgrad.host.snapshots import Snapshot
from crowdgrad.net.messages import (
    Apply,
    ApplyMerged,
    Equip,
    GoBack,
    Kept,
    Merge,
    Push,
    Refuse,
    Save,
    Staged,
)
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.rules import Rule, rule_from
from crowdgrad.numerics.rules.base import Memory
from crowdgrad.numerics.vectors import Vector, as_bytes, as_vector
from crowdgrad.recipes.base import Serving

Decision = Apply | Refuse | Merge
KEPT_BUFFERS = 8
NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True)
class Pushed:
    """One push that waits for the host."""

    sender: Hashable
    """The connection it came on: its answer makes sense nowhere else."""
    who: VolunteerId
    push: Push
    payload: memoryview


class Holder:
    def __init__(self, equip: Equip) -> None:
        """Raises ValueError where there is no such rule."""
        self.equip = equip
        self.rule: Rule = rule_from(equip.rule.name, equip.rule.settings)
        self.layout = StateLayout(equip.spec)
        self._parameters: Parameters | None = None
        self._staged: dict[int, Pushed] = {}
        self._by: Counter[VolunteerId] = Counter()
        """How many of them are whose, on whichever connection they came."""
        self._next = 0
        self.pool = BufferPool(0)
        self._changed = asyncio.Event()
        self._lanes: dict[tuple[VolunteerId, int], Version] = {}
        """What each lane works from, where the rule will ask."""

    @property
    def parameters(self) -> Parameters:
        """Raises MessageError where the host has not sent them yet."""
        if self._parameters is None:
            raise MessageError("There are no numbers here yet.", advice="Try again in a moment.")
        return self._parameters

    @property
    def ready(self) -> bool:
        return self._parameters is not None

    @property
    def go_back_bytes(self) -> int:
        """Of everything the host keeps of this part: the state, what the rule remembers."""
        return 4 * (self.layout.words + len(self.rule.vectors) * self.layout.size)

    # -- what volunteers push and pull --------------------------------------------------------

    async def stage(
        self,
        sender: Hashable,
        who: VolunteerId,
        push: Push,
        payload: memoryview,
        admission: int,
    ) -> Staged | None:
        """What to tell the host of a push; None where it is of an incarnation that is over.

        Raises MessageError where it is of one that has not begun.
        """
        parameters = self.parameters
        vector = await parameters.received(who, None, payload)
        try:
            sound = vector is not None and await parameters.acceptable(vector)
        finally:
            parameters.let_go(vector)
        assert push.unit is not None
        assert push.granted is not None
        incarnation = self.parameters.version.incarnation  # now: we may have gone back meanwhile
        if push.granted.incarnation > incarnation:
            raise MessageError(f"There is no version {push.granted} here.")
        if push.granted.incarnation < incarnation:
            self.pool.give(payload)
            return None
        number, self._next = self._next, self._next + 1
        self._staged[number] = Pushed(sender, who, push, payload)
        self._by[who] += 1
        return Staged(
            push=number,
            volunteer=who,
            unit=push.unit,
            incarnation=incarnation,
            sound=sound,
            admission=admission,
        )

    def staged_by(self, who: VolunteerId) -> int:
        return self._by[who]

    @asynccontextmanager
    async def published(self, who: VolunteerId, push: Push) -> AsyncIterator[Snapshot]:
        """What answers a push: no older than it asked for."""
        since = push.since
        if since is not None and self.equip.whole:  # a copy counts by itself
            since = Version(incarnation=since.incarnation, count=0)
        while since is not None and self.parameters.version < since:
            await self._changed.wait()
        parameters = self.parameters
        async with parameters.published(since) as snapshot:
            if self.rule.needs_base and push.wants:
                # First: whoever is broken off while it is kept has to be known to work from it.
                self._works_from((who, push.lane), snapshot.version)
                await parameters.hold(snapshot)
            yield snapshot

    def _works_from(self, lane: tuple[VolunteerId, int], version: Version | None) -> None:
        before = self._lanes.pop(lane, None)
        if version is not None:
            self._lanes[lane] = version
        if before is not None and before not in self._lanes.values():
            self.parameters.drop([before])

    def gone(self, who: VolunteerId) -> None:
        """It works from nothing any more; what it has pushed is still the host's to decide."""
        for lane in [lane for lane in self._lanes if lane[0] == who]:
            self._works_from(lane, None)

    # -- what the host says -------------------------------------------------------------------

    async def decide(self, said: Decision) -> Pushed | None:
        """Do with a push what the host says; returns it, to be answered.

        None: it was forgotten and answered already. Raises MessageError where that cannot be.
        """
        pushed = self._staged.pop(said.push, None)
        if pushed is None:
            if isinstance(said, Refuse):
                return None
            raise MessageError(f"There is no push {said.push} here.")
        self._by[pushed.who] -= 1
        if not self._by[pushed.who]:
            del self._by[pushed.who]
        if not isinstance(said, Refuse):
            await self._use(said, pushed)
        self.pool.give(pushed.payload)
        self._tell()
        return pushed

    async def _use(self, said: Apply | Merge, pushed: Pushed) -> None:
        parameters = self.parameters
        self._check(said.version)
        vector = await parameters.received(pushed.who, None, pushed.payload)
        assert vector is not None
        try:
            if isinstance(said, Merge):
                await parameters.merge(
                    vector, said.version, samples=said.samples, batches=said.batches
                )
                return
            await parameters.apply(
                vector,
                self._base(said, pushed.push),
                rate=said.rate,
                batches=said.batches,
                under_way=said.under_way,
                started=pushed.push.base or said.base,
            )
        finally:
            parameters.let_go(vector)

    def _base(self, said: Apply, push: Push) -> Version:
        """What staleness counts from: the host's word, or in a copy what it has sent itself."""
        now = self.parameters.version
        if not self.equip.whole:
            return said.base
        if push.base is None or push.base.incarnation != now.incarnation:
            return now
        return min(push.base, now)

    async def apply_merged(self, said: ApplyMerged) -> None:
        self._check(said.version)
        await self.parameters.apply_merged(rate=said.rate)
        self._tell()

    def _check(self, version: Version) -> None:
        """Raises MessageError where host and server do not mean the same parameters."""
        ours = self.parameters.version
        if version.incarnation != ours.incarnation or (version != ours and not self.equip.whole):
            raise MessageError(f"The host speaks of version {version}, here is {ours}.")

    async def save(self, said: Save) -> tuple[Kept, memoryview]:
        """A copy of everything at this moment, as it travels."""
        parameters = self.parameters
        if not said.state:
            sound = await parameters.sound()
            return self._kept(said, parameters.version, None, sound=sound), NOTHING
        saved, _ = await parameters.save(lambda: None)
        memory = saved.memory if said.memory else None
        vectors = [saved.vector]
        if memory is not None:
            vectors += [memory.vectors[name] for name in self.rule.vectors]
        sound = await parameters.finite(saved.vector)
        kept = self._kept(said, saved.version, memory, sound=sound)
        return kept, as_bytes(vectors[0] if len(vectors) == 1 else await _joined(vectors))

    def _kept(self, said: Save, version: Version, memory: Memory | None, *, sound: bool) -> Kept:
        return Kept(
            ticket=said.ticket,
            version=version,
            sound=sound,
            numbers=dict(memory.numbers) if memory is not None else {},
            steps=memory.steps if memory is not None else 0,
        )

    async def go_back(self, said: GoBack, payload: memoryview) -> list[Pushed]:
        """Be that; returns what was staged and is forgotten, to be answered."""
        words, size = self.layout.words, self.layout.size
        numbers = as_vector(payload)
        state = copy_of(numbers[:words])
        memory = Memory(
            {
                name: numbers[words + i * size : words + (i + 1) * size]
                for i, name in enumerate(self.rule.vectors)
            },
            dict(said.numbers),
            said.steps,
        )
        # New ones: what is frozen is what these begin with.
        parameters = Parameters(
            state, self.rule, said.version, self._serving(), self.equip.spec,
            codec=self.equip.local.codec,
        )  # fmt: skip
        await parameters.go_back(Saved(state, memory, said.version), said.version)
        forgotten = list(self._staged.values())
        self._staged.clear()
        self._by.clear()
        self._lanes.clear()
        self._parameters = parameters
        self.pool = parameters.pool
        self.pool.keep = KEPT_BUFFERS
        self._tell()
        return forgotten

    def _serving(self) -> Serving:
        equip = self.equip
        return Serving(
            rate=1.0,  # with every word of the host comes the rate itself
            local_rate=1.0,
            patience=equip.patience,
            decay=equip.decay,
            publish_every=equip.publish_every,
            half_backups=equip.half_backups,
        )

    async def shift(self, by: Vector) -> None:
        """Add to the parameters and to the buffers that are means."""
        await self.parameters.shift(by)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def _joined(vectors: list[Vector]) -> Vector:
    if sum(vector.nbytes for vector in vectors) <= INLINE_BYTES:
        return np.concatenate(vectors)
    return await asyncio.to_thread(np.concatenate, vectors)
