"""A host and members that exchange a small data set: the real engine, in virtual time.

Everybody listens on one in-process network at an address of its own, unless it is said to be behind
a router. `World` is a host without training: it hears what members say and sends what its `Spread`
decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np

from crowdgrad.domain.data import Chunk, ChunkHash, Field, Manifest, Shard
from crowdgrad.domain.job import JobId
from crowdgrad.domain.routes import Whereabouts
from crowdgrad.domain.spreading import Spreading
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import PeerError, Unreachable
from crowdgrad.host.spreading import Ranges, Spread
from crowdgrad.net.identity import Identity, from_seed
from crowdgrad.net.messages import Blob, Feed, Get, Holds, Message, Neighbours, Shares
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.inproc import InprocNetwork, pair
from crowdgrad.replication import PLANS
from crowdgrad.replication.base import Chunks
from crowdgrad.replication.meeting import Connect, Meeting, Who
from crowdgrad.replication.mirrors import Mirror
from crowdgrad.replication.sharing import Manner, Sharer, Terms
from crowdgrad.replication.store import MemoryChunks

JOB = JobId("spread-1")
CHUNK_BYTES = 200
RECORD_BYTES = 4
HOST_S = 0.05
"""What the host takes to send a chunk; members need no time."""


def data(shards: int, chunks: int = 2) -> tuple[Manifest, dict[ChunkHash, bytes]]:
    """So many shards to train on, of so many chunks each; their bytes by name."""
    blobs: dict[ChunkHash, bytes] = {}
    found = []
    for shard in range(shards):
        of = []
        for chunk in range(chunks):
            raw = np.random.default_rng([shard, chunk]).bytes(CHUNK_BYTES)
            name = ChunkHash(hashlib.sha256(raw).hexdigest())
            blobs[name] = raw
            of.append(Chunk(hash=name, bytes=len(raw)))
        records = chunks * CHUNK_BYTES // RECORD_BYTES
        found.append(Shard(split="train", records=records, chunks=tuple(of)))
    fields = (Field(name="x", dtype="float32", shape=()),)
    return Manifest(title="small", fields=fields, shards=tuple(found)), blobs


class Member:
    def __init__(self, world: World, position: int, chunks: Chunks, *, listens: bool) -> None:
        self.world = world
        self.position = position
        self.key: Identity = from_seed(position.to_bytes(32, "little"))
        self.chunks = chunks
        self.listens = listens
        self.manner = Manner()
        self.notes: list[str] = []
        self.heard: list[Message] = []
        self.fed: list[ChunkHash] = []
        """What the host sent unasked."""
        self.sharer: Sharer
        self._stack = contextlib.AsyncExitStack()
        self.ended: BaseException | None = None

    @property
    def id(self) -> VolunteerId:
        return self.key.id

    @property
    def address(self) -> tuple[str, int]:
        return f"10.0.0.{self.position}", 7000

    async def enter(self, mirrors: Sequence[Mirror] = (), quota_bytes: int = 1 << 40) -> None:
        self.quota_bytes = quota_bytes
        near, far = pair()
        far.peer = f"10.0.0.{self.position}:1"
        self.connection: Connection = far  # the host's end
        port = self.address[1] if self.listens else 0
        terms = Terms(
            plan=PLANS[self.world.spread.spreading.plan],
            share=self.world.spread.share,
            quota_bytes=lambda: self.quota_bytes,
            manner=lambda: self.manner,
            note=self.notes.append,
            shares=Shares(port=port, gives=self.manner.gives),
        )
        loop = asyncio.get_running_loop()
        self.sharer = Sharer(
            self.world.manifest,
            self.chunks,
            near,
            terms,
            ask_host=self._never,
            clock=loop.time,
            seed=self.position,
            mirrors=mirrors,
        )
        who = Who(key=self.key, job=JOB, software="test", beat_s=2.0, silence_s=10.0)
        meeting = Meeting(self.sharer, who, connect=self.world.dial(self), random01=lambda: 0.5)
        if self.listens:
            listener = await self.world.network.listen(*self.address, meeting.answer)
            self._stack.push_async_callback(listener.close)
        near.set_sink(self._sink)
        self.tasks = [
            asyncio.create_task(task)
            for task in (
                self.sharer.run(), meeting.run(), self._listen(near), self.world.serve(self)
            )
        ]  # fmt: skip
        self.near = near

    async def _never(self, name: ChunkHash, size: int) -> bytes:
        raise AssertionError("all of it is data")

    def _sink(self, message: Message, length: int) -> memoryview:
        assert isinstance(message, Blob)
        room = self.sharer.host_begins(message.hash, length)
        assert room is not None, "the host sends no more than it may"
        return room

    async def _listen(self, near: Connection) -> None:
        while True:
            message, payload = await near.receive()
            self.heard.append(message)
            if isinstance(message, Blob):
                self.fed.append(message.hash)
                self.sharer.host_sent(message, payload)
            elif isinstance(message, Neighbours):
                self.sharer.arranged(message)

    async def send_chunk(self, name: ChunkHash) -> bool:
        """As a `Visit` does."""
        await asyncio.sleep(HOST_S)
        await self.connection.send(Blob(hash=name), self.world.blobs[name])
        self.world.spread.sent(name, len(self.world.blobs[name]))
        self.world.host_sent.append(name)
        return True

    @property
    def names(self) -> set[ChunkHash]:
        return {name for name in self.world.blobs if self.chunks.holds(name)}

    async def die(self) -> None:
        """At once: nobody is told, connections just end."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.near.close(PeerError("gone"))
        self.connection.close(PeerError("gone"))
        await self._stack.aclose()
        self.world.members.pop(self.position, None)


class World:
    """`segments`: the shards of a member, by its place."""

    def __init__(
        self,
        shards: int = 8,
        *,
        spreading: Spreading = Spreading(share="full"),  # noqa: B008 (frozen)
        segments: Callable[[int], Ranges] = lambda position: (),
    ) -> None:
        self.manifest, self.blobs = data(shards)
        self.network = InprocNetwork()
        self.members: dict[int, Member] = {}
        self.dialled: list[tuple[int, int]] = []
        """Who has dialled whom."""
        self.host_sent: list[ChunkHash] = []
        self._places = itertools.count(1)
        self.spread = Spread(
            spreading,
            self.manifest,
            knock=self._knock,
            clock=asyncio.get_running_loop().time,
            segments=lambda who: segments(self.position_of(who)),
        )

    def grow(self, shards: int) -> None:
        """So many more: the host knows, and tells each member before its next unit."""
        self.manifest, self.blobs = data(len(self.manifest.shards) + shards)
        self.spread.grew(self.manifest)

    def position_of(self, who: VolunteerId) -> int:
        return next(p for p, member in self.members.items() if member.id == who)

    async def _knock(self, host: str, port: int, pin: str) -> bytes:
        member = self.members.get(int(host.rpartition(".")[2]))
        if member is None or not member.listens:
            raise Unreachable("Nobody answers.")
        return member.key.public

    def dial(self, member: Member) -> Connect:
        async def connect(where: Whereabouts) -> Connection:
            other = int(where.routes[0].host.rpartition(".")[2])
            self.dialled.append((member.position, other))
            return await self.network.dial(where)

        return connect

    async def add(
        self,
        *,
        chunks: Chunks | None = None,
        listens: bool = True,
        mirrors: Sequence[Mirror] = (),
        quota_bytes: int = 1 << 40,
        position: int | None = None,
    ) -> Member:
        place = position if position is not None else next(self._places)
        member = Member(self, place, chunks or MemoryChunks(), listens=listens)
        self.members[place] = member
        await member.enter(mirrors, quota_bytes)
        return member

    async def serve(self, member: Member) -> None:
        """The host's end of a member's connection."""
        try:
            while True:
                message, _ = await member.connection.receive()
                if isinstance(message, Get):
                    await member.send_chunk(message.hash)
                else:
                    assert isinstance(message, Shares | Feed | Holds), message
                    self.spread.hear(member, message)
        except PeerError:
            return
        finally:
            self.spread.leave(member)

    async def until(self, true: Callable[[], bool], most_s: float = 300.0) -> None:
        """Of virtual time."""
        async with asyncio.timeout(most_s):
            while not true():  # noqa: ASYNC110 (nothing happens when it becomes true)
                await asyncio.sleep(0.05)

    async def all_have_all(self, most_s: float = 300.0) -> None:
        everything = set(self.blobs)
        await self.until(lambda: all(m.names == everything for m in self.members.values()), most_s)

    @property
    def host_copies(self) -> float:
        return len(self.host_sent) / len(self.blobs)


@contextlib.asynccontextmanager
async def opened(world: World) -> AsyncIterator[World]:
    running = asyncio.create_task(world.spread.run())
    try:
        yield world
    finally:
        for member in list(world.members.values()):
            await member.die()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
