"""What the room has to say, held back until what it says lasts."""

from __future__ import annotations

from typing import Protocol

from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.net import rooms


class Connection(Protocol):
    """One side of a socket. Both methods return at once."""

    def send(self, message: rooms.Said) -> None: ...

    def close(self, why: Refusal | None = None) -> None: ...


class Mail:
    """Letters in the order in which they were written."""

    def __init__(self) -> None:
        self._letters: list[tuple[Connection, rooms.Said]] = []

    def write(self, to: Connection | None, message: rooms.Said) -> None:
        """To nobody: it is not written."""
        if to is not None:
            self._letters.append((to, message))

    def __len__(self) -> int:
        return len(self._letters)

    def take(self) -> list[tuple[Connection, rooms.Said]]:
        letters, self._letters = self._letters, []
        return letters

    def put_back(self, letters: list[tuple[Connection, rooms.Said]]) -> None:
        """They could not be sent: they come before what was written since."""
        self._letters[:0] = letters
