"""How a long fetch tells someone that it moves; the command line draws a bar with it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    def start(self, total: int | None, what: str) -> None:
        """A new task of `total` bytes (None: nobody knows)."""
        ...

    def advance(self, n: int) -> None: ...

    def done(self) -> None: ...


class Silent:
    def start(self, total: int | None, what: str) -> None:
        """Nobody watches."""

    def advance(self, n: int) -> None:
        """Nobody watches."""

    def done(self) -> None:
        """Nobody watches."""
