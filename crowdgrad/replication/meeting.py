"""Meeting other volunteers: dialling those the host names, and answering those who dial us.

Of two neighbours the host tells one where to dial the other; the other is told to expect it. Both
prove their keys. Nobody is answered whom our host has not named for this job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from crowdgrad.domain.job import JobId
from crowdgrad.domain.routes import Route, Whereabouts, route_of
from crowdgrad.domain.spreading import Neighbour
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CrowdgradError, PeerError, TurnedAway
from crowdgrad.net.identity import Identity
from crowdgrad.net.messages import Met
from crowdgrad.net.retry import delay_s
from crowdgrad.net.transport.base import Connection
from crowdgrad.replication import peer as peers
from crowdgrad.replication.peer import Peer
from crowdgrad.replication.sharing import Sharer

DIAL_S = 15.0
HEARD_OF_S = 5.0
"""How long whoever dials us waits until our host has told us of it."""
RETRY_CAP_S = 20.0
Connect = Callable[[Whereabouts], Awaitable[Connection]]
Allowed = Callable[[Route], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Whom others meet here."""

    key: Identity
    job: JobId
    software: str
    beat_s: float
    silence_s: float


class Meeting:
    def __init__(
        self,
        sharer: Sharer,
        who: Who,
        *,
        connect: Connect,
        random01: Callable[[], float],
        allowed: Allowed = lambda route: True,
    ) -> None:
        """`allowed`: whether a stranger may make us dial there."""
        self._sharer = sharer
        self._who = who
        self._connect = connect
        self._random01 = random01
        self._allowed = allowed
        self._dialling: dict[VolunteerId, tuple[Neighbour, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        self._news = asyncio.Condition()
        self._answering: set[asyncio.Task[None]] = set()
        sharer.changed = self._changed.set

    async def run(self) -> None:
        """Meet whom the host names, until cancelled."""
        try:
            while True:
                self._arrange()
                async with self._news:
                    self._news.notify_all()
                await self._changed.wait()
                self._changed.clear()
        finally:
            tasks = [*(task for _, task in self._dialling.values()), *self._answering]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _arrange(self) -> None:
        named = {n.id: n for n in self._sharer.neighbours.neighbours if n.routes}
        for who, (before, task) in list(self._dialling.items()):
            if named.get(who) != before:
                task.cancel()
                del self._dialling[who]
        for who, neighbour in named.items():
            if who not in self._dialling:
                self._dialling[who] = neighbour, asyncio.create_task(self._seek(neighbour))

    async def _seek(self, neighbour: Neighbour) -> None:
        """Dial it, again and again, for as long as it is a neighbour."""
        routes = tuple(r for r in map(route_of, neighbour.routes) if self._allowed(r))
        attempt = 0
        while routes:
            try:
                peer = await self._dial(neighbour, routes)
                attempt = 0
                await self._exchange(peer)
            except CrowdgradError:  # a neighbour more or less: others have what it has
                attempt += 1
            await asyncio.sleep(delay_s(attempt, self._random01(), cap_s=RETRY_CAP_S))

    async def _dial(self, neighbour: Neighbour, routes: tuple[Route, ...]) -> Peer:
        connection = await self._connect(Whereabouts(routes=routes, key=neighbour.id))
        try:
            async with asyncio.timeout(DIAL_S):
                await peers.dial(
                    connection,
                    self._who.key,
                    self._who.job,
                    software=self._who.software,
                    pin=neighbour.id,
                )
        except TimeoutError:
            connection.close()
            raise PeerError("It does not answer.") from None
        except BaseException:
            connection.close()
            raise
        return Peer(neighbour.position, connection, self._sharer)

    async def answer(self, connection: Connection) -> None:
        """Somebody has dialled us. Raises PeerError."""
        who, job = await peers.answer(connection, self._who.key, software=self._who.software)
        position = await self._position_of(who) if job == self._who.job else None
        if position is None:
            error = TurnedAway("Our host has not named you.", advice="Ask another volunteer.")
            connection.refuse(error)
            raise error
        await connection.send(Met())
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            await self._exchange(Peer(position, connection, self._sharer))
        finally:
            self._answering.discard(task)

    async def _position_of(self, who: VolunteerId) -> int | None:
        """Its place, once the host has told us of it; None where it does not."""

        def found() -> int | None:
            named = self._sharer.neighbours.neighbours
            return next((n.position for n in named if n.id == who), None)

        try:
            async with asyncio.timeout(HEARD_OF_S), self._news:
                while (position := found()) is None:
                    await self._news.wait()
                return position
        except TimeoutError:
            return None

    async def _exchange(self, peer: Peer) -> None:
        """Raises PeerError when it ends."""
        self._sharer.join(peer)
        try:
            await peer.run(beat_s=self._who.beat_s, silence_s=self._who.silence_s)
        finally:
            self._sharer.leave(peer)
