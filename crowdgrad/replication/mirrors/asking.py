"""Mirrors beside neighbours: each is one that holds everything, for as long as it answers.

To `Fetching` a mirror is a node with a number below the host's. One that fails is taken out until
its time to be asked again has come (`health.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crowdgrad.domain.data import ChunkHash
from crowdgrad.errors import CrowdgradError
from crowdgrad.planner.replication.fetching import Fetching
from crowdgrad.planner.replication.plans import Node
from crowdgrad.replication.mirrors.base import Mirror
from crowdgrad.replication.mirrors.health import (
    NEW,
    MirrorHealth,
    after_failure,
    after_success,
    may_ask,
)


class Mirrors:
    def __init__(
        self, mirrors: Sequence[Mirror], fetching: Fetching, clock: Callable[[], float]
    ) -> None:
        self._mirrors: dict[Node, Mirror] = {-1 - n: mirror for n, mirror in enumerate(mirrors)}
        self._health: dict[Node, MirrorHealth] = dict.fromkeys(self._mirrors, NEW)
        self._fetching = fetching
        self._clock = clock

    def look(self) -> None:
        """Take in and out whom to ask now."""
        for node, health in self._health.items():
            may, _ = may_ask(health, self._clock())
            known = node in self._fetching.neighbours
            if may and not known:
                self._fetching.meet(node)
                self._fetching.hear(node, chunks=range(self._fetching.chunks))
            elif known and not may:
                self._fetching.part(node)

    def grew(self) -> None:
        for node in self._mirrors:
            if node in self._fetching.neighbours:
                self._fetching.hear(node, chunks=range(self._fetching.chunks))

    async def get(self, node: Node, number: int, name: ChunkHash, size: int) -> bytes | None:
        """The chunk, verified; None where it does not come."""
        try:
            data = await self._mirrors[node].get(name, size)
        except CrowdgradError as error:
            self._health[node] = after_failure(self._health[node], error, self._clock())
            if node in self._fetching.neighbours:
                self._fetching.lacks(node, number)
            return None
        self._health[node] = after_success(self._health[node])
        return data

    def close(self) -> None:
        for mirror in self._mirrors.values():
            mirror.close()
