"""Neighbours that break the rules: each is told why, let go, and harms nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.routes import at
from crowdgrad.domain.spreading import Neighbour
from crowdgrad.errors import PeerError
from crowdgrad.net.identity import Identity, from_seed
from crowdgrad.net.messages import (
    Blob,
    Exchange,
    Get,
    Have,
    Lack,
    Meet,
    Message,
    Met,
    Neighbours,
    Unget,
)
from crowdgrad.net.transport.base import Connection
from crowdgrad.replication.peer import dial
from tests.replication.crowd_world import JOB, Member, World, opened
from tests.virtual_time import run_virtual

STRANGER: Identity = from_seed(b"\7" * 32)
NOWHERE = ChunkHash("0" * 64)
Deed = Callable[[World, Connection], Awaitable[None]]


async def known(world: World, member: Member) -> Connection:
    """A connection of a stranger that the host has named as a neighbour."""
    links = Neighbours(neighbours=(Neighbour(position=99, id=STRANGER.id),), shards=((0, 8),))
    member.sharer.arranged(links)
    connection = await world.network.dial(at(*member.address))
    await dial(connection, STRANGER, JOB, software="hostile", pin=member.id)
    connection.set_sink(lambda message, length: memoryview(bytearray(length)))
    return connection


async def end_of(connection: Connection) -> str:
    """What it is told before it is over."""
    async with asyncio.timeout(60):
        while True:
            try:
                await connection.receive()
            except PeerError as error:
                return error.message


async def a_chunk_nobody_asked_for(world: World, connection: Connection) -> None:
    name, raw = next(iter(world.blobs.items()))
    await connection.send(Blob(hash=name), raw)


async def a_chunk_that_does_not_exist(world: World, connection: Connection) -> None:
    await connection.send(Blob(hash=NOWHERE), bytes(100))


async def a_chunk_of_another_size(world: World, connection: Connection) -> None:
    await connection.send(Have(chunks=tuple(range(16))))
    while True:
        message, _ = await connection.receive()
        if isinstance(message, Get):
            await connection.send(Blob(hash=message.hash), bytes(199))
            return


async def more_asks_than_there_may_be(world: World, connection: Connection) -> None:
    for name in list(world.blobs) * 10:
        await connection.send(Get(hash=name))


async def what_only_members_say_to_hosts(world: World, connection: Connection) -> None:
    await connection.send(Exchange())


@pytest.mark.parametrize(
    "deed",
    [
        a_chunk_nobody_asked_for,
        a_chunk_that_does_not_exist,
        a_chunk_of_another_size,
        more_asks_than_there_may_be,
        what_only_members_say_to_hosts,
    ],
)
def test_it_is_let_go_with_a_reason_and_the_others_go_on(deed: Deed) -> None:
    async def story() -> None:
        async with opened(World()) as world:
            member = await world.add()
            if deed is not a_chunk_of_another_size:
                await world.all_have_all()
            connection = await known(world, member)
            telling = asyncio.create_task(deed(world, connection))
            await asyncio.sleep(1)
            await asyncio.gather(telling, return_exceptions=True)
            assert await end_of(connection)
            assert 99 not in member.sharer.peers
            await world.all_have_all()
            assert all(member.chunks.get(name) == raw for name, raw in world.blobs.items())

    run_virtual(story())


def _meets(key: bytes, signature: bytes) -> tuple[Meet, ...]:
    return (
        Meet(job=JOB, key=key, signature=bytes(64)),
        Meet(job=type(JOB)("another-job"), key=key, signature=signature),
    )


@pytest.mark.parametrize("which", [0, 1])
def test_who_proves_nothing_or_comes_for_another_job_does_not_come_in(which: int) -> None:
    from crowdgrad.net import handshake

    async def story() -> None:
        async with opened(World()) as world:
            member = await world.add()
            links = Neighbours(neighbours=(Neighbour(position=99, id=STRANGER.id),))
            member.sharer.arranged(links)
            connection = await world.network.dial(at(*member.address))
            welcome, _ = await handshake.greet(connection, "hostile", b"c" * 32, member.id)
            signature = STRANGER.sign(welcome.challenge, connection.binding)
            await connection.send(_meets(STRANGER.public, signature)[which])
            assert await end_of(connection)
            assert member.sharer.peers == ()

    run_virtual(story())


NUMBERS = st.lists(st.integers(0, 1 << 20), max_size=20).map(tuple)
HASHES = st.one_of(st.just(NOWHERE), st.integers(0, 15))
WORDS: st.SearchStrategy[object] = st.one_of(
    st.builds(Have, chunks=NUMBERS, lost=NUMBERS),
    st.builds(Have, whole=st.binary(max_size=50)),
    st.tuples(st.just(Get), HASHES),
    st.tuples(st.just(Unget), HASHES),
    st.tuples(st.just(Lack), HASHES),
    st.just(Met()),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(WORDS, max_size=30))
def test_whatever_a_neighbour_says_the_member_gets_its_data(words: list[object]) -> None:
    async def story() -> None:
        async with opened(World()) as world:
            member = await world.add()
            connection = await known(world, member)
            names = list(world.blobs)
            for word in words:
                try:
                    await connection.send(_message(word, names))
                except PeerError:
                    break  # it has been let go
            await world.all_have_all()
            assert all(member.chunks.get(name) == raw for name, raw in world.blobs.items())

    run_virtual(story())


def _message(word: object, names: list[ChunkHash]) -> Message:
    if isinstance(word, Message):
        return word
    assert isinstance(word, tuple)
    kind, which = word
    name = which if isinstance(which, str) else names[which]
    made: Message = kind(hash=name, reason="no") if kind is Lack else kind(hash=name)
    return made
