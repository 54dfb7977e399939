"""Two wires spliced: what one says goes to the other, as it is.

While one does not take what it is sent, the other is not read. When one sends no more, the other is
told so, once it has everything; when one has gone, so has the pair.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

from crowdgrad.errors import PeerError
from crowdgrad.planner.metering import Meter
from crowdgrad.relay.turns import Turns
from crowdgrad.relay.wire import Wire

End = Literal["closed", "host-gone", "caller-gone", "idle", "allowance", "stopping"]
OnEnd = Callable[["Pair", End, str], None]


class Pair:
    __slots__ = (
        "_clock", "_meters", "_on_end", "_over", "_turns", "_waiting", "caller", "caller_id",
        "heard_at", "host", "host_id", "since", "to_caller", "to_host",
    )  # fmt: skip

    def __init__(
        self,
        host: Wire,
        caller: Wire,
        *,
        host_id: str,
        caller_id: str,
        meters: tuple[Meter, ...],
        turns: Turns,
        clock: Callable[[], float],
        on_end: OnEnd,
    ) -> None:
        """`on_end`: called once; the wires are its to close."""
        self.host, self.caller = host, caller
        self.host_id, self.caller_id = host_id, caller_id
        self._meters, self._turns, self._clock, self._on_end = meters, turns, clock, on_end
        self.since = self.heard_at = clock()
        self.to_host = self.to_caller = 0
        self._waiting: set[Wire] = set()
        """For their turn."""
        self._over = False
        host.owner = caller.owner = self

    def begin(self) -> None:
        self._listen(self.host)
        self._listen(self.caller)

    def other(self, wire: Wire) -> Wire:
        return self.caller if wire is self.host else self.host

    # -- what the wires say -----------------------------------------------------------------------

    def room(self, wire: Wire) -> int:
        room = self._turns.room(self._meters, functools.partial(self._again, wire))
        if room < 0:
            self.end("allowance", "a key has had its bytes for a day")
            return 0
        if not room:
            self._waiting.add(wire)
            wire.listen(False)
        return room

    def _again(self, wire: Wire) -> None:
        if self._over:
            return
        self._waiting.discard(wire)
        self._listen(wire)
        if wire.listening:
            wire.read()

    def passed(self, wire: Wire, count: int) -> None:
        self.heard_at = now = self._clock()
        if wire is self.host:
            self.to_caller += count
        else:
            self.to_host += count
        for meter in self._meters:
            meter.passed(count, now)

    def heard(self, wire: Wire, data: memoryview) -> None:
        other = self.caller if wire is self.host else self.host
        other.send(data)
        if other.kept or wire.kept:
            self._listen(wire)

    def drained(self, wire: Wire) -> None:
        self.heard_at = self._clock()  # slow is not idle
        self._listen(wire)
        self._listen(self.other(wire))
        self._end_if_done()

    def _listen(self, wire: Wire) -> None:
        """Read it where the other has taken all, and it has taken what is its own."""
        own = wire.kept if wire.layer is not None else 0  # pongs: nobody else stops their flood
        blocked = wire.has_ended or wire in self._waiting or self.other(wire).kept or own
        wire.listen(not blocked and not self._over)

    def ended(self, wire: Wire) -> None:
        self.other(wire).finish()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if (
            self.host.has_ended
            and self.caller.has_ended
            and not (self.host.kept or self.caller.kept)
        ):
            self.end("closed", "both have said all")

    def gone(self, wire: Wire, why: str) -> None:
        if wire.has_ended and why == "closed":  # a WebSocket's good-bye
            self.end("closed", "one of them closed it")
        else:
            self.end("host-gone" if wire is self.host else "caller-gone", why)

    def broke(self, wire: Wire, error: PeerError) -> None:
        self.end("host-gone" if wire is self.host else "caller-gone", error.message)

    def end(self, how: End, why: str) -> None:
        if not self._over:
            self._over = True
            self.host.listen(False)
            self.caller.listen(False)
            self._on_end(self, how, why)
