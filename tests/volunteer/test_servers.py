"""Parameters kept by servers: whatever comes in whatever order, a slot holds what they sent."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.work import UnitId
from crowdgrad.errors import (
    ConnectionLost,
)
from crowdgrad.net.framing import pack
from crowdgrad.net.messages import (
    Enter,
    Exchange,
    Fetch,
    Fresh,
    GiveBack,
    Grant,
    Pulled,
    Wait,
    expect,
)
from crowdgrad.net.transport.inproc import InprocConnection
from tests.net.message_examples import VOLUNTEER
from tests.volunteer.server_house import (
    SIZES,
    STATE_BYTES,
    UPDATE_BYTES,
    House,
    grant,
    local,
    run,
    unit,
    update,
    version,
)


def test_an_update_goes_out_in_parts_and_the_parameters_come_in_parts() -> None:
    async def main() -> None:
        house = House()
        async with house.open() as lane_of:
            assert [server.entered for server in house.servers] == [
                Enter(volunteer=VOLUNTEER.id, token=f"t{n}") for n in range(3)
            ]
            lane = lane_of(1)
            await house.begins(lane, version(0))
            asking = house.asks(lane, update(1))
            pushes = [await server.hears() for server in house.servers]
            assert b"".join(payload for _, payload in pushes) == bytes(range(UPDATE_BYTES))
            assert all((p.unit, p.lane, p.wants, p.base) == (1, 1, True, version(0))
                       for p, _ in pushes)  # fmt: skip
            ask = await house.host_hears()
            await house.host.send(grant(ask.ticket, version(1)))
            for n, (push, _) in enumerate(pushes):
                assert not asking.done(), "not before all of it is there"
                pulled = Pulled(ticket=push.ticket, base=version(1))
                await house.servers[n].says(pulled, bytes([65 + n]) * SIZES[n])
            answer = await asking
            assert isinstance(answer, Grant)
            assert answer.verdict == "accepted"
            assert bytes(house.into) == b"A" * 8 + b"B" * 8 + b"C" * SIZES[2]
            assert bytes(house.whole) == bytes(STATE_BYTES)

    run(main)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_the_interleaving_a_slot_holds_exactly_what_the_servers_sent(
    data: st.DataObject,
) -> None:
    """Two lanes at once; host and servers answer whom they like, in pieces of any size."""

    async def main() -> None:
        house = House()
        async with house.open() as lane_of:
            slots = [memoryview(bytearray(STATE_BYTES)) for _ in range(2)]
            asking = [
                asyncio.create_task(
                    lane_of(n).exchange(
                        Exchange(update=update(n)), bytes([n]) * UPDATE_BYTES, slots[n], slots[n]
                    )
                )
                for n in range(2)
            ]
            answers: list[tuple[InprocConnection, bytes]] = []
            for _ in range(2):
                ask = await house.host_hears()
                assert ask.update is not None
                said = grant(ask.ticket, version(1))
                said = msgspec.structs.replace(said, unit=unit(ask.update.unit))
                answers.append((house.host, pack(said)))
            for number, server in enumerate(house.servers):
                for _ in range(2):
                    push, payload = await server.hears()
                    assert push.unit is not None
                    assert payload == bytes([push.unit]) * len(payload)
                    fill = bytes([16 * push.unit + number]) * SIZES[number]
                    pulled = pack(Pulled(ticket=push.ticket, base=version(1)), len(fill))
                    assert isinstance(server.connection, InprocConnection)
                    answers.append((server.connection, pulled + fill))
            for connection, frame in data.draw(st.permutations(answers)):
                cut = data.draw(st.integers(0, len(frame)))
                assert connection._twin is not None
                for piece in (frame[:cut], frame[cut:]):
                    if piece:
                        connection._twin._arrive(piece)
                    await asyncio.sleep(0)
            for n, answer in enumerate(await asyncio.gather(*asking)):
                assert isinstance(answer, Grant)
                assert answer.unit.id == n
                assert bytes(slots[n]) == b"".join(
                    bytes([16 * n + number]) * size for number, size in enumerate(SIZES)
                )

    run(main)


def test_nothing_is_pulled_while_there_is_no_unit() -> None:
    async def main() -> None:
        house = House()
        async with house.open() as lane_of:
            lane = lane_of(0)
            for _ in range(3):
                asking = house.asks(lane)
                ask = await house.host_hears()
                await house.host.send(Wait(ticket=ask.ticket, reason="paused", seconds=1))
                assert isinstance(await asking, Wait)
            assert house.nobody_is_asked()
            await house.begins(lane, version(3))

    run(main)


def test_an_evaluation_is_fetched_from_the_host_and_the_servers_are_left_in_peace() -> None:
    async def main() -> None:
        house = House()
        async with house.open() as lane_of:
            asking = house.asks(lane_of(0))
            ask = await house.host_hears()
            await house.host.send(grant(ask.ticket, version(5), kind="validate"))
            fetch = expect((await house.host.receive())[0], Fetch)
            await house.host.send(Fresh(ticket=fetch.ticket, base=version(5)), b"e" * STATE_BYTES)
            assert isinstance(await asking, Grant)
            assert house.nobody_is_asked()
            assert (bytes(house.whole), bytes(house.into)) == (
                b"e" * STATE_BYTES, bytes(STATE_BYTES))  # fmt: skip

    run(main)


def test_in_rounds_parameters_are_pulled_once_a_unit_is_granted_and_not_before() -> None:
    """The servers answer when an update is merged; the round ends later."""

    async def main() -> None:
        house = House(in_step=True)
        async with house.open() as lane_of:
            lane = lane_of(0)
            await house.begins(lane, version(0))
            for count in (1, 2):
                asking = house.asks(lane, update(count))
                pushes = await house.all_serve(version(count - 1))
                assert [(p.wants, p.base) for p in pushes] == [(False, version(count - 1))] * 3
                await house.host.send(grant((await house.host_hears()).ticket, version(count)))
                pulls = await house.all_serve(version(count), bytes([count]))
                assert [(p.unit, p.since) for p in pulls] == [(None, version(count))] * 3
                await asking
                assert bytes(house.into) == bytes([count]) * STATE_BYTES

    run(main)


def test_otherwise_what_comes_with_the_verdict_is_worked_from() -> None:
    """Also where it is a little older, or a copy that counts for itself."""

    async def main() -> None:
        house = House(servers=1)
        async with house.open() as lane_of:
            server, lane = house.servers[0], lane_of(0)
            asking = house.asks(lane)
            await house.host.send(grant((await house.host_hears()).ticket, version(100)))
            await server.serves(version(50), b"c", STATE_BYTES)
            await asking
            for count in (51, 52):
                asking = house.asks(lane, update(count))
                await house.host.send(grant((await house.host_hears()).ticket, version(2 * count)))
                push = await server.serves(version(count), b"d", STATE_BYTES)
                assert (push.wants, push.base) == (True, version(count - 1))
                await asking
            assert server.heard.empty()
            assert bytes(house.into) == b"d" * STATE_BYTES

    run(main)


def test_after_the_host_went_back_nothing_from_before_is_worked_from() -> None:
    async def main() -> None:
        house = House()
        async with house.open() as lane_of:
            lane = lane_of(0)
            await house.begins(lane, version(9))
            asking = house.asks(lane, update(1))
            await house.all_serve(version(10), b"o")
            back = version(4, incarnation=1)
            await house.host.send(grant((await house.host_hears()).ticket, back))
            assert all(push.since == back for push in await house.all_serve(back, b"n"))
            await asking
            assert bytes(house.into) == b"n" * STATE_BYTES
            asking = house.asks(lane)
            later = version(4, incarnation=2)
            await house.host.send(grant((await house.host_hears()).ticket, later))
            await house.all_serve(version(11), b"x")  # it stays behind
            with pytest.raises(ConnectionLost, match=r"host is at version 2\.4"):
                await asking

    run(main)


def test_a_chain_pulls_nothing_in_its_middle_unless_it_is_broken() -> None:
    async def main() -> None:
        house = House(local(batches_per_unit=1, fetch_every=3))
        async with house.open() as lane_of:
            lane = lane_of(0)
            await house.begins(lane, version(0))
            asking = house.asks(lane, update(1, link=0))
            assert [(p.wants, p.link) for p in await house.all_serve(version(1))] == [
                (False, 0)
            ] * 3
            await house.host.send(grant((await house.host_hears()).ticket, version(0), link=1))
            await asking
            assert house.nobody_is_asked()
            asking = house.asks(lane, update(2, link=1))
            pushes = await house.all_serve(version(2))
            assert [(p.wants, p.link, p.base) for p in pushes] == [(False, 1, version(0))] * 3
            await house.host.send(grant((await house.host_hears()).ticket, version(2)))
            await house.all_serve(version(2), b"b")  # it was broken: from the beginning
            await asking
            assert bytes(house.into) == b"b" * STATE_BYTES
            asking = house.asks(lane, update(3, link=2))
            assert all(p.wants and p.base == version(2) for p in await house.all_serve(version(3)))
            await house.host.send(grant((await house.host_hears()).ticket, version(3)))
            await asking

    run(main)


def test_a_fetch_in_the_middle_of_a_unit_asks_the_servers_and_gives_no_new_base() -> None:
    async def main() -> None:
        house = House()
        async with house.open() as lane_of:
            lane = lane_of(0)
            await house.begins(lane, version(0))
            fetching = asyncio.create_task(lane.fetch(house.into))
            pushes = await house.all_serve(version(7), b"f")
            assert all((p.unit, p.wants, p.since) == (None, True, None) for p in pushes)
            await fetching
            assert bytes(house.into) == b"f" * STATE_BYTES
            assert house.bases == {0: (version(0),) * 3}

    run(main)


def test_what_a_unit_started_from_is_known_on_the_next_connection_too() -> None:
    async def main() -> None:
        house = House()
        async with house.open() as lane_of:
            await house.begins(lane_of(0), version(4))
        for server in house.servers:
            server.heard = asyncio.Queue()
        async with house.open() as lane_of:
            house.asks(lane_of(0), update(1))
            pushes = [await server.hears() for server in house.servers]
            assert [push.base for push, _ in pushes] == [version(4)] * 3
            assert b"".join(payload for _, payload in pushes) == bytes(range(UPDATE_BYTES))

    run(main)


def test_other_servers_have_not_sent_what_a_unit_started_from() -> None:
    async def main() -> None:
        house = House(servers=2)
        house.bases[0] = (version(1),)
        async with house.open() as lane_of:
            house.asks(lane_of(0), update(1))
            pushes = [await server.hears() for server in house.servers]
            assert [push.base for push, _ in pushes] == [None, None]

    run(main)


def test_units_are_given_back_to_the_host() -> None:
    async def main() -> None:
        house = House()
        async with house.open() as lane_of:
            await lane_of(0).give_back(UnitId(3), "no")
            assert (await house.host.receive())[0] == GiveBack(unit=UnitId(3), reason="no")

    run(main)
