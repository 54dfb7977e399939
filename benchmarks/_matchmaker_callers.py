"""Volunteers and hosts as a matchmaker meets them: they knock, come again, say so, and leave."""

from __future__ import annotations

import abc
import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from _matchmaker_figures import REFUSED, WELCOMED, Attempt, outcome_of
from _matchmaker_people import NEEDED, Caller
from _matchmaker_socket import Answer, Client, frame

from crowdgrad.net import rooms
from crowdgrad.net.presence import POLITE_S, POLITE_TRIES
from crowdgrad.net.retry import delay_s

ANSWER_S = 10.0
"""After so long without an answer one gives up."""
RUDE_S = 2.0
"""When the patient come again who were not even answered."""
FILLED_S = 30.0
"""After so long without eight volunteers a host does."""
FAREWELL_S = 0.25
"""Between a host's last word and its hanging up."""

BEAT = frame(rooms.encode(rooms.StillHere()))
LEAVING = frame(rooms.encode(rooms.Leaving()))
STOPPED = frame(rooms.encode(rooms.StateChanged(state="stopped")))


@dataclass(slots=True)
class Book:
    """What happened in one phase."""

    began: float = field(default_factory=time.perf_counter)
    attempts: list[Attempt] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    """How late we were ourselves, each time."""
    filled: list[float] = field(default_factory=list)
    """From "host needs 8" to "all eight told"."""
    dialled: list[float] = field(default_factory=list)
    """The same from when the host dialled for the first time."""
    unfilled: int = 0
    hosts_refused: int = 0
    gave_up: int = 0
    lost: int = 0
    """Sockets that the matchmaker closed on people who were in."""


class Stage:
    """Where the matchmaker is, who is in, and which hosts wait for whom."""

    def __init__(self, where: str, seed: int) -> None:
        self.authority = where
        self.address, _, port = where.rpartition(":")
        self.port = int(port)
        self.book = Book()
        self.here: set[Volunteer] = set()
        self.knocking = 0
        self.closed = False
        """Nobody knocks any more: a phase ends."""
        self.hosts: dict[str, Host] = {}
        self.dice = random.Random(seed)
        self.tasks: set[asyncio.Task[None]] = set()

    def dial(self, caller: Caller, visitor: Visitor) -> None:
        task = asyncio.create_task(self._dial(caller, visitor))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _dial(self, caller: Caller, visitor: Visitor) -> None:
        client = Client(caller.handshake(self.authority), visitor)
        visitor.client = client
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: client, self.address, self.port, local_addr=(caller.address, 0)
            )
        except OSError:
            visitor.ended(None)


class Visitor(abc.ABC):
    """What hosts and volunteers have in common: knocking until they are in, and beating then."""

    __slots__ = ("_beat_s", "_began", "_knocks", "_patient", "_timer", "_waited_s", "caller",
                 "client", "stage", "state")  # fmt: skip

    def __init__(self, stage: Stage, caller: Caller, *, patient: bool) -> None:
        """`patient`: it comes again however often it is refused; others do as our client does."""
        self.stage = stage
        self.caller = caller
        self.client: Client | None = None
        self.state = "outside"
        self._patient = patient
        self._knocks = 0
        self._waited_s = 0.0
        self._began = 0.0
        self._beat_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def come(self) -> None:
        if self.stage.closed:
            self.over()
            return
        self.state = "knocking"
        self.stage.knocking += 1
        self._began = time.perf_counter()
        self._knocks += 1
        self._after(ANSWER_S, self._late)
        self.stage.dial(self.caller, self)

    def opened(self) -> None:
        if self.state == "knocking" and self.client is not None:
            self.client.send(self.caller.hello(self.stage.authority))

    def ended(self, answer: Answer | None) -> None:
        if self.state == "knocking":
            outcome = outcome_of(answer)
            retry = answer.retry_after_s if answer is not None and outcome == REFUSED else None
            self._settle(outcome, retry)
        elif self.state == "in":
            self.lose()
        self._let_go()

    def lose(self) -> None:
        """Somebody who was in has been shut out."""
        self.stage.book.lost += 1
        self.over()

    def over(self) -> None:
        """It has gone, or goes."""
        self.state = "over"
        self._cancel()

    def refused(self, said: rooms.Refused) -> None:
        """In words, over the WebSocket."""
        if self.state == "knocking":
            later = said.retry_after_s > 0
            outcome = REFUSED if later else f"refused: {said.message[:80]}"
            self._settle(outcome, said.retry_after_s if later else None)
        elif self.state == "in":
            self.lose()
        self._let_go()

    def welcomed(self, welcome: rooms.Welcome) -> None:
        self._settle(WELCOMED, None)
        self.state = "in"
        self._beat_s = welcome.heartbeat_s
        self._after(self._beat_s, self._beat)

    def _settle(self, outcome: str, retry_after_s: float | None) -> None:
        self.state = "outside"
        self.stage.knocking -= 1
        self._cancel()
        now = time.perf_counter()
        self.knocked(
            Attempt(self._began - self.stage.book.began, now - self._began, outcome,
                    self._knocks > 1)
        )  # fmt: skip
        if retry_after_s is not None:
            self._come_again(retry_after_s)
        elif self._patient and outcome != WELCOMED:
            self._after(RUDE_S, self.come)

    @abc.abstractmethod
    def knocked(self, attempt: Attempt) -> None:
        """Remember how it went."""

    def _come_again(self, after_s: float) -> None:
        tries = self._knocks - 1
        wait_s = after_s + delay_s(tries, self.stage.dice.random(), base_s=after_s)
        self._waited_s += wait_s
        if not self._patient and (tries == POLITE_TRIES or self._waited_s > POLITE_S):
            self.stage.book.gave_up += 1
            self.over()
        else:
            self._after(wait_s, self.come)

    def _beat(self) -> None:
        if self.client is not None:
            self.client.send(BEAT)
            self._after(self._beat_s, self._beat)

    def _late(self) -> None:
        self._settle(f"no answer within {ANSWER_S:.0f} s", None)
        self._let_go()

    def _let_go(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            client.close()

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        self._cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, what)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Volunteer(Visitor):
    __slots__ = ("_polite", "_stay_s")

    def __init__(
        self,
        stage: Stage,
        caller: Caller,
        *,
        stay_s: float | None = None,
        polite: bool = True,
        patient: bool = False,
    ) -> None:
        """`stay_s` None: as long as it may. `polite`: says that it leaves, and not just leaves."""
        super().__init__(stage, caller, patient=patient)
        self._stay_s = stay_s
        self._polite = polite

    def heard(self, text: bytes) -> None:
        said = rooms.to_volunteer.decode(text)
        if isinstance(said, rooms.Matched):
            host = self.stage.hosts.get(said.listing.offer.id)
            if host is not None:
                host.told(self.caller.id, time.perf_counter())
        elif isinstance(said, rooms.Welcome) and self.state == "knocking":
            self.welcomed(said)
            self.stage.here.add(self)
            if self._stay_s is not None:
                asyncio.get_running_loop().call_later(self._stay_s, self.leave)
        elif isinstance(said, rooms.Refused):
            self.refused(said)

    def knocked(self, attempt: Attempt) -> None:
        self.stage.book.attempts.append(attempt)

    def leave(self) -> None:
        if self.state == "in" and self._polite and self.client is not None:
            self.client.send(LEAVING)
        self.over()
        self._let_go()

    def over(self) -> None:
        super().over()
        self.stage.here.discard(self)


class Host(Visitor):
    __slots__ = ("_asked", "_dialled", "_hold_s", "_ours", "_told", "done")

    def __init__(self, stage: Stage, caller: Caller, *, hold_s: float | None) -> None:
        """`hold_s`: how long its job runs once all are told; None: nobody ever comes."""
        super().__init__(stage, caller, patient=True)
        self._hold_s = hold_s
        self._asked = self._dialled = 0.0
        self._told: set[str] = set()
        self._ours: asyncio.TimerHandle | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stage.hosts[caller.id] = self

    def come(self) -> None:
        self._dialled = self._dialled or time.perf_counter()
        super().come()

    def opened(self) -> None:
        self._asked = time.perf_counter()
        super().opened()

    def heard(self, text: bytes) -> None:
        said = rooms.to_host.decode(text)
        if isinstance(said, rooms.Welcome) and self.state == "knocking":
            self.welcomed(said)
            if self._hold_s is None:
                self.done.set_result(None)
            else:
                self._in(FILLED_S, self._give_up)
        elif isinstance(said, rooms.Refused):
            self.refused(said)

    def knocked(self, attempt: Attempt) -> None:
        self.stage.book.hosts_refused += attempt.outcome != WELCOMED

    def told(self, volunteer: str, now: float) -> None:
        """A volunteer has just heard that it works for us."""
        self._told.add(volunteer)
        if len(self._told) == NEEDED and self._hold_s is not None:
            self.stage.book.filled.append(now - self._asked)
            self.stage.book.dialled.append(now - self._dialled)
            self._in(self._hold_s, self._stop)

    def _give_up(self) -> None:
        self.stage.book.unfilled += 1
        self._stop()

    def _stop(self) -> None:
        if self.client is not None:
            self.client.send(STOPPED)
        self._in(FAREWELL_S, self._hang_up)

    def _hang_up(self) -> None:
        self.over()
        self._let_go()

    def lose(self) -> None:
        self.stage.book.unfilled += len(self._told) < NEEDED
        super().lose()

    def over(self) -> None:
        super().over()
        if self._ours is not None:
            self._ours.cancel()
        self.stage.hosts.pop(self.caller.id, None)
        if not self.done.done():
            self.done.set_result(None)

    def _in(self, seconds: float, what: Callable[[], None]) -> None:
        if self._ours is not None:
            self._ours.cancel()
        self._ours = asyncio.get_running_loop().call_later(seconds, what)
