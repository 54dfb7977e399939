"""Rooms at work: shards come, go, and are waited for, in a workshop whose trainer is a stand-in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from crowdgrad.data.shards import content_hash
from crowdgrad.domain.data import Chunk, ChunkHash, Shard
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.errors import DataAltered, MessageError
from crowdgrad.net.messages import Grant
from crowdgrad.replication.store import MemoryChunks
from crowdgrad.replication.supply import Direct
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Arena, Plan, lay_out
from crowdgrad.volunteer.window import Window
from crowdgrad.volunteer.workshop import Workshop
from tests.host import small
from tests.virtual_time import run_virtual
from tests.volunteer.test_workshop import BASE, job, records

BYTES = 100
BATCHES = 10
DATA = [bytes([65 + number]) * BYTES for number in range(6)]
"""A's, B's, and so on: a shard each."""
MANIFEST = replace(
    records(BYTES),
    shards=tuple(
        Shard(
            split="train" if number < 5 else "test",
            records=BYTES,
            chunks=(Chunk(hash=content_hash(data), bytes=BYTES),),
        )
        for number, data in enumerate(DATA)
    ),
)
LOCAL = LocalSteps(batch_size=BYTES // BATCHES, overlap=1)


@dataclass
class Reading:
    """A trainer that takes ten seconds and then says what it has read. It does not stop earlier."""

    arena: Arena
    plan: Plan
    read: list[bytes] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def compute(self, ask: talk.Compute, share: Callable[[], float]) -> talk.Computed:
        return await asyncio.shield(asyncio.create_task(self._compute(ask)))

    async def _compute(self, ask: talk.Compute) -> talk.Computed:
        async with self.turn:
            place = self.plan.room(ask.room, BYTES).of(self.arena.memory)
            before = bytes(place)
            await asyncio.sleep(10)
            assert bytes(place) == before, "it changed while it was read"
            self.read.append(before)
        return talk.Computed(unit=ask.unit.id, samples=10, loss=1.0, metrics={}, compute_s=0.5)

    async def settled(self) -> None:
        async with self.turn:
            return

    async def close(self) -> None: ...


@dataclass
class Source:
    """Whom chunks are fetched from: each takes so long."""

    seconds: dict[int, float] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    altered: bool = False

    async def get(self, wanted: ChunkHash, size: int) -> bytes:
        number = [content_hash(data) for data in DATA].index(wanted)
        self.asked.append(number)
        await asyncio.sleep(self.seconds.get(number, 1.0))
        return b"?" * size if self.altered else DATA[number]


class House:
    def __init__(self, rooms: int = 3, *, evaluates: bool = False) -> None:
        plan = lay_out(
            program_bytes=1, manifest_bytes=1, state_bytes=4, update_bytes=4, slots=2,
            shard_bytes=[], rooms=(rooms, BYTES),
        )  # fmt: skip
        self.arena = Arena.make(plan.total_bytes)
        self.said: list[str] = []
        self.trainer: Any = Reading(self.arena, plan)
        setup = talk.Setup(plan=plan, local=LOCAL, seed=1, threads=1, evaluates=evaluates)
        self.source, self.chunks = Source(), MemoryChunks()
        self.shop = Workshop(
            job=job(LOCAL), manifest=MANIFEST, spec=small.spec(metrics=()), arena=self.arena,
            trainer=self.trainer, setup=setup, note=self.said.append,
        )  # fmt: skip

    async def need(self, shard: int, slot: int = 0) -> None:
        supply = Direct(self.source.get, self.chunks)
        await self.shop.need(shard, supply, lambda *_: None, slot=slot)

    async def unit(self, shard: int, slot: int = 0) -> None:
        await self.need(shard, slot)
        talking: Any = self.source
        unit = Unit(
            id=UnitId(9), kind="train", epoch=0, shard=shard, first_batch=BATCHES * shard, batches=1
        )
        await self.shop.compute(Grant(unit=unit, base=BASE, rate=0.1), slot, talking)

    def lies(self, shard: int) -> bool:
        """Whether its records are where the trainer would be told that they are."""
        return self.shop._region(shard).of(self.arena.memory) == DATA[shard]


def live(scenario: Coroutine[Any, Any, None]) -> None:
    run_virtual(scenario)


def test_what_the_host_is_told_is_what_is_there() -> None:
    async def scenario() -> None:
        house = House()
        for shard, held in [(0, {0}), (1, {0, 1}), (2, {0, 1, 2}), (3, {1, 2, 3}), (1, {1, 2, 3}),
                            (4, {1, 3, 4})]:  # fmt: skip
            await house.unit(shard)
            assert set(house.shop.shards_held) == held
            assert all(house.lies(shard) for shard in held)
        assert [letter[:1] for letter in house.trainer.read] == [b"A", b"B", b"C", b"D", b"B", b"E"]
        assert house.source.asked == [0, 1, 2, 3, 4]
        assert house.said == [
            "Shard 0 leaves room 0 to shard 3: of those no unit uses, it was needed longest ago.",
            "Shard 2 leaves room 2 to shard 4: of those no unit uses, it was needed longest ago.",
        ]
        await house.unit(0)
        assert house.source.asked == [0, 1, 2, 3, 4], "it was kept on the disk"
        await house.shop.close()

    live(scenario())


def test_whoever_finds_all_rooms_in_use_waits_until_a_unit_is_over() -> None:
    async def scenario() -> None:
        house, loop = House(rooms=1), asyncio.get_running_loop()
        first = asyncio.create_task(house.unit(0, slot=0))
        await asyncio.sleep(5)
        second = asyncio.create_task(house.unit(1, slot=1))
        await asyncio.sleep(5)
        assert house.shop.shards_held == (0,)
        assert house.source.asked == [0]
        began = loop.time()
        await asyncio.gather(first, second)
        assert loop.time() > began + 10
        assert house.shop.shards_held == (1,)
        assert [letter[:1] for letter in house.trainer.read] == [b"A", b"B"]
        await house.shop.close()

    live(scenario())


def test_a_room_the_trainer_may_still_read_is_not_written_to() -> None:
    """The lane goes at once, with its connection; the trainer finishes what it was asked."""

    async def scenario() -> None:
        house = House(rooms=1)
        lane = asyncio.create_task(house.unit(0))
        await asyncio.sleep(3)
        lane.cancel()
        await asyncio.gather(lane, return_exceptions=True)
        await house.unit(1)
        assert [letter[:1] for letter in house.trainer.read] == [b"A", b"B"]
        await house.shop.close()

    live(scenario())


def test_a_load_whose_lane_went_makes_way_and_writes_no_more() -> None:
    async def scenario() -> None:
        house = House(rooms=1)
        house.source.seconds = {0: 100.0}
        lane = asyncio.create_task(house.unit(0))
        await asyncio.sleep(3)
        lane.cancel()
        await asyncio.gather(lane, return_exceptions=True)
        await house.unit(1)
        assert house.shop.shards_held == (1,)
        await asyncio.sleep(200)
        assert house.lies(1)
        assert house.shop.shards_held == (1,)
        house.source.seconds = {}
        await house.unit(0)
        assert house.shop.shards_held == (0,)
        await house.shop.close()

    live(scenario())


def test_two_lanes_share_one_load_and_its_failure() -> None:
    async def scenario() -> None:
        house = House()
        house.source.altered = True
        both = [asyncio.create_task(house.need(0, slot)) for slot in (0, 1)]
        for failed in await asyncio.gather(*both, return_exceptions=True):
            assert isinstance(failed, ExceptionGroup)
            assert failed.subgroup(DataAltered)
        assert (house.source.asked, house.shop.shards_held) == ([0], ())
        house.source.altered = False
        await asyncio.gather(house.unit(0, 0), house.unit(0, 1))
        assert (house.source.asked, house.shop.shards_held) == ([0, 0], (0,))
        await house.shop.close()

    live(scenario())


@pytest.mark.parametrize(("evaluates", "shard"), [(False, 5), (False, 6), (True, 6)])
def test_a_shard_that_was_not_announced_gets_no_room(evaluates: bool, shard: int) -> None:
    async def scenario() -> None:
        house = House(evaluates=evaluates)
        with pytest.raises(MessageError, match="did not announce"):
            await house.need(shard)
        if evaluates:
            await house.need(5)
            assert house.shop.shards_held == (5,)
        await house.shop.close()

    live(scenario())


def test_a_slot_uses_one_room_at_a_time() -> None:
    async def scenario() -> None:
        window = Window(2)
        for shard in (1, 2, 3, 4):
            assert (await window.enter(shard, slot=0)).room is not None
        window.leave(0)
        window.leave(0)
        assert (window.room_of(3), window.room_of(4)) == (0, 1)

    live(scenario())
