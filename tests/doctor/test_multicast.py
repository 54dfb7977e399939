"""Asking our own networks for hosts: the question, whom it is put to, and whether we hear it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from zeroconf import DNSIncoming

from crowdgrad.doctor import multicast
from crowdgrad.doctor.multicast import question
from crowdgrad.net import lan
from crowdgrad.net.nearby import SERVICE, Place
from tests.namespaces import Machine, Net, needs_namespaces

HOME = Place(address="192.168.1.5", prefix=24, interface=2)
ALSO_HOME = Place(address="192.168.7.5", prefix=24, interface=2)
TUNNEL = Place(address="10.8.0.2", prefix=24, interface=3)
SIX = Place(address="fd00::2", prefix=64, interface=2)
INSIDE = Place(address="127.0.0.1", prefix=8, interface=1)
WAIT_S = 30.0


def test_the_question_is_one_that_others_understand() -> None:
    read = DNSIncoming(question(0x1234))
    assert read.valid
    assert read.is_query()
    assert read.id == 0x1234
    assert [(one.name, one.type, one.class_) for one in read.questions] == [(SERVICE, 12, 1)]


@pytest.mark.parametrize(
    ("places", "leaves_by", "asked"),
    [
        ((), (), ()),
        ((HOME, SIX, TUNNEL), (), (HOME, TUNNEL)),
        ((HOME, SIX, TUNNEL), ("10.8.0.2", "fd00::2"), (TUNNEL, HOME)),
        ((HOME, ALSO_HOME), ("192.168.7.5",), (ALSO_HOME,)),
        ((SIX,), (), (SIX,)),
    ],
    ids=["nowhere", "one-of-each", "the-way-out-first", "one-of-an-interface", "only-ipv6"],
)
def test_each_network_is_asked_once_and_the_way_out_first(
    places: tuple[Place, ...], leaves_by: tuple[str, ...], asked: tuple[Place, ...]
) -> None:
    assert multicast.to_ask(places, leaves_by) == asked


def test_not_every_container_of_a_machine_is_asked() -> None:
    many = [Place(address=f"10.0.{n}.1", prefix=24, interface=n) for n in range(1, 40)]
    found = multicast.to_ask(many, ("10.0.39.1",))
    assert len(found) == multicast.MOST_PLACES
    assert found[0].interface == 39


def test_a_machine_without_a_network_asks_nobody() -> None:
    found = multicast.ask(True, here=lambda: ())
    assert (found.asked, found.here) == ((), ())


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (PermissionError(13, "Permission denied"), "permission denied"),
        (OSError(98, "Address already in use"), "another program has UDP port 5353 for itself"),
    ],
    ids=["forbidden", "taken"],
)
def test_what_the_system_does_not_allow_is_said(
    error: OSError, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: socket.socket, where: object) -> None:
        raise error

    monkeypatch.setattr(socket.socket, "bind", refuse)
    (asked,) = multicast.ask(False, here=lambda: (INSIDE,)).asked
    assert (asked.address, asked.trouble) == ("127.0.0.1", trouble)


# -- on networks of our own -----------------------------------------------------------------------


class Ear:
    """Somebody on another machine who hears what is said to the group."""

    def __init__(self, machine: Machine) -> None:
        with machine.inside():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", multicast.PORT))
        member = socket.inet_aton(lan.GROUP_4) + socket.inet_aton(machine.address)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)

    def hears(self) -> bytes:
        """The first that came."""
        self._socket.settimeout(WAIT_S)
        return self._socket.recv(multicast.MOST_BYTES)

    def close(self) -> None:
        self._socket.close()


@needs_namespaces
def test_what_is_asked_is_heard_here_and_there_and_what_stays_here_only_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bytes] = []

    def remembered(number: int) -> bytes:
        said.append(question(number))
        return said[-1]

    monkeypatch.setattr(multicast, "question", remembered)
    with Net(tmp_path) as net:
        ear = Ear(net.add("theirs", "10.77.0.3"))
        try:
            with net.add("ours", "10.77.0.2").inside():
                kept = multicast.ask(False)
                assert [(one.address, one.trouble) for one in kept.asked] == [("10.77.0.2", "")]
                assert "10.77.0.2" in kept.here
                (asked,) = multicast.ask(True).asked
                assert asked.trouble == ""
            assert len(said) == 2
            assert ear.hears() == said[1], "the first should have stayed"
        finally:
            ear.close()


@needs_namespaces
def test_where_there_is_only_ipv6_that_is_asked(tmp_path: Path) -> None:
    def sixes() -> tuple[Place, ...]:
        return tuple(place for place in lan.networks() if place.version == 6)

    with Net(tmp_path) as net, net.add("ours", "10.77.0.2").inside():
        (asked,) = multicast.ask(True, here=sixes).asked
    assert (asked.address[:5], asked.trouble) == ("fe80:", "")


@needs_namespaces
def test_a_firewall_that_lets_nothing_in_is_noticed(tmp_path: Path) -> None:
    with Net(tmp_path) as net:
        ours = net.add("ours", "10.77.0.2")
        ours.run(["nft", "add table inet t; add chain inet t in { type filter hook input priority "
                  "0; }; add rule inet t in udp dport 5353 drop"])  # fmt: skip
        with ours.inside():
            (asked,) = multicast.ask(True).asked
    assert asked.trouble == "it does not hear its own question"


@needs_namespaces
def test_whoever_keeps_the_port_for_itself_is_noticed_and_who_shares_it_is_not(
    tmp_path: Path,
) -> None:
    with Net(tmp_path) as net, net.add("ours", "10.77.0.2").inside():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("", multicast.PORT))
            (asked,) = multicast.ask(False).asked
            assert "for itself" in asked.trouble
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("", multicast.PORT))
            (asked,) = multicast.ask(False).asked
            assert asked.trouble == ""
