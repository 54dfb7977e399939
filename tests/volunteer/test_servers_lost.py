"""Servers that are not there, go away or talk nonsense: the conversation is lost, nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from crowdgrad.domain.routes import Whereabouts
from crowdgrad.domain.work import LocalSteps
from crowdgrad.errors import (
    ConnectionLost,
    CrowdgradError,
    FrameError,
    NotDialled,
    PeerError,
    TurnedAway,
    Unreachable,
)
from crowdgrad.net.framing import pack
from crowdgrad.net.messages import (
    Entered,
    Fresh,
    Grant,
    Message,
    Pulled,
    Push,
    Wait,
)
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.inproc import InprocConnection, InprocNetwork, pair
from crowdgrad.volunteer.conversation import Conversation
from crowdgrad.volunteer.gatekeeper import for_the_host
from crowdgrad.volunteer.parts import parts_of
from crowdgrad.volunteer.servers import DIAL_S, dial, reached
from tests.net.message_examples import VOLUNTEER
from tests.volunteer.server_house import (
    ADMIT,
    PROGRAM,
    STATE_BYTES,
    House,
    Server,
    as_it_is,
    grant,
    local,
    run,
    update,
    version,
)


def last_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def lose(
    house: House, says: Callable[[Server, Push], Awaitable[None]]
) -> BaseException | None:
    """Server 1 does that with a push, the others and the host nothing; what it comes to."""
    asking: asyncio.Task[Grant | Wait] | None = None
    try:
        async with house.open() as lane_of:
            await house.begins(lane_of(0), version(0))
            house.into[:] = bytes(STATE_BYTES)
            asking = house.asks(lane_of(0), update(1))
            push, _ = await house.servers[1].hears()
            await says(house.servers[1], push)
            await asyncio.sleep(60)
    except BaseExceptionGroup as group:
        assert asking is not None
        with pytest.raises(PeerError):
            await asking
        others = [house.servers[n].connection for n in (0, 2)]
        assert all(
            isinstance(other, InprocConnection) and other._inbox.error is not None
            for other in others
        ), "the others are left, too"
        return last_error(group)
    return None


async def wrong(
    answers: Callable[[Push], list[tuple[Message, bytes]]], steps: LocalSteps | None = None
) -> tuple[House, BaseException | None]:
    house = House(steps)

    async def says(server: Server, push: Push) -> None:
        for message, payload in answers(push):
            await server.says(message, payload)

    return house, await lose(house, says)


def pulled(push: Push, ticket: int | None = None) -> Pulled:
    return Pulled(ticket=push.ticket if ticket is None else ticket, base=version(1))


@pytest.mark.parametrize(
    "answers",
    [
        lambda push: [(pulled(push), b"1234567")],
        lambda push: [(pulled(push), b"123456789")],
        lambda push: [(pulled(push), bytes(STATE_BYTES))],
        lambda push: [(pulled(push), b"")],
        lambda push: [(pulled(push, ticket=99), bytes(8))],
        lambda push: [(pulled(push, ticket=99), b"")],
        lambda push: [(grant(1, version(1)), bytes(8))],
        lambda push: [(grant(1, version(1)), b"")],
        lambda push: [(Fresh(ticket=push.ticket, base=version(1)), bytes(8))],
        lambda push: [(Entered(), b"")],
    ],
)
def test_an_answer_that_makes_no_sense_loses_the_conversation(
    answers: Callable[[Push], list[tuple[Message, bytes]]],
) -> None:
    async def main() -> None:
        house, error = await wrong(answers)
        assert isinstance(error, FrameError)
        assert bytes(house.into) == bytes(STATE_BYTES), "nothing was written"

    run(main)


def test_a_second_answer_changes_nothing_and_loses_the_conversation() -> None:
    async def twice(server: Server, push: Push) -> None:
        """In one piece, so that nobody has seen the first when the second comes."""
        there = server.connection
        assert isinstance(there, InprocConnection)
        assert there._twin is not None
        frame = pack(pulled(push), 8)
        there._twin._arrive(frame + b"A" * 8 + frame + b"B" * 8)

    async def main() -> None:
        house = House()
        assert isinstance(await lose(house, twice), FrameError)
        assert bytes(house.into) == bytes(8) + b"A" * 8 + bytes(STATE_BYTES - 16)

    run(main)


def test_parameters_nobody_wanted_are_refused() -> None:
    async def main() -> None:
        steps = local(fetch_every=2)  # the replica goes on from its own weights
        house, error = await wrong(lambda push: [(pulled(push), bytes(8))], steps)
        assert isinstance(error, FrameError)
        assert bytes(house.into) == bytes(STATE_BYTES)

    run(main)


def test_a_server_that_falls_silent_loses_the_conversation() -> None:
    async def main() -> None:
        house, error = await wrong(lambda push: [])
        assert isinstance(error, ConnectionLost)
        assert "silent" in str(error)
        assert bytes(house.into) == bytes(STATE_BYTES)

    run(main)


def test_a_server_that_goes_away_in_the_middle_of_its_answer_loses_the_conversation() -> None:
    async def goes(server: Server, push: Push) -> None:
        gone = server.connection
        assert isinstance(gone, InprocConnection)
        assert gone._twin is not None
        gone._twin._arrive(pack(pulled(push), 8) + b"half")
        await asyncio.sleep(0)
        gone.close()

    async def main() -> None:
        assert isinstance(await lose(House(), goes), ConnectionLost)

    run(main)


async def fails_to_open(house: House) -> CrowdgradError:
    with pytest.raises(CrowdgradError) as caught:
        async with house.open():
            raise AssertionError("it is open")
    await asyncio.sleep(0.1)
    ends = [server.connection for server in house.servers if server.connection is not None]
    assert all(isinstance(end, InprocConnection) and end._closed.is_set() for end in ends)
    return caught.value


def test_one_that_does_not_let_us_in_is_a_connection_lost() -> None:
    """Not a word of the host that we are not wanted: we come back."""

    async def main() -> None:
        house = House()
        house.servers[2].refuses = True
        error = await fails_to_open(house)
        assert isinstance(error, ConnectionLost)
        assert "s:3" in error.message
        assert "I do not know you" in error.message

    run(main)


def test_one_that_is_not_there_is_a_connection_lost() -> None:
    async def main() -> None:
        house = House()

        async def connect(where: Whereabouts) -> Connection:
            network = InprocNetwork() if where.routes[0].port == 2 else house.network
            return await network.dial(where)

        house.connect = connect  # type: ignore[method-assign]
        error = await fails_to_open(house)
        assert isinstance(error, ConnectionLost)
        assert "Nobody answers at s:2" in error.message

    run(main)


def test_dialling_takes_no_longer_than_it_may() -> None:
    async def main() -> None:
        house = House()
        for server in house.servers:
            server.silent = True

        async def slowly(where: Whereabouts) -> Connection:
            await asyncio.sleep(DIAL_S * 0.8)
            return await house.network.dial(where)

        house.connect = slowly  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        error = await fails_to_open(house)
        assert isinstance(error, ConnectionLost)
        assert asyncio.get_running_loop().time() - began < DIAL_S + 1

    run(main)


@pytest.mark.parametrize("found", ["127.0.0.1", "192.168.1.1", "100.64.0.5", "0.0.0.0"])
def test_a_name_that_turns_out_to_be_near_us_is_not_dialled(found: str) -> None:
    async def main() -> None:
        house = House(servers=1)

        async def resolve(name: str) -> tuple[str, ...]:
            return ("8.8.8.8", found)

        near, far = pair()
        near.peer = "8.8.4.4:8701"
        parts = parts_of(house.places(), PROGRAM, "fp32", host="8.8.4.4")
        with pytest.raises(NotDialled) as caught:
            async with reached(
                Conversation(near), ADMIT, parts, VOLUNTEER,
                connect=_nobody, resolve=resolve, bases={},
            ):  # fmt: skip
                raise AssertionError("it is open")
        assert found not in for_the_host(caught.value)
        far.close()

    run(main)


def test_where_the_host_keeps_the_parameters_it_is_talked_to_itself() -> None:
    async def main() -> None:
        near, _ = pair()
        talk = Conversation(near)
        async with reached(
            talk, ADMIT, (), VOLUNTEER, connect=_nobody, resolve=as_it_is, bases={}
        ) as lane_of:
            assert lane_of(0) is talk

    run(main)


async def _nobody(where: Whereabouts) -> Connection:
    raise AssertionError("nobody is to be dialled")


def test_what_is_dialled_is_an_address_that_was_looked_at() -> None:
    """Not the name: it could stand for another one by then."""

    async def main() -> None:
        house, dialled = House(servers=1), []

        async def resolve(name: str) -> tuple[str, ...]:
            assert name == "s"
            return ("192.0.2.1", "192.0.2.2")

        async def connect(where: Whereabouts) -> Connection:
            (route,) = where.routes
            dialled.append(route.host)
            if route.host == "192.0.2.1":
                raise Unreachable("Nobody answers.")
            return await house.network.connect("s", route.port)

        await house.network.listen("s", 1, house.servers[0].serve)
        parts = parts_of(house.places(), PROGRAM, "fp32", host="h")
        (link,) = await dial(parts, VOLUNTEER, connect=connect, resolve=resolve, host="h")
        assert dialled == ["192.0.2.1", "192.0.2.2"]
        link.connection.close()

    run(main)


def test_a_server_that_lets_us_go_is_no_reason_to_leave_the_job() -> None:
    async def says(server: Server, push: Push) -> None:
        assert server.connection is not None
        server.connection.refuse(TurnedAway("That admission is over."))

    async def main() -> None:
        error = await lose(House(), says)
        assert isinstance(error, ConnectionLost)
        assert "admission" in str(error)
        assert "admission" not in for_the_host(error)

    run(main)
