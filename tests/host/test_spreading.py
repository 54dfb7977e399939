"""The host's part in the spreading of data; the whole of it is in `tests/replication/`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.spreading import Flow, Spreading, set_bytes
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import Unreachable
from crowdgrad.host.spreading import Spread, ranges
from crowdgrad.net.identity import from_seed
from crowdgrad.net.messages import Feed, Holds, Neighbours, Shares
from crowdgrad.net.transport.inproc import InprocConnection, pair
from tests.replication.crowd_world import data
from tests.virtual_time import run_virtual

ALL = set_bytes(range(8))
FULL = Spreading(share="full")


class Guest:
    """A member's connection, as a `Visit` is one."""

    def __init__(self, position: int, peer: str) -> None:
        self.position = position
        self.id: VolunteerId = from_seed(position.to_bytes(32, "little")).id
        self.connection: InprocConnection
        self.near, self.connection = pair()
        self.connection.peer = peer
        self.sent: list[ChunkHash] = []

    async def send_chunk(self, name: ChunkHash) -> bool:
        self.sent.append(name)
        return True

    async def told(self) -> Neighbours:
        async with asyncio.timeout(5):
            message, _ = await self.near.receive()
        assert isinstance(message, Neighbours)
        return message


class House:
    def __init__(self, spreading: Spreading = FULL, deaf: tuple[str, ...] = ()) -> None:
        """`deaf`: addresses at which nobody answers."""
        self.knocked: list[tuple[str, int, str]] = []
        self._deaf = deaf
        self.spread = Spread(
            spreading, data(4)[0], knock=self._knock, clock=asyncio.get_running_loop().time
        )

    async def _knock(self, host: str, port: int, pin: str) -> bytes:
        self.knocked.append((host, port, pin))
        if host in self._deaf:
            raise Unreachable("Nobody answers.")
        return b""

    def come(self, position: int, peer: str = "", **shares: object) -> Guest:
        guest = Guest(position, peer or f"192.0.2.{position}:999")
        self.spread.hear(guest, Shares(**shares))  # type: ignore[arg-type]
        return guest


def lived(story: Callable[[House], Awaitable[None]], **house: object) -> None:
    @contextlib.asynccontextmanager
    async def running(there: House) -> AsyncIterator[None]:
        task = asyncio.create_task(there.spread.run())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def main() -> None:
        there = House(**house)  # type: ignore[arg-type]
        async with running(there):
            await story(there)

    run_virtual(main())


def test_one_of_two_is_told_where_to_dial_the_other_after_it_was_dialled_back() -> None:
    async def story(house: House) -> None:
        first, second = house.come(1, port=7001), house.come(2)
        heard, told = await first.told(), await second.told()
        assert house.knocked == [("192.0.2.1", 7001, first.id)]
        assert [n.routes for n in heard.neighbours] == [()]
        assert [(n.id, n.routes) for n in told.neighbours] == [(first.id, ("192.0.2.1:7001",))]
        assert told.shards == heard.shards == ((0, 4),)

    lived(story)


def test_addresses_of_its_own_are_for_members_of_the_same_network_only() -> None:
    async def story(house: House) -> None:
        here = house.come(1, "198.51.100.7:1", port=7001, addresses=("192.168.0.4:7001",))
        beside, afar = house.come(2, "198.51.100.7:2"), house.come(3)
        await here.told()
        near, far = await beside.told(), await afar.told()
        assert [n.routes for n in near.neighbours if n.id == here.id] == [("192.168.0.4:7001",)]
        assert all(not n.routes for n in far.neighbours)

    lived(story, deaf=("198.51.100.7",))


def test_who_comes_through_a_relay_is_dialled_by_nobody() -> None:
    async def story(house: House) -> None:
        guest = house.come(1, "relay 192.0.2.99:8702", port=7001)
        assert (await guest.told()).neighbours == ()
        assert house.knocked == []

    lived(story)


def test_the_hosts_own_worker_and_who_has_not_said_that_it_shares_take_no_part() -> None:
    async def story(house: House) -> None:
        own = house.come(0, port=7001)
        house.spread.hear(own, Feed(until=5, wants=ALL))
        stranger = Guest(4, "192.0.2.4:1")
        house.spread.hear(stranger, Feed(until=5, wants=ALL))
        house.spread.hear(stranger, Holds(chunks=(1,)))
        await asyncio.sleep(5)
        assert own.sent == stranger.sent == house.knocked == []

    lived(story)


def test_no_more_is_sent_than_there_is_room_for() -> None:
    async def story(house: House) -> None:
        guest = house.come(1)
        house.spread.hear(guest, Feed(until=3, wants=ALL))
        await asyncio.sleep(5)
        assert len(set(guest.sent)) == len(guest.sent) == 3
        house.spread.hear(guest, Feed(until=99))
        await asyncio.sleep(5)
        assert len(set(guest.sent)) == len(guest.sent) == 8

    lived(story)


def test_whom_two_neighbours_accuse_is_nobodys_neighbour(caplog: pytest.LogCaptureFixture) -> None:
    async def story(house: House) -> None:
        guests = [house.come(n, port=7000 + n) for n in (1, 2, 3)]
        for guest in guests:
            await guest.told()
        await asyncio.sleep(1)
        for guest in guests[1:]:
            house.spread.hear(guest, Holds(flows=(Flow(position=1, bad=1),)))
        await asyncio.sleep(1)
        assert house.spread.crowd.links[1].neighbours == ()
        assert house.spread.crowd.links[2].neighbours == (3,)

    lived(story)
    assert [r for r in caplog.records if "passes wrong bytes on" in r.message]


def test_numbers_as_ranges() -> None:
    assert ranges(()) == ()
    assert ranges((0, 1, 2, 5, 7, 8)) == ((0, 3), (5, 6), (7, 9))
