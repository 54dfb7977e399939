"""What a volunteer's exchange takes in memory, by how many neighbours it has.

`_replicate_neighbours.py hub DATA STORE` is one volunteer's part in the spreading of a prepared
data folder: the real exchange and a real chunk store, over TLS. Its host is silent.
`_replicate_neighbours.py crowd DATA PORT COUNT` are so many others with all of the data, each over
a connection of its own, that ask for some of it in turn, again and again. The hub says where it
listens, and on every line that comes how much memory it has (MB), how much it had at most, how many
neighbours, and how many chunks.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from crowdgrad.data.folder import DataFolder, open_folder
from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.job import JobId
from crowdgrad.domain.routes import Whereabouts, route_of
from crowdgrad.net.dialling import Dialler
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Blob, Have, Met, Neighbours
from crowdgrad.net.transport import inproc, secure
from crowdgrad.net.transport.base import Connection
from crowdgrad.planner.replication.masks import to_bytes
from crowdgrad.process import run_async
from crowdgrad.replication import PLANS
from crowdgrad.replication import peer as peers
from crowdgrad.replication.numbering import Numbering
from crowdgrad.replication.peer import Peer
from crowdgrad.replication.sharing import Sharer, Terms
from crowdgrad.replication.store import ChunkStore

JOB = JobId("neighbours")
HUB = "hub"
"""What the hub's key is made from."""
BEAT_S, SILENCE_S = 2.0, 30.0
ASKS = 2
"""Chunks that each of the crowd has asked for at once."""
QUOTA = 1 << 34


async def nobody(name: ChunkHash, size: int) -> bytes:
    raise AssertionError("the host is never asked")


async def hub(folder: DataFolder, store: Path) -> None:
    key, silent = guest(HUB), inproc.pair()
    sharer = Sharer(
        folder.manifest,
        ChunkStore(store, QUOTA),
        silent[0],
        Terms(plan=PLANS["swarm"], share="full"),
        ask_host=nobody,
        clock=time.monotonic,
        seed=0,
    )
    places: dict[str, int] = {}

    async def answer(connection: Connection) -> None:
        who, _ = await peers.answer(connection, key, software="bench")
        await connection.send(Met())
        peer = Peer(places.setdefault(who, len(places) + 1), connection, sharer)
        sharer.join(peer)
        try:
            await peer.run(beat_s=BEAT_S, silence_s=SILENCE_S)
        finally:
            sharer.leave(peer)

    listener = await secure.listen("127.0.0.1", 0, answer, key, always=True)
    sharer.arranged(Neighbours(shards=((0, len(folder.manifest.shards)),)))
    stopped = asyncio.Event()

    def hear() -> None:
        if not os.read(0, 4096):
            stopped.set()
            return
        now, most = memory()
        told = {"MB": now, "most_MB": most, "neighbours": len(sharer.peers),
                "chunks": sharer.progress[0]}  # fmt: skip
        print(json.dumps(told), flush=True)

    asyncio.get_running_loop().add_reader(0, hear)
    running = asyncio.create_task(sharer.run())
    print(json.dumps({"port": listener.address[1]}), flush=True)
    await stopped.wait()
    running.cancel()
    os._exit(0)  # nobody waits for farewells


def memory() -> tuple[float, float]:
    """In RAM now, and at most so far."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(rows[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


class Other:
    """One of the crowd: it has everything, and asks for what the hub has (`peer.Ears`)."""

    def __init__(self, folder: DataFolder, numbering: Numbering, seed: int) -> None:
        self._folder = folder
        self._numbering = numbering
        self._dice = np.random.default_rng(seed)
        self._known: list[int] = []
        self._under_way: set[ChunkHash] = set()
        self._sending: set[asyncio.Task[None]] = set()

    def has(self, peer: Peer, message: Have) -> None:
        self._known += message.chunks
        self._ask(peer)

    def _ask(self, peer: Peer) -> None:
        while self._known and len(self._under_way) < ASKS:
            name = self._numbering.names[int(self._dice.choice(self._known))]
            if name in self._under_way:
                return
            self._under_way.add(name)
            peer.ask(name)

    def wants(self, peer: Peer, name: ChunkHash) -> None:
        async def send() -> None:
            await peer.connection.send(Blob(hash=name), self._folder.chunks[name])

        task = asyncio.create_task(send())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def begins(self, peer: Peer, name: ChunkHash, length: int) -> bool:
        return name in self._under_way

    def came(self, peer: Peer, name: ChunkHash, payload: memoryview) -> None:
        self._under_way.discard(name)
        self._ask(peer)

    def lacks(self, peer: Peer, name: ChunkHash) -> None:
        self._under_way.discard(name)

    def wants_no_more(self, peer: Peer, name: ChunkHash) -> None:
        return None

    def wasted(self, peer: Peer, length: int) -> None:
        return None


async def crowd(folder: DataFolder, port: int, count: int) -> None:
    numbering = Numbering(folder.manifest)
    whole = to_bytes(np.ones(len(numbering), bool))
    where = Whereabouts(routes=(route_of(f"127.0.0.1:{port}"),), key=guest(HUB).id)

    async def one(number: int) -> None:
        key = guest()
        connection = await Dialler(key=key, always=True)(where)
        await peers.dial(connection, key, JOB, software="bench", pin=guest(HUB).id)
        peer = Peer(1, connection, Other(folder, numbering, number))
        peer.outbox.say(Have(whole=whole))
        await peer.run(beat_s=BEAT_S, silence_s=SILENCE_S)

    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, lambda: os.read(0, 4096) or ended.set())
    tasks = [asyncio.create_task(one(number)) for number in range(count)]
    await asyncio.wait([asyncio.create_task(ended.wait()), *tasks],
                       return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
    for task in tasks:
        if task.done():
            task.result()
    os._exit(0)


def main() -> None:
    kind, data, *more = sys.argv[1:]
    folder = open_folder(Path(data))
    if kind == "hub":
        run_async(hub(folder, Path(more[0])))
    else:
        run_async(crowd(folder, int(more[0]), int(more[1])))


if __name__ == "__main__":
    main()
