"""What a volunteer agrees to when it exchanges data: where it dials, what its host is told."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from crowdgrad.domain.routes import route_of
from crowdgrad.errors import PortBusy
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Shares
from crowdgrad.net.nearby import Place
from crowdgrad.net.transport.base import Connection, Listener, OnConnection
from crowdgrad.replication.sharing import Manner
from crowdgrad.volunteer.sharing import Sharing, _listen, may_dial

HERE = (
    Place(address="127.0.0.1", prefix=8, interface=1),
    Place(address="192.168.7.5", prefix=24, interface=2),
    Place(address="2001:db8:1::5", prefix=64, interface=2),
)


@pytest.mark.parametrize(
    ("route", "host", "may"),
    [
        ("8.8.4.4:7000", "8.8.8.8", True),  # somewhere, as the host is
        ("192.168.7.9:7000", "8.8.8.8", True),  # another member of our own network
        ("192.168.7.5:7000", "8.8.8.8", False),  # this machine
        ("192.168.8.9:7000", "8.8.8.8", False),  # a network we are not in
        ("10.0.0.1:7000", "8.8.8.8", False),
        ("127.0.0.1:7000", "8.8.8.8", False),
        ("127.0.0.1:7000", "127.0.0.1", True),  # all are on one machine
        ("10.0.0.1:7000", "10.0.0.2", True),  # a host of that network knows it
        ("127.0.0.1:7000", "10.0.0.2", False),
        ("127.0.0.1:7000", "relay.example.org", False),  # nobody knows where that is
        ("10.0.0.1:7000", "relay.example.org", False),
        ("8.8.4.4:7000", "relay.example.org", True),
        ("relay:8.8.4.4:7000", "8.8.8.8", False),
        ("localhost:7000", "8.8.8.8", False),
        ("a.name.example.org:7000", "8.8.8.8", False),  # that may stand for any
    ],
)
def test_a_host_sends_nobody_into_its_own_network(route: str, host: str, may: bool) -> None:
    assert may_dial(route_of(route), host, HERE) is may


class Door:
    address = ("::", 7431)

    async def close(self) -> None:
        return None


async def _nobody(connection: Connection) -> None:
    return None


def _told(sharing: Sharing) -> tuple[Shares, list[str]]:
    notes: list[str] = []

    async def story() -> Shares:
        async with contextlib.AsyncExitStack() as stack:
            return await _listen(sharing, _nobody, stack, notes.append)

    return asyncio.run(story()), notes


def _sharing(listen: object = None, manner: Manner = Manner()) -> Sharing:  # noqa: B008 (frozen)
    async def connect(where: object) -> Connection:
        raise AssertionError("nobody is dialled")

    return Sharing(
        key=guest(),
        software="test",
        connect=connect,
        random01=lambda: 0.5,
        listen=listen,  # type: ignore[arg-type]
        places=lambda: HERE,
        manner=lambda: manner,
    )


def test_who_only_dials_tells_nobody_an_address() -> None:
    shares, notes = _told(_sharing())
    assert (shares.port, shares.addresses, shares.gives, notes) == (0, (), True, [])


def test_who_listens_tells_its_addresses_but_those_of_its_inside() -> None:
    async def listen(answer: OnConnection) -> Listener:
        return Door()

    shares, _ = _told(_sharing(listen, Manner(gives=False)))
    assert shares.port == 7431
    assert shares.addresses == ("192.168.7.5:7431", "[2001:db8:1::5]:7431")
    assert shares.gives is False


def test_a_port_in_use_is_said_and_the_machine_dials() -> None:
    async def listen(answer: OnConnection) -> Listener:
        raise PortBusy("Port 7431 is in use.", advice="Choose another.")

    shares, notes = _told(_sharing(listen))
    assert shares.port == 0
    assert ["in use" in note for note in notes] == [True]
