"""What a volunteer tells its host of data: what it holds, what it wants, what came from whom.

News is put together for a moment and said once. How many chunks the host may send is a running
total that only grows: what was granted may be on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from crowdgrad.domain.spreading import Flow
from crowdgrad.errors import PeerError
from crowdgrad.net.messages import Feed, Holds, Message
from crowdgrad.net.transport.base import Connection
from crowdgrad.planner.replication.plans import HOST, Node
from crowdgrad.replication.outbox import Outbox

REPORT_S = 0.25
FED_AHEAD, FED_ALONE = 2, 4
"""Chunks that may be under way from the host, with others to exchange with and without."""
MOST_URGENT = 256
"""Chunks that units wait for of which the host is told at once."""


class HostLink:
    def __init__(self, connection: Connection) -> None:
        self._outbox = Outbox(connection, self._holds)
        self._fed = 0
        """Chunks that have come, of the host's own choosing."""
        self._said = Feed(until=0)
        self._said_wants = b""
        self._news: dict[int, bool] = {}
        """Chunks of which is to be told: whether they are here."""
        self._flows: dict[Node, Flow] = {}

    def say(self, message: Message) -> None:
        self._outbox.say(message)

    async def run(self) -> None:
        """Until cancelled, or the connection ends."""
        reporting = asyncio.create_task(self._report())
        try:
            await self._outbox.run()
        except PeerError:
            return  # whoever listens to the host hears of it
        finally:
            reporting.cancel()

    def begins(self) -> bool:
        """A chunk of the host's own choosing comes; whether it may."""
        if self._fed >= self._said.until:
            return False
        self._fed += 1
        return True

    def feed(self, wants: bytes, urgent: Iterable[int], *, lacks: bool, alone: bool) -> None:
        """What we want and how much of it may come, said where that has changed."""
        until = self._said.until
        if lacks:
            until = max(until, self._fed + (FED_ALONE if alone else FED_AHEAD))
        waits = tuple(sorted(urgent))[:MOST_URGENT]
        feed = Feed(until=until, wants=None if wants == self._said_wants else wants, urgent=waits)
        if feed != self._said:
            self._outbox.say(feed)
            self._said = Feed(until=until, urgent=waits)  # as it would be said if all stays so
            self._said_wants = wants

    def tell(self, numbers: Iterable[int], *, here: bool) -> None:
        """Chunks that came, or went, soon."""
        self._news.update(dict.fromkeys(numbers, here))

    def flow(self, node: Node, *, received: int = 0, wasted: int = 0, bad: int = 0) -> None:
        if node < HOST:
            return  # mirrors are no members
        before = self._flows.get(node, Flow(position=node))
        self._flows[node] = replace(
            before,
            received=before.received + received,
            wasted=before.wasted + wasted,
            bad=before.bad + bad,
        )

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            if self._flows and not self._news:
                self._outbox.say(self._holds((), ()))
            elif self._news:
                news, self._news = self._news, {}
                self._outbox.tell([n for n, is_here in news.items() if is_here], here=True)
                self._outbox.tell([n for n, is_here in news.items() if not is_here], here=False)

    def _holds(self, here: tuple[int, ...], gone: tuple[int, ...]) -> Holds:
        flows, self._flows = tuple(self._flows.values()), {}
        return Holds(chunks=here, lost=gone, flows=flows)
