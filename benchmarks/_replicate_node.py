"""A volunteer that is told by a line when to begin, and says when it holds everything.

`_replicate_node.py TARGET WANTED UNIT_S [liar]` is `crowdgrad work TARGET` as people start it: the
same agent, settings (by the environment), connections and chunk store, but for two parts. Instead
of a trainer, which would take the processor from fifteen others, there is one that takes UNIT_S
seconds for each unit, and looks whether the records it was given are those that the manifest
names. The chunk store counts what is put into it. WANTED: a file with the names of all chunks.

It is a receiver (`_spreading.py`). A liar's store hands out wrong bytes of the right length: what
it serves is worthless, and only a check of the bytes can tell.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crowdgrad.data.shards import content_hash, decode_manifest
from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.errors import DataAltered
from crowdgrad.numerics.vectors import as_vector
from crowdgrad.process import run_async
from crowdgrad.replication.store import ChunkStore
from crowdgrad.settings import load
from crowdgrad.volunteer import serve, talk, workshop
from crowdgrad.volunteer.arena import Arena
from crowdgrad.volunteer.events import Event

SAY_S = 0.5
LOOK_S = 2.0
ALTERED = 64
"""How many bytes of a chunk a liar changes."""


class Tally:
    """What this volunteer holds of what is wanted, and what it was given besides."""

    def __init__(self, wanted: frozenset[ChunkHash]) -> None:
        self.wanted = wanted
        self.held: set[ChunkHash] = set()
        self.curve: list[tuple[float, int]] = []
        self.kept_bytes = self.twice_bytes = self.refused_bytes = self.bad_units = self.units = 0
        self.began_cpu_s = time.process_time()
        self._lock = threading.Lock()

    def keep(self, name: ChunkHash, size: int) -> None:
        with self._lock:
            if name not in self.wanted:
                return
            if name in self.held:
                self.twice_bytes += size
                return
            self.held.add(name)
            self.kept_bytes += size
            self.curve.append((time.monotonic(), len(self.held)))
            if len(self.held) == len(self.wanted):
                self.say(complete=self.curve[-1][0], curve=self.curve)

    def say(self, **more: object) -> None:
        told = {
            "chunks": len(self.held),
            "bytes": self.kept_bytes,
            "twice_bytes": self.twice_bytes,
            "refused_bytes": self.refused_bytes,
            "units": self.units,
            "bad_units": self.bad_units,
            "cpu_s": time.process_time() - self.began_cpu_s,
            **more,
        }
        print(json.dumps(told), flush=True)


def watched(tally: Tally, *, liar: bool) -> type[ChunkStore]:
    """A chunk store that tells the tally."""

    class Watched(ChunkStore):
        def put(self, name: ChunkHash, data: bytes, *others: Any, **more: Any) -> None:
            try:
                super().put(name, data, *others, **more)
            except DataAltered:
                tally.refused_bytes += len(data)
                raise
            tally.keep(name, len(data))

        def get(self, name: ChunkHash) -> bytes | None:
            data = super().get(name)
            if not liar or data is None or name not in tally.wanted:
                return data
            return bytes(255 - byte for byte in data[:ALTERED]) + data[ALTERED:]

    return Watched


class StandIn:
    """What a `TrainerLink` is to a workshop: a unit takes its time, and is looked at."""

    engine = "nothing"
    broken = False
    deaths = 0
    pid = None
    unit_s = 1.0
    tally: Tally
    honest = True

    def __init__(self, arena: Arena, setup: talk.Setup, **options: Any) -> None:
        self._arena = arena
        self._setup = setup
        self._manifest: Manifest = decode_manifest(bytes(setup.plan.manifest.of(arena.memory)))
        self._turn = asyncio.Lock()
        self.checked: talk.Checked | None = None

    async def check(self) -> talk.Checked:
        self.checked = talk.Checked(memory_bytes=1, work=1)
        return self.checked

    async def start(self) -> None:
        return None

    async def compute(self, ask: talk.Compute, share: Callable[[], float]) -> talk.Computed:
        async with self._turn:
            share()
            self._look_at(ask.unit.shard)
            began = time.monotonic()
            await asyncio.sleep(self.unit_s)
            as_vector(self._setup.plan.slots[ask.slot].update.of(self._arena.memory))[:] = 0.0
            shard = self._manifest.shards[ask.unit.shard]
            return talk.Computed(
                unit=ask.unit.id,
                samples=min(self._setup.local.batch_size, shard.records) * len(ask.numbers),
                loss=0.7,
                metrics={},
                compute_s=time.monotonic() - began,
            )

    def _look_at(self, number: int) -> None:
        """Whether the records a trainer would compute with are those the manifest names."""
        region = self._setup.plan.shards[number].of(self._arena.memory)
        at, good = 0, True
        for chunk in self._manifest.shards[number].chunks:
            good &= content_hash(region[at : at + chunk.bytes]) == chunk.hash
            at += chunk.bytes
        self.tally.units += 1
        if not good and self.honest:
            self.tally.bad_units += 1

    async def close(self) -> None:
        return None


async def report(tally: Tally, chunks: Path) -> None:
    """Say how it goes; look on the disk, too, should chunks come there without our knowing."""
    looked, before = time.monotonic(), -1
    while len(tally.held) < len(tally.wanted):
        await asyncio.sleep(SAY_S)
        if len(tally.held) != before and len(tally.held) < len(tally.wanted):
            before = len(tally.held)
            tally.say()
        if time.monotonic() - looked > LOOK_S:
            looked = time.monotonic()
            for name in tally.wanted - tally.held:
                path = chunks / name[:2] / name
                if path.is_file():
                    tally.keep(name, path.stat().st_size)


def hear(tally: Tally, go: asyncio.Event, stop: asyncio.Event) -> None:
    said = os.read(0, 4096).decode()
    if not said:
        asyncio.get_running_loop().remove_reader(0)
        go.set()
        stop.set()
    elif "tell" in said:
        tally.say()
    else:
        tally.began_cpu_s = time.process_time()
        go.set()


def tell(event: Event) -> None:
    print(f"{time.monotonic():.2f} {event.kind}: {event.text}", file=sys.stderr, flush=True)


def equip(tally: Tally, unit_s: float, *, liar: bool) -> None:
    """Put the two parts into their places."""
    StandIn.tally, StandIn.unit_s, StandIn.honest = tally, unit_s, not liar
    workshop.TrainerLink = StandIn  # type: ignore[assignment, misc]
    serve.ChunkStore = watched(tally, liar=liar)  # type: ignore[misc]


async def live(target: str, tally: Tally) -> None:
    settings = load()
    go, stop = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().add_reader(0, hear, tally, go, stop)
    print("ready", flush=True)
    await go.wait()
    telling = asyncio.create_task(report(tally, settings.home / "chunks"))
    options = serve.Options(target=target, guest=True, yes=True, once=True)
    try:
        await serve.work(options, settings, stop, tell, [])
    finally:
        telling.cancel()


def main() -> None:
    target, wanted, unit_s, *kind = sys.argv[1:]
    tally = Tally(frozenset(map(ChunkHash, json.loads(Path(wanted).read_text()))))
    equip(tally, float(unit_s), liar=kind == ["liar"])
    run_async(live(target, tally))


if __name__ == "__main__":
    main()
