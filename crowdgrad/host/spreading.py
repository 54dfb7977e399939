"""The host's part in the spreading of its data: who exchanges with whom, and what it sends itself.

Members that take part say so (`Shares`), what they hold and what came from whom (`Holds`), and what
they want and have room for (`Feed`). What follows is decided by the `Crowd`; here it is said and
sent. Whoever says that others may dial it is dialled back once, where its connection comes from and
nowhere else. Members hear of each other's addresses only where one is to dial the other.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Protocol

import numpy as np

from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.domain.routes import MAX_ROUTES, spelled
from crowdgrad.domain.spreading import Neighbour, Share, Spreading, set_bytes
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CrowdgradError, PeerError
from crowdgrad.net.messages import Feed, Holds, Neighbours, Shares
from crowdgrad.net.transport.base import RELAYED, Connection
from crowdgrad.planner.replication.crowd import Crowd, Place
from crowdgrad.planner.replication.masks import Numbers
from crowdgrad.planner.replication.plans import HOST, Fed, Node
from crowdgrad.replication import PLANS
from crowdgrad.replication.numbering import Numbering
from crowdgrad.replication.uploading import Upload, Uploading

logger = logging.getLogger(__name__)

ARRANGE_S = 0.1
"""Members who come or go within so long are one change."""
LOOK_S = 0.5
"""How often it is looked whether members need other shards."""
Ranges = tuple[tuple[int, int], ...]
Knock = Callable[[str, int, str], Awaitable[bytes]]
"""Dial an address and see that a key answers. Raises CrowdgradError."""


class Guest(Protocol):
    """A member's connection."""

    connection: Connection

    @property
    def position(self) -> Node: ...

    @property
    def id(self) -> VolunteerId: ...

    async def send_chunk(self, name: ChunkHash) -> bool:
        """Whether it was sent. Raises PeerError."""
        ...


class Spread:
    def __init__(
        self,
        spreading: Spreading,
        manifest: Manifest,
        *,
        knock: Knock,
        clock: Callable[[], float],
        segments: Callable[[VolunteerId], Ranges] = lambda who: (),
    ) -> None:
        """`segments`: the shards that are a member's own, where members have such."""
        self.spreading = spreading
        self._manifest = manifest
        self._knock = knock
        self._clock = clock
        self._segments = segments
        self._numbering = Numbering(manifest)
        self._seed = secrets.randbits(64)
        self.crowd = Crowd(PLANS[spreading.plan], self._jitter(), whole=spreading.share == "full")
        self.sent_bytes = 0
        """Of the data, by this host itself."""
        self.reason = "nobody has asked for data yet"
        """Why it sends what it sends, or nothing."""
        self._guests: dict[Node, Guest] = {}
        self._shares: dict[Node, Shares] = {}
        self._told: dict[Node, Neighbours] = {}
        self._accused: set[Node] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._saying: dict[Node, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._moved: set[Node] = set()
        """Who came, or is reached otherwise, or is to have other shards, since all were told."""
        self._untold: set[Node] = set()
        """Who was still being told something else."""
        self._uploading = Uploading(self._choose, clock)

    @property
    def share(self) -> Share:
        return self.spreading.share

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each chunk, by number."""
        return self._numbering.sizes

    def grew(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._numbering.grow(manifest)
        self.crowd.grow(self._jitter())
        self._moved.update(self._guests)
        self._changed.set()

    def sent(self, name: ChunkHash, size: int) -> None:
        """A chunk has left this host, asked for by name or not."""
        if name in self._numbering.numbers:
            self.sent_bytes += size

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._uploading.run())
                group.create_task(self._arrange())
        finally:
            tasks = [*self._tasks, *self._saying.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- what members say -----------------------------------------------------------------------

    def hear(self, guest: Guest, message: Shares | Feed | Holds) -> None:
        now, node = self._clock(), guest.position
        if isinstance(message, Shares):
            self._enter(guest, message, now)
        elif node not in self._guests:
            return  # it has not said that it takes part
        elif isinstance(message, Feed):
            self.crowd.want(
                node, now, until=message.until, wants=message.wants, urgent=message.urgent
            )
            if message.urgent:
                self._say_to(self.crowd.bring_together(node))
        else:
            self.crowd.hold(
                node, now, chunks=message.chunks, lost=message.lost, whole=message.whole
            )
            self._accuse(node, self.crowd.flow(node, message.flows))
        self._uploading.wake()

    def leave(self, guest: Guest) -> None:
        node = guest.position
        if self._guests.get(node) is guest:
            del self._guests[node]
            self._told.pop(node, None)
            self._shares.pop(node, None)
            if node in self._saying:
                self._saying.pop(node).cancel()
            self.crowd.leave(node)
            self._changed.set()
            self._uploading.wake()

    def _enter(self, guest: Guest, shares: Shares, now: float) -> None:
        node = guest.position
        if node == HOST:
            return  # it is on the host's own machine
        before = self._guests.get(node)
        if before is not None and before is not guest:
            self.leave(before)
        known = before is guest and self._shares[node].port == shares.port
        self._guests[node], self._shares[node] = guest, shares
        network = _address(guest.connection)
        place = Place(
            listens=bool(shares.port),
            network=network or f"unknown, of member {node}",
            gives=shares.gives,
            dialled=known and self.crowd.place(node).dialled,
        )
        self.crowd.enter(node, place, now)
        self._moved.add(node)
        self._changed.set()
        if shares.port and network and not known:
            task = asyncio.create_task(self._dial_back(guest, network, shares.port, place))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _dial_back(self, guest: Guest, address: str, port: int, place: Place) -> None:
        try:
            await self._knock(address, port, guest.id)
        except CrowdgradError as error:
            logger.info("others cannot dial member %d: %s", guest.position, error.message)
            return
        if self._guests.get(guest.position) is guest:
            gives = self._shares[guest.position].gives
            self.crowd.enter(
                guest.position, replace(place, dialled=True, gives=gives), self._clock()
            )
            self._moved.add(guest.position)
            self._changed.set()

    def _accuse(self, by: Node, accused: list[Node]) -> None:
        for node in accused:
            self._changed.set()  # the two are not joined any more
            if self.crowd.trusted(node) or node in self._accused:
                continue
            self._accused.add(node)
            logger.warning(
                "member %d passes wrong bytes on, by the word of %d others: nobody is sent to it "
                "for data any more", node, self.crowd.accusers(node),
            )  # fmt: skip

    # -- who with whom --------------------------------------------------------------------------

    async def _arrange(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
                await asyncio.sleep(ARRANGE_S)
                self._changed.clear()
                self._note_needs()
                changed = set(self.crowd.arrange()) | self._moved
                for node in self._moved & self.crowd.links.keys():
                    changed.update(self.crowd.links[node].neighbours)
                self._moved.clear()
                self._uploading.wake()
            except TimeoutError:
                # Segments may have become others; who did not listen yet is told now.
                changed = set(self._guests) if self.share == "segments" else self._untold
            self._say_to(changed)

    def _note_needs(self) -> None:
        """What is a member's own, for what passes through those above it."""
        if self.share == "segments":
            for node in self._guests:
                numbers: list[int] = []
                for first, stop in self._shards(node, ()):
                    for shard in range(first, stop):
                        numbers += self._numbering.of_shard(shard)
                self.crowd.need(node, set_bytes(numbers))

    def _say_to(self, nodes: Iterable[Node]) -> None:
        """Tell those whose links, or whose shards, are others now."""
        for node in tuple(nodes):
            self._untold.discard(node)
            guest, links = self._guests.get(node), self.crowd.links.get(node)
            if guest is None or links is None:
                continue
            news = Neighbours(
                neighbours=tuple(
                    self._neighbour(node, other)
                    for other in links.neighbours
                    if other in self._guests
                ),
                source=links.source,
                order=links.order,
                shards=self._shards(node, links.below),
            )
            if news == self._told.get(node):
                continue
            saying = self._saying.get(node)
            if saying is not None and not saying.done():
                self._untold.add(node)
                continue
            self._told[node] = news
            self._saying[node] = asyncio.create_task(self._say(guest, news))

    async def _say(self, guest: Guest, news: Neighbours) -> None:
        try:
            await guest.connection.send(news)
        except PeerError:
            return  # it has gone

    def _neighbour(self, node: Node, other: Node) -> Neighbour:
        """What one is told of another: where to dial it, or that it dials."""
        mine, theirs = self.crowd.can_dial(node, other), self.crowd.can_dial(other, node)
        dials = mine and (not theirs or node > other)
        return Neighbour(
            position=other,
            id=self._guests[other].id,
            routes=self._routes(node, other) if dials else (),
        )

    def _routes(self, node: Node, other: Node) -> tuple[str, ...]:
        shares, place = self._shares[other], self.crowd.place(other)
        seen = (spelled(place.network, shares.port),) if place.dialled else ()
        near = shares.addresses if self.crowd.place(node).network == place.network else ()
        return (*seen, *near)[:MAX_ROUTES]

    def _shards(self, node: Node, below: tuple[Node, ...]) -> Ranges:
        """What a member is to have before it is asked for it."""
        if self.share == "needed":
            return ()
        if self.share == "full":
            return ranges(self._manifest.numbers("train"))
        wanted: set[int] = set()
        for member in (node, *below):
            if member in self._guests:
                for first, stop in self._segments(self._guests[member].id):
                    wanted.update(range(first, stop))
        return ranges(tuple(n for n in self._manifest.numbers("train") if n in wanted))

    # -- what is sent ---------------------------------------------------------------------------

    def _choose(self, now: float) -> Upload | None:
        fed, self.reason = self.crowd.next(now)
        if fed is None:
            return None
        guest, name = self._guests[fed.node], self._numbering.names[fed.chunk]
        self.crowd.fed(fed, now)
        size = self._numbering.size(fed.chunk)
        return Upload(bytes=size, send=lambda: self._send(guest, name, fed))

    async def _send(self, guest: Guest, name: ChunkHash, fed: Fed) -> bool:
        try:
            sent = await guest.send_chunk(name)
        except PeerError:
            sent = False  # it has gone: whoever listens to it hears of it
        if not sent:
            self.crowd.not_fed(fed)
        return sent

    def _jitter(self) -> Numbers:
        # The same for a chunk however many come after it.
        return np.random.default_rng(self._seed).random(len(self._numbering))


def _address(connection: Connection) -> str:
    """Where a member's connection comes from; empty where that is a relay."""
    if connection.peer.startswith(RELAYED):
        return ""
    return connection.peer.rpartition(":")[0].strip("[]")


def ranges(numbers: tuple[int, ...]) -> Ranges:
    """Numbers in order, as ranges: the first, and the one after the last."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return tuple(found)
