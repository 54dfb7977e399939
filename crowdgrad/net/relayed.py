"""A host at a relay: one connection that is kept, and a new one for everybody who calls.

The sockets are the owner's: here is when to dial, what to say first, and why it is not connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from crowdgrad.domain.routes import Route
from crowdgrad.errors import CrowdgradError, MessageError, Replaced
from crowdgrad.net.heartbeat import keep_alive
from crowdgrad.net.identity import Identity
from crowdgrad.net.messages import Problem, RelayKnock, expect
from crowdgrad.net.relaying import Answering, Serving, at_of
from crowdgrad.net.retry import delay_s
from crowdgrad.net.transport.base import Connection, lost
from crowdgrad.net.transport.layers import Layer

MOST_ANSWERING = 256
"""Calls that are being answered at once; a relay that knocks more often is not listened to."""
STEADY_S = 30.0
"""Whoever stayed connected for so long begins anew with short pauses."""
REPLACED_S = 15.0
"""Two with one key at one relay would throw each other out for ever: not more often than this."""
CAP_S = 10.0

logger = logging.getLogger(__name__)


class AtRelay:
    def __init__(
        self,
        route: Route,
        key: Identity,
        *,
        open_control: Callable[[Layer], Awaitable[Connection]],
        open_answer: Callable[[Layer], Awaitable[None]],
        random01: Callable[[], float],
        on_change: Callable[[], None] = lambda: None,
        job: str = "",
    ) -> None:
        """`open_control`: dial the relay through this layer; returns once it is ready. Raises
        CrowdgradError. `open_answer`: the same, and have whoever is there served. `on_change`:
        `connected` or `failure` is another now."""
        self.route = route
        self.connected = False
        self.relay = ""
        """Who the relay is, as it says; empty: it has not said so."""
        self.failure: CrowdgradError | None = None
        """Why it is not, the last time it was tried."""
        self._key, self._job = key, job
        self._open_control, self._open_answer = open_control, open_answer
        self._random01, self._on_change = random01, on_change
        self._answers: set[asyncio.Task[None]] = set()
        self._control: Connection | None = None

    def come_anew(self) -> None:
        """Leave this connection and open another: from where we were nobody hears us."""
        if self._control is not None:
            self._control.close(lost(self._control.peer, "This machine has moved"))

    async def run(self) -> None:
        """Until it is cancelled."""
        loop, attempt = asyncio.get_running_loop(), 0
        try:
            while True:
                began = loop.time()
                try:
                    await self._serve()
                except CrowdgradError as error:
                    self._changed(False, error)
                attempt = 0 if loop.time() - began > STEADY_S else attempt + 1
                pause_s = delay_s(attempt, self._random01(), cap_s=CAP_S)
                if isinstance(self.failure, Replaced):
                    pause_s += REPLACED_S
                await asyncio.sleep(pause_s)
        finally:
            self.connected = False
            for task in self._answers:
                task.cancel()

    async def _serve(self) -> None:
        """Raises CrowdgradError, always: a relay that ends is one."""
        layer = Serving(self._key, at=at_of(self.route), job=self._job)
        connection = self._control = await self._open_control(layer)
        try:
            granted = layer.registered
            assert granted is not None, "its layer is not ready"
            self.relay = granted.relay
            self._changed(True, None)
            beating = asyncio.create_task(
                keep_alive(connection, beat_s=granted.heartbeat_s, silence_s=granted.silence_s)
            )
            try:
                while True:
                    self._hear((await connection.receive())[0])
            finally:
                beating.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await beating
        finally:
            self._control = None
            connection.close()

    def _hear(self, message: object) -> None:
        if isinstance(message, Problem):
            expect(message, RelayKnock)  # raises what it says
        if not isinstance(message, RelayKnock):
            raise MessageError(f"A relay says {type(message).__name__} out of place.")
        if len(self._answers) >= MOST_ANSWERING:
            logger.info("%s: a call is not answered, %d are", self.route, len(self._answers))
            return
        task = asyncio.create_task(self._answer(message.ticket))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, ticket: bytes) -> None:
        try:
            await self._open_answer(Answering(ticket))
        except CrowdgradError as error:  # the caller has gone, or the relay: nothing to be done
            logger.info("%s: a call came to nothing: %s", self.route, error)

    def _changed(self, connected: bool, failure: CrowdgradError | None) -> None:
        before = (self.connected, self.failure)
        self.connected, self.failure = connected, failure
        if (connected, str(failure)) != (before[0], str(before[1])):
            if failure is not None:
                logger.info("%s: %s", self.route, failure)
            self._on_change()
