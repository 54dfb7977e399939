"""One member's connection to the host, from its admission to its end.

The conversation only listens and decides; it never waits for a place or for a slow link while
something large may lie behind what it waits for. So large answers, those that wait for a round, and
data are sent by tasks of their own, and an update that has arrived is always applied and its place
freed. Small answers are sent at once, without a task: that is the hot path. An update nobody waits
for (its unit is done, or was never its sender's) gets no place: its bytes are thrown away as they
come, and it is answered as any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.work import Update, VolunteerId
from crowdgrad.errors import ConnectionLost, DataError, FrameError, MessageError, PeerError
from crowdgrad.host.blobs import read
from crowdgrad.host.evaluation import is_evaluation
from crowdgrad.host.gate import Asking, Gate, Place
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.snapshots import Snapshot
from crowdgrad.host.spreading import Spread
from crowdgrad.host.training import Training
from crowdgrad.host.units import Granted
from crowdgrad.net.framing import NOWHERE, SLACK_BYTES
from crowdgrad.net.heartbeat import Look
from crowdgrad.net.messages import (
    Blob,
    Exchange,
    Feed,
    Fetch,
    Fresh,
    Get,
    GiveBack,
    Grant,
    Grew,
    Holds,
    Leave,
    Message,
    RosterChanged,
    Shares,
    Wait,
)
from crowdgrad.net.transport.base import Connection, Payload
from crowdgrad.numerics.vectors import as_bytes

logger = logging.getLogger(__name__)

ASK_AGAIN_S = 0.2
ROUND_PATIENCE_S = 1.0
"""How long an answer is held back for the next round before the volunteer is told to ask again."""
PLACE_PATIENCE_S = 1.0
"""How long an answer waits for a place before the volunteer is told why, to ask again."""
LOOK_AGAIN_S = 0.05
COUNT_EVERY_S = 0.1
"""How often bytes are counted on the hot path."""
MAX_QUESTIONS = 16
"""Of one member, not answered yet: it has a handful of lanes."""
MAX_BLOBS = 4096
"""Of one member, asked for and not sent yet."""
ACCEPTED = "accepted"
LOST = PeerError("Some of the data cannot be read here any more.", advice="Try again later.")
WENT_WRONG = PeerError("Something went wrong here.", advice="Try again later.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What all visits share."""

    training: Training
    blobs: Mapping[ChunkHash, bytes]
    gate: Gate | None
    """None where vectors are small: then nobody needs a place."""
    clock: Callable[[], float]
    silence_s: float
    newest: Callable[[], Grew]
    """What there is to train on now."""
    spread: Spread | None = None
    """How the data spreads; None: everybody asks us for each chunk."""


class Visit:
    def __init__(self, desk: Desk, connection: Connection, account: Contribution) -> None:
        self._desk = desk
        self._training = desk.training
        self._pool = desk.training.parameters.pool
        self.connection = connection
        self.account = account
        self._asking: Asking | None = None
        """The update that waits for a place; there is never more than one."""
        self._uploads: deque[Place] = deque()
        """Places of updates that arrive or have arrived, in their order."""
        self._places: set[Place] = set()
        """All it has."""
        self._buffers = 0
        """Those of the pool that updates of its arrive in, or lie in."""
        self._answers: set[asyncio.Task[None]] = set()
        self._wanted: deque[ChunkHash] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._since: float | None = None
        """When it asked for a place, where it was told to ask again meanwhile."""
        self._fetches = 0
        """Fetches that wait for a place."""
        self._held_up_at: float | None = None
        """Up to when it was given more time because it waits for us; None: it does not."""
        self._counted, self._counted_at = (0, 0), 0.0
        self._worked_at = desk.clock()
        self._knows = desk.newest().manifest
        """The data it was told of last: at first, when it was admitted."""
        self._dismissed = self._ended = False
        connection.set_sink(self._sink)
        if desk.gate is None:
            connection.set_ear(self._at_once)

    async def converse(self) -> str:
        """Answer until the volunteer goes; returns why it went."""
        while not self._dismissed:
            # No name for what was heard: while we wait for more, it would keep an update alive.
            why = await self._hear(*await self.connection.receive())
            if why:
                return why
        return "somebody else speaks for it"  # what it had said before may not count for that one

    async def _hear(self, message: Message, payload: memoryview) -> str:
        """Answer, or see that it is answered; returns why the volunteer goes, if it does."""
        if isinstance(message, Exchange):
            await self._exchange(message, payload)
        elif isinstance(message, Get):
            self._want(message.hash)
        elif isinstance(message, Shares | Feed | Holds):
            self._worked_at = self._desk.clock()  # whoever fetches data is not stuck
            if self._desk.spread is not None:
                self._desk.spread.hear(self, message)
        elif isinstance(message, Fetch):
            await self._fetch(message)
        elif isinstance(message, GiveBack):
            self._worked_at = now = self._desk.clock()
            self._training.give_back(
                now, self.account, message.unit, message.reason, rests=message.rests
            )
        elif isinstance(message, Leave):
            return f"left: {message.reason}"
        else:
            raise MessageError(f"A volunteer does not say {type(message).__name__}.")
        return ""

    def dismiss(self, error: PeerError) -> None:
        """Somebody else speaks for this volunteer from now on."""
        self._dismissed = True
        self.connection.refuse(error)

    async def end(self) -> None:
        """Let go of everything; nothing is sent after it."""
        self._ended = True
        tasks = [*self._answers, self._sending, self._telling]
        running = [task for task in tasks if task is not None and not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._desk.spread is not None:
            self._desk.spread.leave(self)
        gate = self._desk.gate
        if gate is not None:
            if self._asking is not None:
                gate.give_up(self._asking)
                self._asking = None
            for place in self._places:
                gate.leave(place)
        self._pool.forget(self._buffers)
        self.count()

    def count(self) -> None:
        """Tell the account how many bytes have come and gone since we last did."""
        received, sent = self.connection.received_bytes, self.connection.sent_bytes
        before_received, before_sent = self._counted
        if sent < before_sent:  # what was never sent is given up when a connection ends
            sent = before_sent
        self._counted, self._counted_at = (received, sent), self._desk.clock()
        self.account.carried(received=received - before_received, sent=sent - before_sent)

    def tell(self, news: RosterChanged) -> bool:
        """Tell it who is here; False while it has not heard the last news."""
        if self._ended:
            return True
        if self._telling is not None and not self._telling.done():
            return False
        self._telling = asyncio.create_task(self._tell(news))
        return True

    async def _tell(self, news: RosterChanged) -> None:
        try:
            await self.connection.send(news)
        except PeerError:
            return  # it has gone

    # -- presence and patience ----------------------------------------------------------------

    def look(self, look: Look) -> None:
        """Once in a while: is it there, does it get on, do its transfers?"""
        arrived, _ = self._counted
        self.count()
        if self._dismissed:
            return
        self._excuse(look.now, arrives=self.connection.received_bytes > arrived)
        self._training.attendance.look(
            look.now,
            self.account,
            heard_at=look.heard_at,
            worked_at=self._worked_at,
            silence_s=self._desk.silence_s,
            asleep_s=look.asleep_s,
        )
        gate = self._desk.gate
        if gate is None:
            return
        if self._asking is not None and look.now - self._asking.since > PLACE_PATIENCE_S:
            self.account.state = f"waiting: {gate.reason(self._asking.since, self._who)}"
        for place in self._places:
            moved = self._moved(comes=place.comes)
            if look.asleep_s:
                place.begin_again(look.now, moved)
            elif why := place.slower(
                look.now,
                moved,
                self._desk.silence_s,
                waited=partial(gate.others_waited, self._who),
                beside=self._places - {place},
            ):
                error = ConnectionLost(f"Too slow: {why}.", advice="Try again over a better link.")
                self.connection.refuse(error)
                return

    def _excuse(self, now: float, *, arrives: bool) -> None:
        """What waits for a place of others is our own doing; an update on its way is work."""
        gate = self._desk.gate
        if gate is None:
            return
        waits = (self._asking is not None or self._fetches > 0) and not gate.full(self._who)
        for_s = now - self._held_up_at if self._held_up_at is not None else 0.0
        self._held_up_at = now if waits else None
        if waits or (arrives and any(place.moving for place in self._uploads)):
            self._worked_at = now
            self._training.attendance.held_up(now, self.account, for_s, self._desk.silence_s)

    @property
    def _who(self) -> VolunteerId:
        return self.account.volunteer.id

    id = _who

    @property
    def position(self) -> int:
        return self.account.position

    def _moved(self, *, comes: bool) -> int:
        return self.connection.received_bytes if comes else self.connection.sent_bytes

    # -- updates that come --------------------------------------------------------------------

    def _sink(self, message: Message, length: int) -> memoryview | None:
        if not isinstance(message, Exchange) or message.update is None:
            raise FrameError(f"A {type(message).__name__} came with {length} bytes.")
        expected = self._training.parameters.update_bytes
        if length != expected:
            raise FrameError(
                f"An update has {length} bytes; this program's have {expected}.",
                advice="Update crowdgrad on the volunteer.",
            )
        if self._desk.gate is None:
            return self._take_buffer()
        if self._ended or self._training.book.lease_of(message.update.unit, self._who) is None:
            return NOWHERE
        assert self._asking is None, "one payload at a time"
        self._asking = self._desk.gate.ask(self._who, self._given)
        if self._asking.place is not None:
            return self._take_place()
        self._excuse(self._desk.clock(), arrives=False)
        return None

    def _given(self) -> None:
        # Not at once: we are called by whoever has just left its place.
        asyncio.get_running_loop().call_soon(self._make_room)

    def _make_room(self) -> None:
        if self._ended or self._asking is None or self._asking.place is None:
            return
        room = self._take_place()
        self._excuse(self._desk.clock(), arrives=True)  # it has waited until now
        self.connection.make_room(room)

    def _take_place(self) -> memoryview:
        assert self._asking is not None
        assert self._asking.place is not None
        place, self._asking = self._asking.place, None
        place.begin(self._desk.clock(), self._moved(comes=True), comes=True)
        self._uploads.append(place)
        self._places.add(place)
        return self._take_buffer()

    def _take_buffer(self) -> memoryview:
        self._buffers += 1
        return self._pool.take(self._training.parameters.update_bytes + SLACK_BYTES)

    def _give_buffer(self, payload: memoryview) -> None:
        self._buffers -= 1
        self._pool.give(payload)

    async def _exchange(self, ask: Exchange, payload: memoryview) -> None:
        verdict, place = "", None
        self._worked_at = now = self._desk.clock()
        if len(payload) and self._desk.gate is not None:
            place = self._uploads.popleft()
            self._desk.gate.moved(place)
        if (
            ask.update is not None
        ):  # if that fails a thread may still be at it: it is not given back
            verdict = await self._take(now, ask.update, payload)
        if len(payload):
            self._give_buffer(payload)
        self.count()
        if self._desk.gate is None and not self._training.turns.holds_back:
            await self._grant(ask, verdict)
        else:
            self._answer(self._grant_in_turn(ask, verdict, place))

    def _at_once(self, message: Message, payload: memoryview) -> bool:
        """The hot path: an update that is as it should be, taken and answered as it arrives.

        Whatever is not that simple goes the long way: nothing has changed then. What need not be
        known for the answer is written down after it.
        """
        if not isinstance(message, Exchange) or message.update is None or not len(payload):
            return False
        if self._answers or self._ended or not self.connection.free:
            return False
        if self._knows != self._desk.newest().manifest:  # it is told before its next unit
            return False
        try:
            return self._exchange_at_once(message, message.update, payload)
        except Exception:
            logger.exception("%s: an exchange went wrong", self.connection.peer)
            self.connection.refuse(WENT_WRONG)
            return True

    def _exchange_at_once(self, ask: Exchange, update: Update, payload: memoryview) -> bool:
        training, parameters = self._training, self._training.parameters
        now = self._desk.clock()
        taken = training.take_at_once(now, self.account, update, payload)
        if taken is None:
            return False
        snapshot, sent = parameters.publish_at_once(), False
        try:
            sent = self._send_at_once(now, ask, snapshot)
        except PeerError:  # whoever listens on this connection hears of it
            sent = True
        finally:
            training.settle(now, self.account, taken)
            self._give_buffer(payload)
            self._let_go(snapshot, sent=sent)
        if now - self._counted_at > COUNT_EVERY_S:
            self.count()
        self._worked_at = now
        return True

    def _let_go(self, snapshot: Snapshot, *, sent: bool) -> None:
        """Of parameters that are on their way, when they have left our hands."""
        parameters = self._training.parameters
        if sent:
            parameters.release(snapshot)
            return

        async def wait() -> None:
            nonlocal sent
            await self.connection.drained()
            sent = True

        self._answer(wait()).add_done_callback(
            lambda _: parameters.release(snapshot) if sent else parameters.abandon(snapshot)
        )

    def _send_at_once(self, now: float, ask: Exchange, snapshot: Snapshot) -> bool:
        granted, reason = self._training.lease(
            now, self.account, frozenset(ask.shards), snapshot.version
        )
        if granted is None:
            return self.connection.send_at_once(_wait(ask, reason, ACCEPTED))
        payload = self._evaluated(granted)
        if payload is None:
            self._training.parameters.hold_at_once(snapshot)
            payload = snapshot.payload
        return self.connection.send_at_once(self._granting(ask, granted, ACCEPTED), payload)

    async def _take(self, now: float, update: Update, payload: memoryview) -> str:
        parameters = self._training.parameters
        received = await parameters.received(self._who, update, payload)
        try:
            return await self._training.take(now, self.account, update, received)
        finally:
            parameters.let_go(received)

    # -- answers ------------------------------------------------------------------------------

    def _answer(self, answer: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Send it from a task of its own, and go on listening."""
        if len(self._answers) >= MAX_QUESTIONS:
            answer.close()
            raise MessageError(f"{MAX_QUESTIONS} questions wait for their answers already.")
        task = asyncio.create_task(self._guarded(answer))
        task.add_done_callback(lambda _: answer.close())  # where it was ended before it began
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        return task

    async def _guarded(self, answer: Coroutine[Any, Any, None]) -> None:
        try:
            await answer
        except PeerError:
            return  # whoever listens on this connection hears of it
        except Exception:
            logger.exception("%s: no answer could be given", self.connection.peer)
            self.connection.refuse(WENT_WRONG)

    async def _grant_in_turn(self, ask: Exchange, verdict: str, place: Place | None) -> None:
        """Answer when it is its turn: in the next round, and with a place where one is needed."""
        turns = self._training.turns
        until = self._desk.clock() + ROUND_PATIENCE_S
        while True:
            if place is None and self._desk.gate is not None:
                place = await self._enter(PLACE_PATIENCE_S)
                if place is None:
                    await self._put_off(ask, verdict)
                    return
            wait = not turns.holds_back or self._desk.clock() >= until
            try:
                if await self._grant(ask, verdict, place, wait=wait):
                    return
            finally:
                self._leave(place)  # others may need it for our turn to come
                place = None
            # The next round, but an evaluation may be due, or somebody have come, before.
            await self._training.turned(LOOK_AGAIN_S)

    async def _enter(self, patience_s: float | None) -> Place | None:
        gate = self._desk.gate
        assert gate is not None
        since = self._since if self._since is not None else self._desk.clock()
        place = await gate.enter(self._who, patience_s=patience_s, since=since)
        self._since = since if place is None else None
        if place is not None:
            self._places.add(place)
        return place

    def _leave(self, place: Place | None) -> None:
        if place is not None and self._desk.gate is not None:
            self._places.discard(place)
            self._desk.gate.leave(place)

    async def _put_off(self, ask: Exchange, verdict: str) -> None:
        assert self._desk.gate is not None
        assert self._since is not None
        reason = self._desk.gate.reason(self._since, self._who)
        self.account.state = f"waiting: {reason}"
        await self.connection.send(_wait(ask, reason, verdict))

    async def _grant(
        self, ask: Exchange, verdict: str, place: Place | None = None, *, wait: bool = True
    ) -> bool:
        """Answer with a unit, or (if `wait`) with why there is none; False: not answered yet."""
        training = self._training
        # A replica goes on only from what was accepted, not from what it said twice.
        after = ask.update.unit if ask.update is not None and verdict == ACCEPTED else None
        async with training.parameters.published() as snapshot:
            await self._tell_of_data()  # and nothing may come between that and the lease
            granted, reason = training.lease(
                self._desk.clock(), self.account, frozenset(ask.shards), snapshot.version, after
            )
            if granted is None:
                if wait:
                    await self.connection.send(_wait(ask, reason, verdict))
                return wait
            start = await self._start_of(granted, snapshot)
            await self._send(self._granting(ask, granted, verdict), start, place)
            return True

    def _granting(self, ask: Exchange, granted: Granted, verdict: str) -> Grant:
        return Grant(
            ticket=ask.ticket,
            unit=granted.unit,
            base=granted.base,
            rate=granted.rate,
            link=granted.link,
            verdict=verdict,
            yours=self.account.samples,
            given=self._training.ledger.total_samples,
        )

    async def _tell_of_data(self) -> None:
        """A unit may be of what was added: it hears of that first, on the same connection.

        Its lanes may tell it at the same time: twice is no harm, too late would be.
        """
        while self._knows != (newest := self._desk.newest()).manifest:
            await self.connection.send(newest)
            self._knows = newest.manifest

    async def _start_of(self, granted: Granted, snapshot: Snapshot) -> Payload:
        """The parameters a unit starts from; none where its replica goes on."""
        evaluated = self._evaluated(granted)
        if evaluated is not None:
            return evaluated
        if granted.link:
            return b""
        await self._training.parameters.hold(snapshot)
        return snapshot.payload

    def _evaluated(self, granted: Granted) -> Payload | None:
        """The parameters that an evaluation is of; None where it is none."""
        round_ = self._training.course.evaluation.round
        if round_ is None or not is_evaluation(granted.unit.id):
            return None
        return b"" if self._training.parameters.elsewhere else round_.payload  # fetched, then

    async def _fetch(self, ask: Fetch) -> None:
        self._worked_at = self._desk.clock()
        if self._training.parameters.elsewhere:
            self._answer(self._send_evaluated(ask))
            return
        if not self._training.may_fetch(self.account):
            raise MessageError("There is nothing to fetch for: no unit, or all its fetches made.")
        if self._desk.gate is None:
            await self._send_fresh(ask, None)
        else:
            self._answer(self._fresh_in_turn(ask))

    async def _send_evaluated(self, ask: Fetch) -> None:
        """Where parameters lie elsewhere, only what is evaluated is fetched here."""
        course = self._training.course
        round_ = course.evaluation.round
        if not self.account.own:
            raise MessageError("Parameters are fetched from their servers.")
        # Without a round we have gone back meanwhile: any will do, nobody waits for the result.
        payload = round_.payload if round_ is not None else as_bytes(course.best_vector)
        base = round_.version if round_ is not None else self._training.parameters.version
        await self.connection.send(Fresh(ticket=ask.ticket, base=base), payload)

    async def _fresh_in_turn(self, ask: Fetch) -> None:
        self._fetches += 1
        try:
            place = await self._enter(None)  # it is in the middle of a unit: it cannot do without
        finally:
            self._fetches -= 1
        try:
            await self._send_fresh(ask, place)
        finally:
            self._leave(place)

    async def _send_fresh(self, ask: Fetch, place: Place | None) -> None:
        async with self._training.parameters.published() as snapshot:
            fresh = Fresh(ticket=ask.ticket, base=snapshot.version)
            await self._send(fresh, snapshot.payload, place)

    async def _send(self, message: Message, payload: Payload, place: Place | None) -> None:
        gate = self._desk.gate
        if place is None or gate is None or not len(payload):
            await self.connection.send(message, payload)
            return
        place.begin(self._desk.clock(), self._moved(comes=False), comes=False)
        await self.connection.send(message, payload)
        gate.moved(place)

    # -- data ---------------------------------------------------------------------------------

    def _want(self, wanted: ChunkHash) -> None:
        self._worked_at = self._desk.clock()
        if wanted not in self._desk.blobs:
            raise MessageError(f"There are no bytes with the hash {wanted[:12]}… in this job.")
        if len(self._wanted) >= MAX_BLOBS:
            raise MessageError(f"{MAX_BLOBS} chunks were asked for and not sent yet.")
        self._wanted.append(wanted)
        if self._sending is None or self._sending.done():
            blobs = self._send_blobs()
            self._sending = asyncio.create_task(self._guarded(blobs))
            self._sending.add_done_callback(lambda _: blobs.close())

    async def _send_blobs(self) -> None:
        while self._wanted:
            if not await self.send_chunk(self._wanted.popleft()):
                return

    async def send_chunk(self, name: ChunkHash) -> bool:
        """Whether it could be read. Raises PeerError."""
        try:
            found = await read(self._desk.blobs, name)
        except DataError as error:
            self._training.state.data_warning = f"Some of the data is lost: {error.message}"
            logger.error("%s", error)
            self.connection.refuse(LOST)
            return False
        await self.connection.send(Blob(hash=name), found)
        if self._desk.spread is not None and not self.account.own:
            self._desk.spread.sent(name, len(found))
        return True


def _wait(ask: Exchange, reason: str, verdict: str) -> Wait:
    return Wait(ticket=ask.ticket, reason=reason, seconds=ASK_AGAIN_S, verdict=verdict)
