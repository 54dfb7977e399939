"""Connections that share a throttle: one line for each, in which whoever waits longest goes first.

Without a line the connection that spoke last would be the first to look again, and the others would
never have a turn. Whoever has one either moves something at once, which is charged, or has nothing
to move: then it is the next one's a moment later.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from collections import deque

from crowdgrad.net.throttle import Throttle

TURN_S = 0.001
"""How long whoever may read has for it; timers are no finer than that. Who may send does so at
once."""
LOOK_AGAIN_S = 0.25
"""The rate may change while somebody waits."""
BUFFER_S, LEAST_BUFFER_S = 0.25, 0.08
"""What a socket's buffer should hold, and what it must: a way there and back takes so long."""
LEAST_BUFFER_BYTES = 64 << 10
MOST_BUFFER_BYTES = 212_992
"""Linux gives no more to whoever asks, unless told otherwise."""


class Pace:
    """One connection's part in a throttle, for one direction."""

    def __init__(
        self, throttle: Throttle, loop: asyncio.AbstractEventLoop, *, reads: bool = False
    ) -> None:
        self._throttle, self._loop = throttle, loop
        self._turn_s = TURN_S if reads else 0.0
        self._line = _line_of(throttle, loop)
        self._turns: set[asyncio.Future[None]] = set()

    def take(self, count: int) -> bool:
        """So much has passed; whether more may at once."""
        return not self._throttle.take(self._loop.time(), count)

    @property
    def clear(self) -> bool:
        """Whether nothing is owed, and nobody waits."""
        return not self._line.busy and not self._throttle.wait_s(self._loop.time())

    def part(self, most: int) -> int:
        return self._throttle.part(most)

    def turn(self) -> asyncio.Future[None]:
        """Done when it is our turn, or the connection has ended."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)
        self._line.join(turn, self._turn_s, self._throttle)
        return turn

    def end(self) -> None:
        """Nobody has to wait for this connection any more."""
        for turn in self._turns:
            if not turn.done():
                turn.set_result(None)


class _Line:
    """Does not hold the throttle it belongs to, except while somebody waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._looking = False

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def join(self, turn: asyncio.Future[None], turn_s: float, throttle: Throttle) -> None:
        self._waiting.append((turn, turn_s))
        if not self._looking:
            self._look(throttle)

    def _look(self, throttle: Throttle) -> None:
        """Give the first its turn, where nothing is owed; look again for as long as others wait."""
        self._looking = False
        while self._waiting and self._waiting[0][0].done():
            self._waiting.popleft()
        if not self._waiting:
            return
        wait_s = throttle.wait_s(self.loop.time())
        pause_s = max(TURN_S, min(wait_s, LOOK_AGAIN_S))
        if not wait_s:
            turn, pause_s = self._waiting.popleft()
            turn.set_result(None)
        if self._waiting:
            self._looking = True
            if pause_s:
                self.loop.call_later(pause_s, self._look, throttle)
            else:
                self.loop.call_soon(self._look, throttle)


_LINES: weakref.WeakKeyDictionary[Throttle, _Line] = weakref.WeakKeyDictionary()


def _line_of(throttle: Throttle, loop: asyncio.AbstractEventLoop) -> _Line:
    found = _LINES.get(throttle)
    if found is None or found.loop is not loop:
        found = _LINES[throttle] = _Line(loop)
    return found


def bound_buffers(sock: socket.socket, *, up: Throttle | None, down: Throttle | None) -> None:
    """Let the system hold no more than a moment's worth, so that the wire is slowed, too.

    Where a moment's worth is more than it would give it is left to itself: asked for less, a
    distant host could never send as fast as the cap allows.
    """
    for option, throttle in ((socket.SO_SNDBUF, up), (socket.SO_RCVBUF, down)):
        rate = throttle.bytes_per_s if throttle is not None else None
        if not rate or rate * LEAST_BUFFER_S > MOST_BUFFER_BYTES:
            continue
        size = min(max(LEAST_BUFFER_BYTES, int(rate * BUFFER_S)), MOST_BUFFER_BYTES)
        with contextlib.suppress(OSError):  # then it has its own
            sock.setsockopt(socket.SOL_SOCKET, option, size)
