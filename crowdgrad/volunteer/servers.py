"""The servers that keep a job's parameters, where its host does not keep them itself.

The host still leases, judges and counts; the numbers go to and come from the servers, each its own
part, straight out of and into the slot. An update leaves for all of them at the moment its
`Exchange` leaves for the host, and each answers with its newest part once the host has decided.
Where there was no update to send, or what comes with the verdict is not what the next unit starts
from (in rounds, or when the host has gone back), parameters are asked for once a unit is granted.

A server that is lost loses the conversation: the volunteer comes back, as it does to a host.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.routes import Whereabouts, at
from crowdgrad.domain.work import UnitId, Update, Version
from crowdgrad.errors import (
    ConnectionLost,
    CrowdgradError,
    FrameError,
    PeerError,
    Unreachable,
    VersionMismatch,
)
from crowdgrad.net import handshake
from crowdgrad.net.heartbeat import keep_alive
from crowdgrad.net.messages import (
    CHALLENGE_BYTES,
    Admit,
    Enter,
    Entered,
    Exchange,
    Grant,
    Message,
    Problem,
    Pulled,
    Push,
    expect,
    told,
)
from crowdgrad.net.neighbourhood import check_neighbourhood
from crowdgrad.net.resolve import addresses
from crowdgrad.net.transport.base import Connection, Payload
from crowdgrad.volunteer.conversation import NO_ROOM, Answer, Conversation, Reach
from crowdgrad.volunteer.parts import WHAT, Part, machine_of
from crowdgrad.volunteer.questions import Questions

A = TypeVar("A")
Connect = Callable[[Whereabouts], Awaitable[Connection]]
Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a name. Raises Unreachable."""
Bases = tuple[Version | None, ...]
"""By server: of which version its part was that a lane works from."""
DIAL_S = 20.0
"""How long it may take until all servers have let us in."""


class Link:
    """One connection to a server: pushes out, parameters in."""

    def __init__(self, connection: Connection, part: Part) -> None:
        self.connection = connection
        self.part = part
        self._pushes: Questions[memoryview, Pulled] = Questions(NO_ROOM, itertools.count(1))
        self._wanted: set[int] = set()
        """Tickets whose parameters have not come yet."""

    async def enter(self, volunteer: Volunteer) -> None:
        """Raises PeerError. Who does not speak as we do hears nothing of the host's choosing."""
        challenge = secrets.token_bytes(CHALLENGE_BYTES)
        await handshake.greet(self.connection, volunteer.software, challenge, self.part.key)
        token, admission = self.part.token, self.part.admission
        await self.connection.send(Enter(volunteer=volunteer.id, token=token, admission=admission))
        expect(await handshake.hear(self.connection), Entered)
        self.connection.set_sink(self._sink)

    async def run(self, *, beat_s: float, silence_s: float) -> None:
        """Listen for as long as there is somebody. Raises PeerError when it ends."""
        beats = asyncio.create_task(keep_alive(self.connection, beat_s=beat_s, silence_s=silence_s))
        try:
            while True:
                self._route(*await self.connection.receive())
        except CrowdgradError as error:
            self._pushes.fail(error)
            raise
        finally:
            beats.cancel()
            self._pushes.fail(ConnectionLost("The conversation is over."))

    async def push(self, push: Push, update: Payload, state: memoryview) -> Pulled:
        """`update`, `state`: all the bytes of them; this server's part goes out and comes in."""
        ticket, pulled = self._pushes.ask(state[self.part.state] if push.wants else NO_ROOM)
        if push.wants:
            self._wanted.add(ticket)
        payload = memoryview(update)[self.part.update]
        await self.connection.send(msgspec.structs.replace(push, ticket=ticket), payload)
        return await pulled

    def _sink(self, message: Message, length: int) -> memoryview:
        if isinstance(message, Pulled):
            into = self._pushes.room(message.ticket)
            if len(into) == length:
                self._wanted.discard(message.ticket)
                return into
        raise FrameError(
            f"A {type(message).__name__} came with {length} unexpected bytes from "
            f"{self.part.address}."
        )

    def _route(self, message: Message, payload: memoryview) -> None:
        if isinstance(message, Pulled):
            if not payload and message.ticket in self._wanted:
                raise FrameError(f"{self.part.address} answered without its parameters.")
            self._pushes.answer(message.ticket, message)
        elif isinstance(message, Problem):  # only the host can say that we are not wanted
            raise ConnectionLost(f"{self.part.address} has let us go: {told(message).message}")
        else:
            raise FrameError(f"A server does not say {type(message).__name__}.")


class Servers:
    """All of them, while one connection to the host lasts."""

    def __init__(
        self,
        host: Conversation,
        links: Sequence[Link],
        *,
        units_per_fetch: int,
        in_step: bool,
        bases: dict[int, Bases],
    ) -> None:
        """`in_step`: units start from exactly their base. `bases`: by lane, the caller's: an update
        may go out on the next connection only."""
        self.host = host
        self.units_per_fetch = units_per_fetch
        self.in_step = in_step
        self.bases = bases
        self._links = links

    def lane(self, number: int) -> Reach:
        return _Lane(self, number)

    async def push(self, push: Push, update: Payload, state: memoryview, bases: Bases) -> Bases:
        """Push to all and wait for all; of which versions their parts are."""
        if len(bases) != len(self._links):  # there were others when the unit was begun
            bases = (None,) * len(self._links)
        pulled = await _all(
            link.push(msgspec.structs.replace(push, base=base), update, state)
            for link, base in zip(self._links, bases, strict=True)
        )
        return tuple(answer.base for answer in pulled)


class _Lane:
    """A `Reach` of one lane."""

    def __init__(self, servers: Servers, number: int) -> None:
        self._servers = servers
        self._host = servers.host
        self._number = number

    async def exchange(
        self, ask: Exchange, payload: Payload, into: memoryview, whole: memoryview
    ) -> Answer:
        bases: Bases = ()
        if ask.update is not None and len(payload):
            answer, bases = await self._bring(ask, ask.update, payload, into)
        else:  # until there is a unit, parameters would be of no use
            answer = await self._host.exchange(ask, b"", NO_ROOM)
        if not isinstance(answer, Grant):
            return answer
        if answer.unit.kind != "train":
            await self._host.fetch(whole)
        elif answer.link == 0:
            if not bases or _behind(bases, answer.base):
                bases = await self._pull(into, answer.base)
            self._servers.bases[self._number] = bases
        return answer

    async def fetch(self, into: memoryview) -> object:
        return await self._servers.push(Push(lane=self._number), b"", into, ())

    async def get(self, wanted: ChunkHash, size: int) -> bytes:
        return await self._host.get(wanted, size)

    async def give_back(self, unit: UnitId, reason: str, *, rests: bool = False) -> None:
        await self._host.give_back(unit, reason, rests=rests)

    def _wants(self, update: Update) -> bool:
        """Whether what comes with the verdict on an update is of use: not in rounds, which end
        later, nor where the replica goes on from its own weights if the update is accepted."""
        goes_on = update.link + 1 < self._servers.units_per_fetch
        return not (goes_on or self._servers.in_step)

    async def _bring(
        self, ask: Exchange, update: Update, payload: Payload, into: memoryview
    ) -> tuple[Answer, Bases]:
        """The host's answer, and of which versions the parameters are that came, if they did."""
        wants = self._wants(update)
        push = Push(
            unit=update.unit,
            granted=update.base,
            lane=self._number,
            link=update.link,
            wants=wants,
        )
        bases = self._servers.bases.get(self._number, ())
        asking = asyncio.create_task(self._host.exchange(ask, b"", NO_ROOM))
        try:
            pulled = await self._servers.push(push, payload, into, bases)
            return await asking, pulled if wants else ()
        finally:
            asking.cancel()

    async def _pull(self, into: memoryview, granted: Version) -> Bases:
        """The parameters, no older than what a unit starts from.

        Raises ConnectionLost where a server has not gone back with its host.
        """
        push = Push(lane=self._number, since=granted)
        bases = await self._servers.push(push, b"", into, ())
        if _behind(bases, granted):
            raise ConnectionLost(
                f"The host is at version {granted}, its servers at "
                f"{', '.join(str(base) for base in bases)}.",
                advice="A server may have been started again; it is tried again soon.",
            )
        return bases


def _behind(bases: Bases, granted: Version) -> bool:
    """Whether the host has gone back since. Counts are not compared: copies have their own."""
    return any(base is None or base.incarnation < granted.incarnation for base in bases)


@asynccontextmanager
async def reached(
    host: Conversation,
    admit: Admit,
    parts: Sequence[Part],
    volunteer: Volunteer,
    *,
    connect: Connect,
    resolve: Resolve = addresses,
    bases: dict[int, Bases],
) -> AsyncIterator[Callable[[int], Reach]]:
    """What each lane talks to: the host alone, or the servers beside it.

    Whoever is inside is cancelled when a server is lost, and hears of it as an exception group.
    """
    if not parts:
        yield lambda lane: host
        return
    near = machine_of(host.connection.peer)
    links = await dial(parts, volunteer, connect=connect, resolve=resolve, host=near)
    servers = Servers(
        host,
        links,
        units_per_fetch=admit.job.local.units_per_fetch,
        in_step=admit.in_step,
        bases=bases,
    )
    try:
        async with asyncio.TaskGroup() as group:
            beats = {"beat_s": admit.heartbeat_s, "silence_s": admit.silence_s}
            listening = [group.create_task(link.run(**beats)) for link in links]
            yield servers.lane
            for task in listening:
                task.cancel()
    finally:
        for link in links:
            link.connection.close()


async def dial(
    parts: Sequence[Part], volunteer: Volunteer, *, connect: Connect, resolve: Resolve, host: str
) -> list[Link]:
    """Enter at all of them, in a bounded time. Raises PeerError, NotDialled."""

    async def reach(part: Part) -> Connection:
        return await _reach(part, connect, resolve, host)

    links: list[Link] = []
    try:
        async with asyncio.timeout(DIAL_S):
            await _all(_enter(part, volunteer, reach, links) for part in parts)
    except BaseException as error:
        for link in links:
            link.connection.close()
        if isinstance(error, TimeoutError):
            raise ConnectionLost(
                f"The job's {len(parts)} servers have not all answered within {DIAL_S:g} s."
            ) from None
        raise
    return sorted(links, key=lambda link: link.part.state.start)


async def _reach(part: Part, connect: Connect, resolve: Resolve, host: str) -> Connection:
    """Dial an address that was looked at: a name could stand for another the next time.

    Raises Unreachable, NotDialled.
    """
    found = await resolve(part.host)
    for address in found:
        check_neighbourhood(address, host=host, what=WHAT)
    for address in found[:-1]:
        with contextlib.suppress(Unreachable):
            return await connect(at(address, part.port, part.key))
    return await connect(at(found[-1], part.port, part.key))


async def _enter(
    part: Part,
    volunteer: Volunteer,
    reach: Callable[[Part], Awaitable[Connection]],
    links: list[Link],
) -> None:
    try:
        link = Link(await reach(part), part)
    except Unreachable as error:
        raise _not_in(part, error) from None
    links.append(link)
    try:
        await link.enter(volunteer)
    except VersionMismatch:
        raise
    except PeerError as error:  # perhaps it was just started again and does not know us yet
        raise _not_in(part, error) from None


def _not_in(part: Part, error: CrowdgradError) -> ConnectionLost:
    """It is the host's word that we are welcome: so this is no reason to leave the job."""
    return ConnectionLost(
        f"The job's server at {part.address} does not let us in: {error.message}",
        advice=error.advice,
    )


async def _all(doing: Iterable[Coroutine[Any, Any, A]]) -> list[A]:
    """All at once; when one fails, the others are ended."""
    tasks = [asyncio.create_task(one) for one in doing]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
