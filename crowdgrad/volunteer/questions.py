"""Questions that wait for their answers, each known by its ticket.

Two answers may arrive in one read, and a payload must be given a place before anybody has looked at
the message before it: so a ticket, not the order, says where a payload goes. It goes there once: a
second one would change what is worked from.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Generic, TypeVar

from crowdgrad.errors import CrowdgradError, FrameError

A = TypeVar("A")
R = TypeVar("R")


class Questions(Generic[R, A]):
    """`R`: what is known of a question, above all where its payload goes; `A`: its answer."""

    def __init__(self, no_room: R, tickets: itertools.count[int]) -> None:
        """`no_room`: where a payload goes that nobody asked for, or not again."""
        self._no_room = no_room
        self._tickets = tickets
        self._asked: dict[int, tuple[R, asyncio.Future[A]]] = {}

    def ask(self, room: R) -> tuple[int, asyncio.Future[A]]:
        """A ticket, and what its answer will be."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        ticket = next(self._tickets)
        self._asked[ticket] = (room, future)
        return ticket, future

    def room(self, ticket: int) -> R:
        """Where the answer's payload goes, the first time; afterwards there is no room."""
        if ticket not in self._asked:
            return self._no_room
        room, future = self._asked[ticket]
        self._asked[ticket] = (self._no_room, future)
        return room

    def answer(self, ticket: int, said: A) -> None:
        """Raises FrameError where nobody has asked."""
        if ticket not in self._asked:
            raise FrameError("An answer to a question nobody asked.")
        _, future = self._asked.pop(ticket)
        if not future.done():
            future.set_result(said)

    def fail(self, error: CrowdgradError) -> None:
        """Nobody will be answered any more."""
        for _, future in self._asked.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits still gets it; nobody waiting is no news
        self._asked.clear()
