"""The paper's variant: every server holds a copy of everything, and now and then they are averaged.

A volunteer works with one server, so a server carries only a part of the crowd's traffic, but all
of it carries the whole vector. Every `average_every` updates each copy is asked for as it is then,
and told to add what it lies off the mean, whatever it has learned meanwhile: nothing that came in
between is lost. What is evaluated and kept is the mean of all. Copies that know little of each
other learn less from the same updates: the longer between two averagings, the less.

Versions are the host's count of all updates; each copy counts its own, which is what staleness
means there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import numpy as np

from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import Version, VolunteerId
from crowdgrad.errors import MessageError, PeerError
from crowdgrad.host.allocation import INLINE_BYTES
from crowdgrad.host.parameters import Saved
from crowdgrad.host.servers.arrivals import Arrival
from crowdgrad.host.servers.cut import whole
from crowdgrad.host.servers.link import Answer
from crowdgrad.host.servers.parameters import PartedParameters
from crowdgrad.net.messages import Shift
from crowdgrad.numerics.layout import StateLayout, is_floating, trained_parts
from crowdgrad.numerics.rules.base import Memory, Rule
from crowdgrad.numerics.vectors import Vector, as_bytes

logger = logging.getLogger(__name__)


def mean_of(
    layout: StateLayout, states: Sequence[Vector], trained: Sequence[slice] | None = None
) -> Vector:
    """What floats is averaged; what counts, or is only read, is the first one's.

    `trained`: the parts of the parameters that learn, where not all do. The mean of a number with
    itself is not always that number.
    """
    mean: Vector = states[0].copy()
    for part in trained if trained is not None else (slice(0, layout.size),):
        mean[part] = _mean([state[part] for state in states])
    parts = zip(*(layout.buffers(state) for state in (mean, *states)), strict=True)
    for (tensor, ours), *theirs in parts:
        if is_floating(tensor):
            ours[...] = np.mean([values for _, values in theirs], axis=0)
    return mean


def offset(layout: StateLayout, mean: Vector, state: Vector) -> Vector:
    """What a state has to add to be the mean; zeros where nothing is averaged."""
    off: Vector = np.zeros(layout.words, np.float32)
    np.subtract(mean[: layout.size], state[: layout.size], out=off[: layout.size])
    parts = zip(layout.buffers(off), layout.buffers(mean), layout.buffers(state), strict=True)
    for (tensor, into), (_, ours), (_, theirs) in parts:
        if is_floating(tensor):
            into[...] = ours - theirs
    return off


def _mean(vectors: Sequence[Vector]) -> Vector:
    total: Vector = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    total /= np.float32(len(vectors))
    return total


class CopiedParameters(PartedParameters):
    def __init__(
        self,
        state: Vector,
        rule: Rule,
        version: Version,
        spec: ProgramSpec,
        servers: int,
        *,
        average_every: int,
    ) -> None:
        super().__init__(state, rule, version, spec, (whole(spec),) * servers)
        self._trained = trained_parts(spec)
        self._average_every = average_every
        self._since = 0
        """Updates since the last averaging began."""
        self._averaging: asyncio.Task[None] | None = None
        self.averagings = 0
        self._assigned: dict[VolunteerId, int] = {}
        self._here: set[VolunteerId] = set()

    def joined(self, who: VolunteerId) -> None:
        """It gets the server with the fewest others, for good."""
        super().joined(who)
        if who not in self._assigned:
            load = [0] * len(self.crew)
            for other in self._here:
                load[self._assigned[other]] += 1
            self._assigned[who] = load.index(min(load))
        self._here.add(who)

    def left(self, who: VolunteerId) -> None:
        super().left(who)
        self._here.discard(who)

    def servers_of(self, who: VolunteerId) -> range:
        server = self._assigned.get(who, 0)
        return range(server, server + 1)

    def apply_at_once(
        self, update: Arrival, base: Version, *, rate: float, batches: int, under_way: int
    ) -> int:
        share = -(-under_way // len(self.crew))  # as many of them come to the same copy
        staleness = super().apply_at_once(update, base, rate=rate, batches=batches, under_way=share)
        self._since += 1
        if self._since >= self._average_every and self._averaging is None and not self.away:
            self._since = 0
            self._averaging = asyncio.create_task(self._average())
        return staleness

    async def _average(self) -> None:
        incarnation = self.version.incarnation
        try:
            states = [state for _, state in await self.crew.save(memory=False)]
            offsets = await self._in_thread(states)
        except PeerError:
            return  # one is away: all will go back
        finally:
            self._averaging = None
        if self.version.incarnation == incarnation:
            for server, off in enumerate(offsets):
                self.crew.tell(server, Shift(), as_bytes(off))
            self.averagings += 1

    async def _in_thread(self, states: list[Vector]) -> list[Vector]:
        if 4 * self._layout.words <= INLINE_BYTES:
            return self._offsets(states)
        return await asyncio.to_thread(self._offsets, states)

    def _offsets(self, states: list[Vector]) -> list[Vector]:
        mean = mean_of(self._layout, states, self._trained)
        return [offset(self._layout, mean, state) for state in states]

    def _check(self, answers: list[Answer], version: Version) -> None:
        """A copy's version is its own count, in our incarnation."""
        found = {kept.version.incarnation for kept, _ in answers}
        if found != {version.incarnation}:
            raise MessageError(f"The servers are at {found}, not at {version}.")

    def _joined(self, answers: list[Answer], version: Version, names: Sequence[str]) -> Saved:
        words, size = self._layout.words, self._layout.size
        states = [numbers[:words] for _, numbers in answers]
        state = mean_of(self._layout, states, self._trained)
        vectors = {
            name: _mean([n[words + i * size : words + (i + 1) * size] for _, n in answers])
            for i, name in enumerate(names)
        }
        kept = max((kept for kept, _ in answers), key=lambda kept: kept.steps)
        return Saved(state, Memory(vectors, dict(kept.numbers), kept.steps), version)
