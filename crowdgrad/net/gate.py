"""Who may be connected: places are counted from the moment a connection is accepted.

Whoever comes has a seat before TLS and before the first byte, until the socket is gone. Who finds
none may be told so; only so many are told at a time, the rest are just closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from uvicorn.protocols.http.h11_impl import H11Protocol

from crowdgrad.net.addresses import NONE, Proxies, counted

BACKLOG = 4096
"""Connections the kernel keeps for us while we are busy."""
MOST_ACCEPTED = 512
"""… and those we take of them in one turn of the loop: others want to be heard too."""
ACCEPT_AGAIN_S = 0.5
LINGER_S = 1.0
"""How long a peer may take to read our last words."""
MOST_TOLD = 128
"""Of those who find no seat, so many at a time are told; they need descriptors too."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    connections: int = 20_000
    """At once; never more than the process has descriptors for."""
    per_address: int = 500
    """… of one address; of IPv6 of one /64."""
    header_s: float = 10.0
    """Until TLS is agreed and the request's head is here."""
    header_bytes: int = 16 << 10
    body_s: float = 20.0
    """… and then its body."""
    proxies: Proxies = NONE
    """Those in front of us: they have as many connections as they like, and tell us for whom."""

    def __post_init__(self) -> None:
        if min(self.connections, self.per_address, self.header_bytes) < 1:
            raise ValueError("limits are at least 1")


class Gate:
    """Who is connected: in all, and by address."""

    def __init__(self, limits: HttpLimits, random01: Callable[[], float]) -> None:
        self.limits = limits
        self._random01 = random01
        self._by_address: Counter[str] = Counter()
        self.here = 0
        self.told = 0
        """Who is being told just now that there is no seat."""
        self.turned_away = 0
        self.is_too_much: Callable[[bytes], bool] = lambda head: False
        """Whether a request that begins like this is more than can be done just now."""

    def arrive(self, peer: str) -> Seat | None:
        """For a connection just accepted. None: nobody has the time to say that it is full."""
        address = "" if peer in self.limits.proxies else counted(peer)
        if self.here < self.limits.connections and self.has_room_for(address):
            return Seat(self, address, granted=True)
        self.turned_away += 1
        return Seat(self, "", granted=False) if self.told < MOST_TOLD else None

    def has_room_for(self, address: str) -> bool:
        return not address or self._by_address[address] < self.limits.per_address

    def count(self, address: str, change: int) -> None:
        if address:
            self._by_address[address] += change
            if not self._by_address[address]:
                del self._by_address[address]

    def figures(self) -> dict[str, float]:
        return {
            "connections": self.here,
            "connections_limit": self.limits.connections,
            "turned_away_total": self.turned_away,
        }

    def come_again_s(self) -> float:
        """Spread out, so that those sent away do not all come back together."""
        return 2.0 + 8.0 * self._random01()


class Seat:
    """One connection's, or, not `granted`, a moment to say that there is none."""

    __slots__ = ("_address", "_taken", "gate", "granted")

    def __init__(self, gate: Gate, address: str, *, granted: bool) -> None:
        self.gate, self._address, self._taken = gate, address, True
        self.granted = granted
        self._count(1)

    def belongs_to(self, address: str) -> None:
        """A proxy has told whose it is."""
        assert not self._address
        self._address = address
        self.gate.count(address, 1)

    def leave(self) -> None:
        """Whoever notices first that the connection has gone."""
        if self._taken:
            self._taken = False
            self._count(-1)

    def _count(self, change: int) -> None:
        if self.granted:
            self.gate.here += change
            self.gate.count(self._address, change)
        else:
            self.gate.told += change


class Accepting:
    """Where connections come in: many in one turn of the loop, also after descriptors ran out.

    The loop's own server takes one in a turn. Where turns are long the kernel's queue overflows
    then, and nobody hears that there is too much to do.
    """

    def __init__(
        self,
        listening: socket.socket,
        admit: Callable[[socket.socket, str], None],
        trouble: Callable[[OSError], None],
        loop: asyncio.AbstractEventLoop,
        *,
        most: int = MOST_ACCEPTED,
    ) -> None:
        """`admit`: given a socket, which is its own from then on, and the peer's address.
        `trouble`: told why nobody can be accepted for a moment. `most`: in one turn."""
        self._listening, self._admit, self._trouble, self._loop = listening, admit, trouble, loop
        self._most = most
        self._again: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._listen()

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    def _listen(self) -> None:
        self._again = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(self._most):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:  # no descriptor, no memory: it would be told again at once
                self._trouble(error)
                self._loop.remove_reader(self._listening)
                self._again = self._loop.call_later(ACCEPT_AGAIN_S, self._listen)
                return
            self._admit(accepted, str(peer[0]))


class Entrance:
    """Where connections come in, each to its seat.

    The loop's own server would tell nobody of TLS handshakes that are under way or fail: here they
    have their seat already, and are timed.
    """

    def __init__(
        self,
        listening: socket.socket,
        gate: Gate,
        *,
        make: Callable[[Seat], H11Protocol],
        context: ssl.SSLContext | None,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        """`make`: for each; it gives the seat back when its connection is lost. `tasks`: where
        those under way are kept, for whoever stops the server."""
        self._listening = listening
        self._gate = gate
        self._make = make
        self._context = context
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._accepting: Accepting | None = None

    def open(self) -> None:
        self._accepting = Accepting(self._listening, self._admit, _tell, self._loop)

    def close(self) -> None:
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        seat = self._gate.arrive(peer)
        if seat is None:
            accepted.close()
        else:
            task = self._loop.create_task(self._connect(accepted, seat))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, accepted: socket.socket, seat: Seat) -> None:
        made = self._make(seat)
        accepted.setblocking(False)
        agreeing_s = self._gate.limits.header_s if seat.granted else LINGER_S
        timed = {"ssl_handshake_timeout": agreeing_s, "ssl_shutdown_timeout": LINGER_S}
        try:
            await self._loop.connect_accepted_socket(
                lambda: made,
                accepted,
                ssl=self._context,
                **(timed if self._context is not None else {}),
            )
        except (OSError, asyncio.CancelledError):  # gone, no TLS, too late, or we are stopping
            accepted.close()
        if made.transport is None:
            seat.leave()


def _tell(error: OSError) -> None:
    _log.error("no connection can be accepted: %s", os.strerror(error.errno or 0))
