"""What each neighbour has given us lately."""

from __future__ import annotations

from crowdgrad.planner.replication.plans import Node

HALF_S = 10.0
"""What was given counts half after so long."""


class Given:
    def __init__(self) -> None:
        self._bytes: dict[Node, tuple[float, float]] = {}
        """By node: so many, as of when."""

    def note(self, now: float, node: Node, count: int) -> None:
        self._bytes[node] = (self._faded(now, node) + count, now)

    def lately(self, now: float) -> dict[Node, float]:
        return {node: self._faded(now, node) for node in self._bytes}

    def _faded(self, now: float, node: Node) -> float:
        count, at = self._bytes.get(node, (0.0, now))
        return float(count * 0.5 ** ((now - at) / HALF_S))
