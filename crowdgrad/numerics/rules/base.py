"""What every server rule can do."""

from __future__ import annotations

from typing import Protocol

from crowdgrad.numerics.vectors import Vector


class ServerRule(Protocol):
    def apply(self, parameters_D: Vector, update_D: Vector, *, staleness: int) -> None:
        """Change the parameters in place. The update may be used as scratch space."""
