"""A volunteer's part in the spreading of data: what it asks of whom, and what it passes on.

What is decided is in `planner/replication/`; here it is done, over connections to other volunteers
(`meeting.py`) and the one to the host. Every chunk is verified before it is kept, passed on or
trained on. Whoever sends wrong bytes three times is let go, and the host hears of each.

The host gives chunks of its own choosing, as many as we have room for; it knows who else has what.
So nobody is asked for everything, and each chunk leaves the host about once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.domain.spreading import Share
from crowdgrad.errors import CannotWrite, DataAltered, DiskFull, PeerError
from crowdgrad.net.messages import Blob, Have, Holds, Lack, Neighbours, Shares
from crowdgrad.net.transport.base import Connection
from crowdgrad.planner.replication.fetching import Fetching
from crowdgrad.planner.replication.masks import Mask, Numbers, empty, numbers_of, to_bytes
from crowdgrad.planner.replication.plans import HOST, Asked, Node, Plan, Queue
from crowdgrad.replication.base import Chunks
from crowdgrad.replication.given import Given
from crowdgrad.replication.host_link import HostLink
from crowdgrad.replication.mirrors import Mirror
from crowdgrad.replication.mirrors.asking import Mirrors
from crowdgrad.replication.numbering import Numbering
from crowdgrad.replication.peer import Peer
from crowdgrad.replication.supply import altered
from crowdgrad.replication.uploading import Upload, Uploading

THINK_S = 0.25
"""How often it is looked at what is late, when nothing happens."""
MOST_ASKED = 64
"""Chunks one neighbour may have asked for and not got yet."""
KEEP_SHARE = 0.75
"""Of the disk that is lent, what one job fills in the background."""
NOT_NOW = "this machine passes nothing on just now"
NOTHING_SAID = Shares()
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What this machine does besides what its units need."""

    gives: bool = True
    """It passes chunks on."""
    background: bool = True
    """It fetches what no unit waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a job and this machine's owner have agreed on."""

    plan: Plan
    share: Share
    quota_bytes: Callable[[], int] = lambda: 1 << 62
    """Of the disk, by now."""
    manner: Callable[[], Manner] = Manner
    note: Callable[[str], None] = lambda text: None
    shares: Shares = NOTHING_SAID
    """What the host is told of us."""


class Sharer:
    def __init__(
        self,
        manifest: Manifest,
        chunks: Chunks,
        host: Connection,
        terms: Terms,
        *,
        ask_host: Callable[[ChunkHash, int], Awaitable[bytes]],
        clock: Clock,
        seed: int,
        mirrors: Sequence[Mirror] = (),
    ) -> None:
        """`ask_host`: for bytes that are no chunk of the data. `seed`: of our own choices.

        `mirrors`: further places that have everything; the sharer's own from now on.
        """
        self._numbering = Numbering(manifest)
        self._chunks = chunks
        self._terms = terms
        self._ask_host = ask_host
        self._clock = clock
        self._seed = seed
        self._fetching = Fetching(self._jitter(), order=terms.plan.order)
        self._fetching.meet(HOST)  # it is never asked by name, and holds nothing we could ask for
        self._host = HostLink(host)
        self._peers: dict[Node, Peer] = {}
        self._queue: list[Asked] = []
        self._links = Neighbours()
        self._waiting: dict[int, list[asyncio.Future[bytes]]] = {}
        self._keeping: set[asyncio.Task[None]] = set()
        self._given = Given()
        self._served: dict[Node, int] = {}
        self._wants = b""
        """What is wanted, as it travels."""
        self._to_have = empty(len(self._numbering))
        """What the host wants us to have, as far as there is room."""
        self._manner = terms.manner()
        self._quota_bytes = terms.quota_bytes()
        self._full = False
        """The disk takes no more."""
        self._wake = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._uploading = Uploading(self._next_upload, clock)
        self._mirrors = Mirrors(mirrors, self._fetching, clock)
        self.changed: Callable[[], None] = lambda: None
        """Called when the host says with whom to exchange."""

    # -- what the volunteer uses ----------------------------------------------------------------

    async def get(self, name: ChunkHash, size: int) -> bytes:
        """The bytes with that hash, verified: from here, from another volunteer, or the host."""
        kept = await asyncio.to_thread(self._chunks.get, name)
        if kept is not None and len(kept) == size:
            return kept
        number = self._numbering.numbers.get(name)
        if number is None or self._numbering.size(number) != size:
            return await self._ask_host(name, size)
        self._lose(number)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(number, []).append(future)
        self._want()
        try:
            return await future
        finally:
            if number in self._waiting and future.cancelled():
                self._waiting[number].remove(future)
                if not self._waiting[number]:
                    del self._waiting[number]
                    self._want()

    def grew(self, manifest: Manifest) -> None:
        if len(manifest.shards) == self._numbering.shards:
            return
        self._numbering.grow(manifest)
        self._fetching.grow(self._jitter())
        self._mirrors.grew()
        self._to_have = self._within_quota()
        self._want()

    @property
    def progress(self) -> tuple[int, int]:
        """Chunks held of those wanted, and how many these are."""
        wanted = self._fetching.wanted
        return int((self._fetching.held & wanted).sum()), int(wanted.sum())

    @property
    def neighbours(self) -> Neighbours:
        return self._links

    @property
    def peers(self) -> tuple[Node, ...]:
        return tuple(self._peers)

    async def run(self) -> None:
        """Until cancelled. Raises DataAltered where the host's own bytes are wrong."""
        await self._look_at_disk()
        self._host.say(self._terms.shares)
        self._host.say(Holds(whole=to_bytes(self._fetching.held)))
        try:
            async with asyncio.TaskGroup() as group:
                for task in (self._think(), self._host.run(), self._uploading.run()):
                    group.create_task(task)
                await self._failed
        finally:
            for keeping in self._keeping:
                keeping.cancel()
            await asyncio.gather(*self._keeping, return_exceptions=True)
            self._mirrors.close()
            for futures in self._waiting.values():
                for future in futures:
                    future.cancel()

    async def _look_at_disk(self) -> None:
        """What an earlier session, or another job, has left here."""
        names = self._numbering.names

        def look() -> list[int]:
            return [number for number, name in enumerate(names) if self._chunks.holds(name)]

        self._fetching.hold(await asyncio.to_thread(look))

    # -- what the host says -----------------------------------------------------------------------

    def arranged(self, links: Neighbours) -> None:
        """With whom to exchange from now on, and what to have."""
        self._links = links
        for node, number in self._fetching.turn_to(links.source):
            if node in self._peers:
                self._peers[node].unget(self._numbering.names[number])
        near = {neighbour.position for neighbour in links.neighbours}
        for node in set(self._peers) - near:
            self._peers[node].connection.close()
        self._to_have = self._within_quota()
        self._want()
        self.changed()

    def host_begins(self, name: ChunkHash, length: int) -> memoryview | None:
        """Room for a chunk of the host's own choosing; None: it has no business here."""
        number = self._numbering.numbers.get(name)
        if number is None or self._numbering.size(number) != length:
            return None
        if not self._host.begins():
            return None
        self._fetching.coming(HOST, number, self._clock())
        self._wake.set()
        return memoryview(bytearray(length))

    def host_sent(self, message: Blob, payload: memoryview) -> None:
        self._keep(HOST, self._numbering.numbers[message.hash], payload)

    # -- what neighbours say (`peer.Ears`) --------------------------------------------------------

    def join(self, peer: Peer) -> None:
        """From now on we exchange with it."""
        before = self._peers.get(peer.node)
        if before is not None:
            self.leave(before)
            before.connection.close()
        self._peers[peer.node] = peer
        self._fetching.meet(peer.node)
        peer.outbox.say(Have(whole=to_bytes(self._fetching.held)))
        self._wake.set()

    def leave(self, peer: Peer) -> None:
        if self._peers.get(peer.node) is peer:
            del self._peers[peer.node]
            self._fetching.part(peer.node)
            self._queue = [ask for ask in self._queue if ask.node != peer.node]
            self._wake.set()

    def has(self, peer: Peer, message: Have) -> None:
        if self._peers.get(peer.node) is peer:
            self._fetching.hear(
                peer.node, chunks=message.chunks, lost=message.lost, whole=message.whole
            )
            self._wake.set()

    def wants(self, peer: Peer, name: ChunkHash) -> None:
        number = self._numbering.numbers.get(name)
        if number is None or not self._fetching.held[number]:
            peer.outbox.say(Lack(hash=name, reason="it is not here"))
            return
        if not self._manner.gives:
            peer.outbox.say(Lack(hash=name, reason=NOT_NOW))
            return
        if sum(ask.node == peer.node for ask in self._queue) >= MOST_ASKED:
            raise PeerError(f"{MOST_ASKED} chunks were asked for and not sent yet.")
        if self._peers.get(peer.node) is peer:
            self._queue.append(Asked(peer.node, number, self._clock()))
            self._uploading.wake()

    def wants_no_more(self, peer: Peer, name: ChunkHash) -> None:
        number = self._numbering.numbers.get(name)
        self._queue = [a for a in self._queue if (a.node, a.chunk) != (peer.node, number)]

    def lacks(self, peer: Peer, name: ChunkHash) -> None:
        number = self._numbering.numbers.get(name)
        if number is not None and self._peers.get(peer.node) is peer:
            self._fetching.lacks(peer.node, number)
            self._wake.set()

    def begins(self, peer: Peer, name: ChunkHash, length: int) -> bool:
        number = self._numbering.numbers.get(name)
        if number is None or self._numbering.size(number) != length:
            return False
        began = self._peers.get(peer.node) is peer and self._fetching.began(
            peer.node, number, self._clock()
        )
        if began:
            self._wake.set()  # the next one can be asked for
        return began

    def came(self, peer: Peer, name: ChunkHash, payload: memoryview) -> None:
        self._keep(peer.node, self._numbering.numbers[name], payload)

    def wasted(self, peer: Peer, length: int) -> None:
        self._host.flow(peer.node, wasted=length)

    # -- chunks that come ---------------------------------------------------------------------

    def _keep(self, node: Node, number: int, payload: memoryview) -> None:
        self._background(self._verify(node, number, bytes(payload)))

    def _background(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _from_mirror(self, node: Node, number: int) -> None:
        data = await self._mirrors.get(
            node, number, self._numbering.names[number], self._numbering.size(number)
        )
        if data is None:
            self._wake.set()
        else:
            await self._verify(node, number, data)

    async def _verify(self, node: Node, number: int, data: bytes) -> None:
        try:
            await asyncio.to_thread(self._chunks.put, self._numbering.names[number], data)
        except DataAltered:
            self._was_bad(node, number)
        except (DiskFull, CannotWrite) as error:
            if not self._full:
                self._full = True
                self._terms.note(f"{error.message} Only what units need is fetched from now on.")
                self._want()  # the host hears it now, not when a unit needs something next
            self._fetching.ungot(node, number)
            self._tell((number,), here=False)
            self._hand_over(number, data)
        else:
            self._arrived(node, number, data)
        self._wake.set()

    def _arrived(self, node: Node, number: int, data: bytes) -> None:
        arrival = self._fetching.came(node, number)
        for other in arrival.unget:
            self._fetching.ungot(other, number)
            if other in self._peers:  # a mirror cannot be told
                self._peers[other].unget(self._numbering.names[number])
        if arrival.new:
            self._host.flow(node, received=len(data))
            self._given.note(self._clock(), node, len(data))
            self._tell((number,), here=True)
        else:
            self._host.flow(node, wasted=len(data))
        self._hand_over(number, data)

    def _hand_over(self, number: int, data: bytes) -> None:
        if number in self._waiting:
            for future in self._waiting.pop(number):
                if not future.done():
                    future.set_result(data)
            self._want()

    def _was_bad(self, node: Node, number: int) -> None:
        name = self._numbering.names[number]
        self._host.flow(node, bad=1)
        if node == HOST:
            if not self._failed.done():
                self._failed.set_exception(altered(name, self._numbering.size(number)))
            return
        hopeless = node in self._peers and self._fetching.was_bad(node, number)
        self._terms.note(f"Member {node} sent wrong bytes for chunk {name[:12]}….")
        if hopeless:
            error = PeerError("You have sent wrong bytes three times.", advice="Check your disk.")
            self._peers[node].connection.refuse(error)

    # -- chunks that go -----------------------------------------------------------------------

    def _next_upload(self, now: float) -> Upload | None:
        asked, _ = self._terms.plan.serve(
            Queue(
                asks=self._queue,
                order=self._links.order,
                given=self._given.lately(now),
                served=self._served,
                complete=self._fetching.complete,
                copies=self._fetching.copies,
            ),
            now,
        )
        if asked is None:
            return None
        self._queue.remove(asked)
        self._served[asked.node] = self._served.get(asked.node, 0) + 1
        peer = self._peers[asked.node]
        size = self._numbering.size(asked.chunk)
        return Upload(bytes=size, send=lambda: self._send(peer, asked.chunk))

    async def _send(self, peer: Peer, number: int) -> bool:
        name = self._numbering.names[number]
        data = await asyncio.to_thread(self._chunks.get, name)
        try:
            if data is None:  # the disk had no room for it any more
                self._lose(number)
                peer.outbox.say(Lack(hash=name, reason="it was let go meanwhile"))
                return False
            await peer.connection.send(Blob(hash=name), data)
        except PeerError:
            return False  # whoever receives on this connection hears of it
        return True

    def _lose(self, number: int) -> None:
        if self._fetching.held[number]:
            self._fetching.lose((number,))
            self._tell((number,), here=False)

    def _tell(self, numbers: Iterable[int], *, here: bool) -> None:
        numbers = tuple(numbers)
        for peer in self._peers.values():
            peer.outbox.tell(numbers, here=here)
        self._host.tell(numbers, here=here)

    # -- what is wanted -----------------------------------------------------------------------

    def _want(self) -> None:
        """What units wait for, and what the host wants us to have, as far as there is room."""
        fetching = self._fetching
        fetching.urgent = frozenset(self._waiting)
        if self._manner.background and not self._full:
            fetching.wanted = self._to_have.copy()
        else:
            fetching.wanted = empty(len(self._numbering))
        fetching.wanted[list(self._waiting)] = True
        self._wants = to_bytes(fetching.wanted)
        self._wake.set()

    def _within_quota(self) -> Mask:
        wanted = empty(len(self._numbering))
        for first, stop in self._links.shards:
            for shard in range(first, min(stop, self._numbering.shards)):
                wanted[list(self._numbering.of_shard(shard))] = True
        sizes = self._numbering.sizes
        most = int(KEEP_SHARE * self._quota_bytes)
        if int(sizes[wanted].sum()) > most:  # some of it, and not the same as others have
            numbers = np.asarray(numbers_of(wanted))
            numbers = numbers[np.argsort(self._jitter()[numbers])]
            wanted[numbers[np.cumsum(sizes[numbers]) > most]] = False
        return wanted

    def _jitter(self) -> Numbers:
        # The same for a chunk however many come after it.
        return np.random.default_rng(self._seed).random(len(self._numbering))

    async def _think(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(THINK_S):
                    await self._wake.wait()
            self._behave()  # also where there is always something to do
            self._wake.clear()
            self._mirrors.look()
            for ask in self._fetching.decide(self._clock()):
                if ask.node > HOST:
                    self._peers[ask.node].ask(self._numbering.names[ask.chunk])
                else:
                    self._background(self._from_mirror(ask.node, ask.chunk))
            self._host.feed(
                self._wants,
                self._fetching.urgent,
                lacks=bool(self._fetching.lacking.any()),
                alone=not self._peers,
            )
            self._uploading.wake()

    def _behave(self) -> None:
        """As the owner, or the network, wishes by now."""
        lent, self._quota_bytes = self._quota_bytes, self._terms.quota_bytes()
        if lent != self._quota_bytes:
            self._to_have = self._within_quota()
            self._want()
        before, self._manner = self._manner, self._terms.manner()
        if before == self._manner:
            return
        said = self._terms.shares
        self._host.say(Shares(port=said.port, addresses=said.addresses, gives=self._manner.gives))
        if not self._manner.gives:
            for ask in self._queue:
                name = self._numbering.names[ask.chunk]
                self._peers[ask.node].outbox.say(Lack(hash=name, reason=NOT_NOW))
            self._queue.clear()
        self._want()
