"""What host and server have to say to each other, sent in order by a task of its own.

Whoever decides must not wait for a link; what it says waits here instead.
"""

from __future__ import annotations

import asyncio
from collections import deque

from crowdgrad.errors import PeerError
from crowdgrad.net.messages import Message
from crowdgrad.net.transport.base import Connection, Payload


class Words:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[tuple[Message, Payload]] = deque()
        self._more = asyncio.Event()

    def say(self, message: Message, payload: Payload = b"") -> None:
        self._waiting.append((message, payload))
        self._more.set()

    def clear(self) -> None:
        """Nothing of it is said any more."""
        self._waiting.clear()

    async def speak(self) -> None:
        """Until the connection ends: whoever listens on it hears why."""
        try:
            while True:
                while self._waiting:
                    await self._connection.send(*self._waiting.popleft())
                self._more.clear()
                await self._more.wait()
        except PeerError:
            return
