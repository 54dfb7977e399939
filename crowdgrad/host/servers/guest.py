"""One volunteer's connection to a server: pushes in, parameters out.

A push is read into a buffer of its own, looked at and staged; the host is told, and its answer goes
out when the host has decided. A volunteer that pushes more than its lanes can have under way is not
read any further until the host has decided about what it pushed before. There are no places here,
as at a host's gate: who held one at one server while waiting for another could wait for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import FrameError, MessageError, PeerError
from crowdgrad.host.servers.holder import NOTHING, Holder
from crowdgrad.net.messages import Message, Pulled, Push, Staged
from crowdgrad.net.transport.base import Connection

logger = logging.getLogger(__name__)

QUESTIONS = 2
"""Of one lane: its next may come before we know that it has the answer to its last."""


class Guest:
    def __init__(
        self,
        connection: Connection,
        who: VolunteerId,
        holder: Holder,
        tell: Callable[[Staged], None],
        admission: int,
    ) -> None:
        """`tell`: the host."""
        self.admission = admission
        self.connection = connection
        self.who = who
        self._holder = holder
        self._tell = tell
        self._answers: set[asyncio.Task[None]] = set()
        self._lanes = holder.equip.local.overlap + 1
        self._turns = asyncio.Semaphore(self._lanes)
        """Of its answers: each keeps a copy of the parameters from changing."""
        self._arriving = 0
        """Pushes whose buffer is taken and that are not staged yet."""
        self._owed = False
        """A push waits for room."""
        connection.set_sink(self._sink)

    async def converse(self) -> None:
        """Until it goes. Raises PeerError."""
        while True:
            message, payload = await self.connection.receive()
            if not isinstance(message, Push):
                raise MessageError(f"A volunteer does not say {type(message).__name__} here.")
            if message.lane >= self._lanes:
                raise MessageError(f"A push from lane {message.lane}; there are {self._lanes}.")
            if message.unit is None:
                self.answer(message)
            else:
                await self._stage(message, payload)

    async def end(self) -> None:
        """Nothing is sent after it."""
        tasks = list(self._answers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._holder.pool.forget(self._arriving)
        self._arriving = 0

    # -- pushes -------------------------------------------------------------------------------

    def _sink(self, message: Message, length: int) -> memoryview | None:
        expected = self._holder.parameters.update_bytes
        if not isinstance(message, Push) or message.unit is None or length != expected:
            raise FrameError(
                f"A {type(message).__name__} came with {length} bytes; {expected} were expected.",
                advice="Update crowdgrad on the volunteer.",
            )
        if self._has_room():
            return self._take_room()
        self._owed = True
        return None

    def _has_room(self) -> bool:
        under_way = self._arriving + self._holder.staged_by(self.who)
        return under_way <= self._holder.equip.local.overlap

    def _take_room(self) -> memoryview:
        self._arriving += 1
        return self._holder.pool.take(self._holder.parameters.update_bytes)

    def make_room(self) -> None:
        """Something was decided: what waits for room may come."""
        if self._owed and self._has_room():
            self._owed = False
            self.connection.make_room(self._take_room())

    async def _stage(self, push: Push, payload: memoryview) -> None:
        if not len(payload):
            raise MessageError("An update was pushed without its bytes.")
        staged = await self._holder.stage(self, self.who, push, payload, self.admission)
        self._arriving -= 1
        if staged is not None:
            self._tell(staged)
        else:
            self.make_room()
            self.answer(push)

    # -- answers ------------------------------------------------------------------------------

    def answer(self, push: Push) -> None:
        """Send what a push asked for, from a task of its own. Raises MessageError."""
        if len(self._answers) >= QUESTIONS * self._lanes:
            raise MessageError(f"{len(self._answers)} questions wait for their answers already.")
        task = asyncio.create_task(self._guarded(push))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _guarded(self, push: Push) -> None:
        try:
            async with self._turns, self._holder.published(self.who, push) as snapshot:
                pulled = Pulled(base=snapshot.version, ticket=push.ticket)
                await self.connection.send(pulled, snapshot.payload if push.wants else NOTHING)
        except PeerError:
            return  # whoever listens on this connection hears of it
        except Exception:
            logger.exception("%s: no answer could be given", self.connection.peer)
            self.connection.refuse(
                PeerError("Something went wrong here.", advice="Try again later.")
            )
