"""What is to be said on a connection, said in order by a task of its own.

Whoever has something to say never waits: a large chunk may be on its way on the same connection.
News of chunks that came and went is put together meanwhile and said once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from crowdgrad.errors import PeerError
from crowdgrad.net.messages import MAX_CHUNKS_NAMED, Message
from crowdgrad.net.transport.base import Connection

MOST_WAITING = 4096
"""Messages that may wait: asks are bounded, so nobody in its right mind has as many."""
News = Callable[[tuple[int, ...], tuple[int, ...]], Message]


class Outbox:
    def __init__(self, connection: Connection, news: News) -> None:
        """`news`: how chunks that came and went are said."""
        self._connection = connection
        self._news = news
        self._waiting: deque[Message] = deque()
        self._changed: dict[int, bool] = {}
        """Chunks of which is to be told: whether they are here."""
        self._more = asyncio.Event()

    def say(self, message: Message) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._connection.close(PeerError("It does not hear what it is told."))
            return
        self._waiting.append(message)
        self._more.set()

    def tell(self, numbers: Sequence[int], *, here: bool) -> None:
        self._changed.update(dict.fromkeys(numbers, here))
        self._more.set()

    async def run(self) -> None:
        """Raises PeerError when the connection ends."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting or self._changed:
                if self._changed:
                    self._waiting.appendleft(self._take_news())
                await self._connection.send(self._waiting.popleft())

    def _take_news(self) -> Message:
        some = list(self._changed)[:MAX_CHUNKS_NAMED]
        found = {number: self._changed.pop(number) for number in some}
        here = tuple(number for number, is_here in found.items() if is_here)
        gone = tuple(number for number, is_here in found.items() if not is_here)
        return self._news(here, gone)
