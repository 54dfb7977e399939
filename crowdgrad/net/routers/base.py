"""What every way of asking a router for a port promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Name = Literal["PCP", "NAT-PMP", "UPnP"]
FOR_EVER = 0
"""The lifetime of what a router keeps until it is told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A port that a router has opened: whoever dials address:port there reaches us."""

    address: str
    port: int
    lifetime_s: int


class Way(Protocol):
    """One protocol, spoken with one router, for one port of ours."""

    name: Name

    async def open(self, external: int, lifetime_s: int) -> Grant:
        """Ask for a port, best number `external` outside; ask again to keep it.

        Raises RouterError.
        """
        ...

    async def close(self, grant: Grant) -> None:
        """Give it back. Raises RouterError."""
        ...
