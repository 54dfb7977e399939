"""The engine of spreading, in virtual time: who gets what, from whom, and who is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.spreading import Neighbour, PlanName, Spreading
from crowdgrad.errors import CannotWrite, CrowdgradError, DataAltered, DataMissing, DiskFull
from crowdgrad.net.messages import Neighbours
from crowdgrad.replication.sharing import Manner
from crowdgrad.replication.store import MemoryChunks
from tests.replication.crowd_world import Member, World, opened
from tests.virtual_time import run_virtual

PLANS: tuple[PlanName, ...] = ("swarm", "tree", "pipelined")


def lived(story: Callable[[World], Awaitable[None]], **world: object) -> None:
    async def main() -> None:
        async with opened(World(**world)) as there:  # type: ignore[arg-type]
            await story(there)

    run_virtual(main())


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("members", [1, 2, 7])
def test_everybody_gets_everything_by_every_plan(plan: PlanName, members: int) -> None:
    async def story(world: World) -> None:
        for _ in range(members):
            await world.add()
        await world.all_have_all()
        for member in world.members.values():
            assert member.sharer.progress == (16, 16)
        if plan == "swarm":
            assert world.host_copies <= 1.5
        else:  # one whole copy to each child
            assert world.host_copies >= members.bit_length()

    lived(story, spreading=Spreading(plan=plan, share="full"))


def test_what_a_unit_waits_for_comes_first_and_nothing_else_where_only_that_is_shared() -> None:
    async def story(world: World) -> None:
        first, second = await world.add(), await world.add()
        await asyncio.sleep(1)  # they have met
        names = [chunk.hash for chunk in world.manifest.shards[3].chunks]
        for member in (first, second):
            for name in names:
                assert await member.sharer.get(name, 200) == world.blobs[name]
        assert first.names == second.names == set(names)
        assert len(world.host_sent) == len(names), "the second has it from the first"

    lived(story, spreading=Spreading(share="needed"))


def test_several_who_wait_for_one_chunk_share_it_and_who_gives_up_harms_nobody() -> None:
    async def story(world: World) -> None:
        member = await world.add()
        name = world.manifest.shards[0].chunks[0].hash
        tasks = [asyncio.create_task(member.sharer.get(name, 200)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        assert await tasks[1] == await tasks[2] == world.blobs[name]
        assert world.host_sent == [name]

    lived(story, spreading=Spreading(share="needed"))


@pytest.mark.parametrize("plan", PLANS)
def test_segments_are_all_that_is_ever_sent(plan: PlanName) -> None:
    """Member p has shards p-1 and p; in a tree also those of the members below it."""

    async def story(world: World) -> None:
        for _ in range(7):
            await world.add()

        def own(position: int) -> set[ChunkHash]:
            shards = world.manifest.shards[position - 1 : position + 1]
            return {chunk.hash for shard in shards for chunk in shard.chunks}

        await world.until(lambda: all(m.names >= own(p) for p, m in world.members.items()))
        await asyncio.sleep(30)  # nothing more comes
        links = world.spread.crowd.links
        for position, member in world.members.items():
            through = set().union(*(own(p) for p in (position, *links[position].below)))
            assert member.names == through
            assert plan != "swarm" or through == own(position)

    spreading = Spreading(plan=plan, share="segments")
    lived(story, spreading=spreading, segments=lambda p: ((p - 1, p + 1),))


@pytest.mark.parametrize("plan", PLANS)
def test_any_may_die_at_any_time_and_the_others_get_everything(plan: PlanName) -> None:
    async def story(world: World) -> None:
        for _ in range(8):
            await world.add()
        for moment in range(4):
            await asyncio.sleep(0.11 * moment)
            victims = [m for m in world.members.values() if m.names]
            if victims:
                await victims[0].die()
        await world.add()
        await world.all_have_all()
        assert len(world.members) >= 5

    lived(story, spreading=Spreading(plan=plan, share="full"), shards=40)


@pytest.mark.parametrize("plan", PLANS)
def test_what_is_added_spreads_too_whoever_hears_of_it_first(plan: PlanName) -> None:
    async def story(world: World) -> None:
        members = [await world.add() for _ in range(3)]
        await world.all_have_all()
        world.grow(6)
        for member in members:
            member.sharer.grew(world.manifest)
            await asyncio.sleep(2)  # the others do not know yet what it says it holds
        late = await world.add()
        await world.all_have_all()
        assert [m.sharer.progress for m in (*members, late)] == [(28, 28)] * 4

    lived(story, spreading=Spreading(plan=plan, share="full"))


def test_who_comes_late_is_served_by_the_others() -> None:
    async def story(world: World) -> None:
        for _ in range(4):
            await world.add()
        await world.all_have_all()
        before = len(world.host_sent)
        late = await world.add()
        await world.all_have_all()
        assert len(world.host_sent) - before <= 2, "before it met anybody"
        assert len(late.fed) <= 2

    lived(story, shards=30)


def test_those_behind_routers_exchange_through_one_that_can_be_dialled() -> None:
    async def story(world: World) -> None:
        hub = await world.add()
        behind = [await world.add(listens=False) for _ in range(4)]
        await world.all_have_all()
        assert {other for _, other in world.dialled} == {hub.position}
        assert world.host_copies <= 1.5
        given = {pair for pair, count in world.spread.crowd.flows.items() if count}
        assert any(sender == hub.position for sender, _ in given)
        assert any(receiver == hub.position for _, receiver in given - {(0, hub.position)}), (
            "what they have goes out by the connection they made"
        )
        assert not {(a.position, b.position) for a in behind for b in behind} & given

    lived(story, shards=30)


def test_where_nobody_can_be_dialled_the_host_serves_all() -> None:
    async def story(world: World) -> None:
        for _ in range(3):
            await world.add(listens=False)
        await world.all_have_all()
        assert world.dialled == []
        assert world.host_copies == 3

    lived(story)


class Liar(MemoryChunks):
    """Keeps what it gets and hands out other bytes."""

    def get(self, name: ChunkHash) -> bytes | None:
        data = super().get(name)
        return bytes(len(data)) if data is not None else None


def test_liars_are_let_go_after_three_chunks_and_the_host_hears_of_it() -> None:
    async def story(world: World) -> None:
        liars = [await world.add(chunks=Liar()) for _ in range(2)]
        honest = [await world.add() for _ in range(8)]
        await world.all_have_all(most_s=600)
        crowd = world.spread.crowd
        for liar in liars:
            bad = [crowd.flows[liar.position, member.position] for member in honest]
            assert bad == [0] * len(honest), "none of its bytes were kept"
            assert not crowd.trusted(liar.position)
        for member in honest:
            assert crowd.received(member.position)[2] <= 3 * len(liars)
            assert all(member.chunks.get(name) == raw for name, raw in world.blobs.items())
            assert crowd.trusted(member.position)
        assert any("wrong bytes" in note for member in honest for note in member.notes)

    lived(story, shards=40)


def test_wrong_bytes_of_the_host_end_it() -> None:
    async def story(world: World) -> None:
        name = next(iter(world.blobs))
        world.blobs[name] = bytes(200)
        member = await world.add()
        await world.until(lambda: member.tasks[0].done())
        errors = member.tasks[0].exception()
        assert isinstance(errors, ExceptionGroup)
        assert errors.subgroup(DataAltered) is not None

    lived(story)


def test_what_lies_on_the_disk_is_not_fetched_again() -> None:
    async def story(world: World) -> None:
        kept = MemoryChunks()
        names = list(world.blobs)[:10]
        for name in names:
            kept.put(name, world.blobs[name])
        member = await world.add(chunks=kept)
        await world.all_have_all()
        assert not set(member.fed) & set(names)
        await member.die()
        world.host_sent.clear()
        again = await world.add(chunks=kept, position=member.position)
        await world.all_have_all()
        await asyncio.sleep(10)
        assert world.host_sent == again.fed == []

    lived(story)


def test_a_small_disk_takes_a_part_and_units_still_get_what_they_need() -> None:
    async def story(world: World) -> None:
        small = await world.add(chunks=MemoryChunks(2000), quota_bytes=2000)
        await asyncio.sleep(20)
        assert 0 < len(small.names) * 200 <= 0.75 * 2000
        for name, raw in world.blobs.items():
            assert await small.sharer.get(name, 200) == raw
        assert len(small.names) <= 10

    lived(story, shards=20)


def test_who_lends_less_than_before_fills_less() -> None:
    async def story(world: World) -> None:
        member = await world.add(quota_bytes=1 << 40)
        await world.until(lambda: len(member.names) >= 8)
        member.quota_bytes = 2000
        await asyncio.sleep(1)
        filled = len(member.names)
        assert filled < len(world.blobs)
        await asyncio.sleep(20)
        assert len(member.names) <= filled + 2, "what was on its way"
        member.quota_bytes = 1 << 40
        await world.until(lambda: member.names == set(world.blobs))

    lived(story, shards=200)


def test_a_chunk_that_was_let_go_is_said_to_be_gone_and_comes_from_elsewhere() -> None:
    async def story(world: World) -> None:
        forgetful = MemoryChunks()
        first = await world.add(chunks=forgetful)
        await world.all_have_all()
        gone = list(world.blobs)[:4]
        for name in gone:
            del forgetful._chunks[name]
        before = len(world.host_sent)
        second = await world.add()
        await world.until(lambda: first.names == second.names == set(world.blobs))
        assert set(gone) <= set(world.host_sent[before:]), "nobody else had them any more"

    lived(story)


@pytest.mark.parametrize("error", [DiskFull, CannotWrite])
def test_a_full_disk_still_serves_units(error: type[CrowdgradError]) -> None:
    class Full(MemoryChunks):
        def put(self, name: ChunkHash, data: bytes) -> None:
            raise error("No room.", advice="Make some.")

    async def story(world: World) -> None:
        member = await world.add(chunks=Full())
        await asyncio.sleep(5)
        assert [note for note in member.notes if "No room." in note]
        sent = len(world.host_sent)
        assert sent <= len(world.blobs), "what was on its way, and nothing again and again"
        await asyncio.sleep(30)
        assert len(world.host_sent) == sent, "nothing is fetched in the background any more"
        name = world.manifest.shards[5].chunks[1].hash
        assert await member.sharer.get(name, 200) == world.blobs[name]
        await asyncio.sleep(30)
        assert world.host_sent[sent:] == [name], "what a unit needs, once"

    lived(story)


def test_a_machine_that_pauses_passes_nothing_on_and_fetches_nothing_it_does_not_need() -> None:
    async def story(world: World) -> None:
        first = await world.add()
        await world.all_have_all()
        first.manner = Manner(gives=False, background=False)
        await asyncio.sleep(1)
        second = await world.add()
        await world.all_have_all()
        flows = world.spread.crowd.flows
        assert not flows[first.position, second.position]
        second.manner = Manner(gives=False, background=False)
        first.manner = Manner()
        await asyncio.sleep(1)
        third = await world.add()
        await world.all_have_all()
        await asyncio.sleep(1)  # the host has heard of it
        assert flows[first.position, third.position]
        assert not flows[second.position, third.position]

    lived(story, shards=20)


class Shelf:
    """A mirror in memory."""

    name = "shelf"

    def __init__(self, blobs: dict[ChunkHash, bytes], failing: int = 0) -> None:
        self.blobs = blobs
        self.failing = failing
        self.asked = 0

    async def get(self, name: ChunkHash, size: int) -> bytes:
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.asked <= self.failing:
            raise DataMissing("It is not there.")
        return self.blobs[name]

    def close(self) -> None:
        self.blobs = {}


@pytest.mark.parametrize("failing", [0, 3])
def test_mirrors_are_further_seeds(failing: int) -> None:
    async def story(world: World) -> None:
        shelf = Shelf(dict(world.blobs), failing)
        await world.add(mirrors=[shelf])
        for _ in range(3):
            await world.add(mirrors=[Shelf(dict(world.blobs), failing)])
        await world.all_have_all()
        assert shelf.asked > failing
        assert world.host_copies < 1

    lived(story, shards=200)


def test_nobody_is_answered_whom_the_host_has_not_named() -> None:
    async def story(world: World) -> None:
        first, second = await world.add(), await world.add()
        await world.all_have_all()
        second.heard.clear()
        first.sharer.arranged(Neighbours())  # from now on it knows nobody
        second.sharer.arranged(Neighbours(neighbours=(_neighbour(first),), shards=((0, 8),)))
        await asyncio.sleep(30)
        assert first.sharer.peers == second.sharer.peers == ()

    lived(story)


def _neighbour(member: Member) -> Neighbour:
    host, port = member.address
    return Neighbour(position=member.position, id=member.id, routes=(f"{host}:{port}",))
