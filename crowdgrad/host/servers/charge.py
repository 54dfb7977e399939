"""What a server does for the one host in charge of it: obey, in the order in which it is told.

The host's words are taken one after the other, each done before the next is looked at. What answers
them, and what volunteers are answered, is sent by others, so that nobody who reads slowly holds up
the changes. When the host's connection ends everything ends: the numbers are not worth keeping,
since the host goes on from a checkpoint.
"""

from __future__ import annotations

import asyncio
import logging

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import FrameError, MessageError, PeerError, Replaced, TurnedAway
from crowdgrad.host.allocation import room
from crowdgrad.host.servers.guest import Guest
from crowdgrad.host.servers.holder import NOTHING, Holder, Pushed
from crowdgrad.host.servers.words import Words
from crowdgrad.net.heartbeat import keep_alive
from crowdgrad.net.messages import (
    Apply,
    ApplyMerged,
    Dismiss,
    Equip,
    Equipped,
    GoBack,
    Merge,
    Message,
    Refuse,
    Save,
    Shift,
    expect,
)
from crowdgrad.net.transport.base import Connection
from crowdgrad.numerics.vectors import as_vector

logger = logging.getLogger(__name__)


class Charge:
    def __init__(self, connection: Connection, job: JobId) -> None:
        self.connection = connection
        self.job = job
        self._holder: Holder | None = None
        self._guests: dict[VolunteerId, Guest] = {}
        self._least: dict[VolunteerId, int] = {}
        """The first admission of each that is not over."""
        self._words = Words(connection)
        """What the host is to hear, in this order."""
        connection.set_sink(self._sink)

    @property
    def holder(self) -> Holder:
        """Raises MessageError where the host has not said what to hold."""
        if self._holder is None:
            raise MessageError("The host has not said what to hold here.")
        return self._holder

    async def run(self) -> None:
        """Until the host goes. Raises PeerError."""
        equip = expect((await self.connection.receive())[0], Equip)
        try:
            self._holder = Holder(equip)
        except ValueError as error:
            raise MessageError(f"That cannot be held: {error}.") from None
        self._say(Equipped())
        beats = asyncio.create_task(
            keep_alive(self.connection, beat_s=equip.heartbeat_s, silence_s=equip.silence_s)
        )
        speaking = asyncio.create_task(self._words.speak())
        try:
            while True:
                await self._obey(*await self.connection.receive())
        finally:
            beats.cancel()
            speaking.cancel()
            await asyncio.gather(beats, speaking, return_exceptions=True)
            self._dismiss()

    def replace(self) -> None:
        """Another host has come, or the same one again."""
        self.connection.refuse(Replaced("Another host has taken charge of this server."))

    def _dismiss(self) -> None:
        for guest in self._guests.values():
            guest.connection.refuse(
                PeerError("This server has lost its host.", advice="Join the host again.")
            )

    def _sink(self, message: Message, length: int) -> memoryview:
        expected = -1
        if isinstance(message, GoBack):
            expected = self.holder.go_back_bytes
        elif isinstance(message, Shift):
            expected = 4 * self.holder.layout.words
        if length != expected:
            raise FrameError(f"A {type(message).__name__} came with {length} bytes.")
        return room(length)

    # -- what the host says -------------------------------------------------------------------

    async def _obey(self, message: Message, payload: memoryview) -> None:
        holder = self.holder
        if isinstance(message, Apply | Refuse | Merge):
            pushed = await holder.decide(message)
            if pushed is not None:
                self._answer(pushed)
        elif isinstance(message, ApplyMerged):
            await holder.apply_merged(message)
        elif isinstance(message, Save):
            self._say(*await holder.save(message))
        elif isinstance(message, GoBack):
            if len(payload) != holder.go_back_bytes:
                raise MessageError("The host sent no numbers to go back to.")
            for pushed in await holder.go_back(message, payload):
                self._answer(pushed)
        elif isinstance(message, Shift) and len(payload):
            await holder.shift(as_vector(payload))
        elif isinstance(message, Dismiss):
            self._let_go(message)
        else:
            raise MessageError(f"A host does not say {type(message).__name__} to a server.")

    def _answer(self, pushed: Pushed) -> None:
        guest = self._guests.get(pushed.who)
        if guest is None:
            return  # it has gone meanwhile
        guest.make_room()
        if guest is not pushed.sender:
            return  # it has come back on another connection
        try:
            guest.answer(pushed.push)
        except MessageError as error:
            guest.connection.refuse(error)

    # -- what the host is told ----------------------------------------------------------------

    def _say(self, message: Message, payload: memoryview = NOTHING) -> None:
        self._words.say(message, payload)

    # -- volunteers ---------------------------------------------------------------------------

    def _admit(self, who: VolunteerId, admission: int) -> None:
        """Raises TurnedAway where the host has let it go since, or admitted it anew."""
        if admission < self._least.get(who, self.holder.equip.admission):
            raise TurnedAway("That admission is over.", advice="Join the host again.")
        self._least[who] = admission

    def _let_go(self, said: Dismiss) -> None:
        self._least[said.volunteer] = max(self._least.get(said.volunteer, 0), said.admission + 1)
        guest = self._guests.get(said.volunteer)
        if guest is not None and guest.admission <= said.admission:
            guest.connection.refuse(TurnedAway("That admission is over."))

    async def entertain(
        self, connection: Connection, who: VolunteerId, admission: int, entered: Message
    ) -> None:
        """One volunteer's connection, to its end. Raises PeerError."""
        holder = self.holder
        if not holder.ready:
            raise MessageError("There are no numbers here yet.", advice="Try again in a moment.")
        self._admit(who, admission)
        before = self._guests.pop(who, None)
        if before is not None:
            before.connection.refuse(TurnedAway("The same volunteer came on another connection."))
        guest = self._guests[who] = Guest(connection, who, holder, self._say, admission)
        beats = asyncio.create_task(
            keep_alive(
                connection, beat_s=holder.equip.heartbeat_s, silence_s=holder.equip.silence_s
            )
        )
        try:
            await connection.send(entered)
            await guest.converse()
        finally:
            beats.cancel()
            if self._guests.get(who) is guest:
                del self._guests[who]
                holder.gone(who)
            await guest.end()
