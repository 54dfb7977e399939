"""Who has dialled and is not spliced: the first words, a caller that waits, a host that serves,
whoever measures, and those on their way out."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from crowdgrad.errors import MessageError, PeerError
from crowdgrad.net import relay_words as words
from crowdgrad.net.framing import FrameReader, pack, refuse_payload
from crowdgrad.net.heartbeat import Action, next_action
from crowdgrad.net.messages import Heartbeat, RelayKnock
from crowdgrad.net.transport.layers import FIRST_BYTES, Layer
from crowdgrad.net.transport.websocket import FIRST_BYTES as WEB_BYTES
from crowdgrad.planner.metering import Meter
from crowdgrad.relay.turns import Turns
from crowdgrad.relay.wire import Wire

SMALL_BYTES = 4096
"""Read at once of those who only speak words."""
BLOCK = os.urandom(64 << 10)
"""What is sent to whoever measures: nothing that a modem could shorten."""
Asked = words.Serve | words.Call | words.Answer | words.Measure


class Desk(Protocol):
    """Who decides."""

    def asked(self, guest: Guest, word: Asked) -> None: ...

    def broke(self, wire: Wire, error: PeerError) -> None: ...

    def left(self, wire: Wire, why: str) -> None: ...


class _Wordy:
    """What is alike for all of them."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def room(self, wire: Wire) -> int:
        return SMALL_BYTES

    def passed(self, wire: Wire, count: int) -> None:
        return

    def drained(self, wire: Wire) -> None:
        return

    def ended(self, wire: Wire) -> None:
        self.desk.left(wire, "closed")

    def gone(self, wire: Wire, why: str) -> None:
        self.desk.left(wire, why)

    def broke(self, wire: Wire, error: PeerError) -> None:
        self.desk.broke(wire, error)


class Guest(_Wordy):
    """Somebody who has not said yet what it wants."""

    def __init__(
        self,
        desk: Desk,
        *,
        nonce: bytes,
        until: float,
        web: Callable[[], Layer],
        bare: Callable[[], None],
    ) -> None:
        """`web`: makes the layer of a WebSocket. `bare`: called where it comes without one; raises
        PeerError."""
        super().__init__(desk)
        self.nonce, self.until = nonce, until
        self.wire: Wire
        self._web, self._bare = web, bare
        self._first: bytearray | None = bytearray()
        self._reader = words.Reader(magic=True)
        self._greeted = False

    def heard(self, wire: Wire, data: memoryview) -> None:
        if self._first is not None:
            self._first += data
            if len(self._first) < FIRST_BYTES:
                return
            first, self._first = bytes(self._first), None
            if first.startswith(WEB_BYTES):
                wire.wrap(self._web(), first)
                return
            self._bare()
            data = memoryview(first)
        rest = self._reader.put(data)
        while wire.owner is self and (body := self._reader.body()) is not None:
            self._hear(words.of_dialler(body))
            if wire.owner is self:
                rest = self._reader.put(rest)
        if wire.owner is not self and not isinstance(wire.owner, Leaving):
            self._check_silent(rest)

    def _check_silent(self, rest: bytes) -> None:
        if rest or self._reader.rest():
            raise MessageError("You go on before you have an answer.")

    def _hear(self, word: words.FROM_DIALLER) -> None:
        if isinstance(word, words.Hi):
            words.check_version(word)
            if self._greeted:
                raise MessageError("You greet twice.")
            self._greeted = True
            self.wire.send(words.pack(words.Challenge(nonce=self.nonce)))
        elif not self._greeted:
            raise MessageError(f"You say {type(word).__name__} before you greet.")
        else:
            self.desk.asked(self, word)


class Waiting(_Wordy):
    """A caller whose host has not answered yet."""

    def __init__(self, desk: Desk, wire: Wire, *, ticket: bytes, host: str, key: str) -> None:
        super().__init__(desk)
        self.wire, self.ticket, self.host, self.key = wire, ticket, host, key
        wire.owner = self

    def heard(self, wire: Wire, data: memoryview) -> None:
        raise MessageError("You go on before your host has answered.")


class Serving(_Wordy):
    """A host at its place: it is knocked at here, and both beat."""

    def __init__(
        self,
        desk: Desk,
        wire: Wire,
        *,
        name: str,
        at: str,
        digest: str,
        beat_s: float,
        silence_s: float,
        clock: Callable[[], float],
    ) -> None:
        """`name`: under which it is called. `at`: what it dialled us as. `digest`: of its key,
        whole."""
        super().__init__(desk)
        self.wire, self.name, self.at, self.digest = wire, name, at, digest
        self._beat_s, self._silence_s, self._clock = beat_s, silence_s, clock
        self.heard_at = self.sent_at = clock()
        self._reader = FrameReader(refuse_payload)
        wire.owner = self

    def passed(self, wire: Wire, count: int) -> None:
        self.heard_at = self._clock()

    def heard(self, wire: Wire, data: memoryview) -> None:
        while len(data):
            room = self._reader.buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            for message, _ in self._reader.filled(count):
                if not isinstance(message, Heartbeat):
                    raise MessageError(f"A relay has no use for a {type(message).__name__}.")

    def knock(self, ticket: bytes) -> bool:
        """False: it has not even taken what was said before."""
        if self.wire.kept:
            return False
        self._say(pack(RelayKnock(ticket=ticket)))
        return True

    def look(self, now: float) -> tuple[Action, str]:
        """Beat where it is time; "give_up": it has gone, and why."""
        action, why = next_action(
            now,
            heard_at=self.heard_at,
            sent_at=self.sent_at,
            beat_s=self._beat_s,
            silence_s=self._silence_s,
        )
        if action == "beat" and not self.wire.kept:
            self._say(pack(Heartbeat()))
        return action, why

    def _say(self, frame: bytes) -> None:
        self.sent_at = self._clock()
        self.wire.send(frame)


class Measuring(_Wordy):
    """Somebody who would like to know how fast its link is: so many bytes down, then up."""

    def __init__(
        self,
        desk: Desk,
        wire: Wire,
        *,
        count: int,
        key: str,
        meters: tuple[Meter, ...],
        turns: Turns,
        clock: Callable[[], float],
        done: Callable[[Measuring], None],
    ) -> None:
        super().__init__(desk)
        self.wire, self.key, self.until = wire, key, 0.0
        self._down = self._up = count
        self._meters, self._turns, self._clock, self._done = meters, turns, clock, done
        wire.owner = self

    def begin(self) -> None:
        self.wire.listen(False)
        self.wire.send(words.pack(words.Measuring(bytes=self._down)))
        self._send()

    def _send(self) -> None:
        while self._down and not self.wire.kept and not self.wire.closed:
            room = self._turns.room(self._meters, self._send)
            if room <= 0:
                if room < 0:
                    self.desk.left(self.wire, "a key has had its bytes for a day")
                return
            count = min(room, self._down, len(BLOCK))
            self._down -= count
            self._count(count)
            self.wire.send(memoryview(BLOCK)[:count])
        if not self._down:
            self.wire.listen(True)

    def _count(self, count: int) -> None:
        now = self._clock()
        for meter in self._meters:
            meter.passed(count, now)

    def drained(self, wire: Wire) -> None:
        self._send()

    def room(self, wire: Wire) -> int:
        room = self._turns.room(self._meters, self._again)
        if room < 0:
            self.desk.left(wire, "a key has had its bytes for a day")
        if not room:
            wire.listen(False)
        return max(0, room)

    def _again(self) -> None:
        if self.wire.owner is self and not self.wire.closed:
            self.wire.listen(True)

    def passed(self, wire: Wire, count: int) -> None:
        self._count(count)

    def heard(self, wire: Wire, data: memoryview) -> None:
        self._up -= len(data)
        if self._up < 0:
            raise MessageError("That is more than was agreed.")
        if not self._up:
            wire.send(words.pack(words.Measured()))
            self._done(self)


class Leaving(_Wordy):
    """It has heard why it must go, or that all is said. Closing with unread bytes would reset the
    connection, and then it might never hear."""

    def __init__(self, desk: Desk, wire: Wire, until: float) -> None:
        super().__init__(desk)
        self.wire, self.until = wire, until
        wire.owner = self

    def heard(self, wire: Wire, data: memoryview) -> None:
        return

    def ended(self, wire: Wire) -> None:
        if not wire.kept:
            self.desk.left(wire, "closed")

    def drained(self, wire: Wire) -> None:
        if wire.has_ended:
            self.desk.left(wire, "closed")
