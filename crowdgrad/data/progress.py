"""How a long fetch tells someone that it moves; the command line draws a bar with it."""

from __future__ import annotations

from typing import Literal, Protocol

Unit = Literal["bytes", "records"]


class Progress(Protocol):
    def start(self, total: int | None, what: str, unit: Unit = "bytes") -> None:
        """A new task of `total` bytes or records (None: nobody knows)."""
        ...

    def advance(self, n: int) -> None: ...

    def done(self) -> None: ...


class Silent:
    def start(self, total: int | None, what: str, unit: Unit = "bytes") -> None:
        """Nobody watches."""

    def advance(self, n: int) -> None:
        """Nobody watches."""

    def done(self) -> None:
        """Nobody watches."""
