"""The machines that tests make do what is said of them."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.namespaces import Machine, Net, Trouble, needs, needs_namespaces

pytestmark = needs_namespaces
PORT = 8701


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    with Net(tmp_path) as net:
        net.add("a", "10.77.0.2")
        net.add("b", "10.77.0.3")
        yield net


def listen(machine: Machine) -> socket.socket:
    with machine.inside():
        return socket.create_server(("0.0.0.0", PORT))


def test_they_reach_each_other_and_faults_come_and_go(net: Net) -> None:
    a, b = net["a"], net["b"]
    with listen(a):
        assert b.reaches("10.77.0.2", PORT)
        assert not b.reaches("10.77.0.2", PORT + 1)
        for fault, end in (
            (a.drop_inbound, a.allow_inbound),
            (a.cut, a.mend),
            (a.drop_incoming, a.mend),
            (a.drop_outgoing, a.mend),
            (b.drop_incoming, b.mend),
        ):
            fault()
            fault()  # twice is as once
            assert not b.reaches("10.77.0.2", PORT, seconds=0.2)
            end()
            end()
            assert b.reaches("10.77.0.2", PORT, seconds=5.0)


def test_behind_its_wall_a_machine_still_gets_answers(net: Net) -> None:
    net["b"].drop_inbound()
    with listen(net["a"]) as listening:
        with net["b"].inside():
            ours = socket.create_connection(("10.77.0.2", PORT), timeout=5)
        theirs, _ = listening.accept()
        with ours, theirs:
            theirs.sendall(b"hello")
            assert ours.recv(5) == b"hello"


def test_an_address_can_change(net: Net) -> None:
    with listen(net["a"]):
        net["a"].readdress("10.77.0.9")
        assert net["b"].reaches("10.77.0.9", PORT)
        assert not net["b"].reaches("10.77.0.2", PORT, seconds=0.2)
        assert net["a"].address == "10.77.0.9"


def test_a_rate_can_be_set_and_lifted(net: Net) -> None:
    with listen(net["a"]):
        net["a"].rate("20mbit")
        net["a"].rate("10mbit")
        assert net["b"].reaches("10.77.0.2", PORT)
        net["a"].rate("")
        net["a"].rate("")
        assert net["b"].reaches("10.77.0.2", PORT)


def test_multicast_passes(net: Net) -> None:
    group = "224.0.0.251"
    with net["a"].inside():
        hearing = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        hearing.bind(("", 5353))
        hearing.setsockopt(
            socket.IPPROTO_IP,
            socket.IP_ADD_MEMBERSHIP,
            socket.inet_aton(group) + socket.inet_aton("10.77.0.2"),
        )
    hearing.settimeout(10)
    with net["b"].inside():
        telling = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with hearing, telling:
        telling.sendto(b"anybody?", (group, 5353))
        said, (where, _) = hearing.recvfrom(100)
    assert (said, where) == (b"anybody?", "10.77.0.3")


def test_processes_live_there_with_a_home_of_their_own(net: Net, tmp_path: Path) -> None:
    said = net["a"].run(["python", "-c", "import crowdgrad, os; print(os.environ['HOME'])"])
    assert said == f"{tmp_path / 'a'}\n"
    assert "10.77.0.2" in net["a"].run(["ip", "address"])
    with pytest.raises(Trouble, match="no good"):
        net["a"].run(["python", "-c", "raise SystemExit('no good')"])
    child = net["a"].popen(["python", "-c", "print('here'); input()"], stdin=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"


def test_nothing_is_left(tmp_path: Path) -> None:
    with Net(tmp_path) as net:
        child = net.add("a", "10.77.0.2").popen(
            ["python", "-c", "import subprocess; subprocess.run(['sleep', '600'])"]
        )
    assert child.returncode is not None
    assert net.name not in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout


@needs("tcpdump")
def test_packets_can_be_written_down(net: Net, tmp_path: Path) -> None:
    capture = net["a"].capture(tmp_path / "a.pcap", "tcp")
    with listen(net["a"]) as listening:
        with net["b"].inside():
            ours = socket.create_connection(("10.77.0.2", PORT), timeout=5)
        theirs, _ = listening.accept()
        with ours, theirs:
            ours.sendall(b"in the clear")
            assert theirs.recv(100) == b"in the clear"
    assert b"in the clear" in capture.stop()
    assert capture.stop() == (tmp_path / "a.pcap").read_bytes()


def test_two_cables_on_two_switches(net: Net) -> None:
    far = net.add("far", "203.0.113.2", link="wan")
    assert net["a"].join("wan", "203.0.113.1") == "eth1"
    with listen(far):
        assert net["a"].reaches("203.0.113.2", PORT)
        assert not net["b"].reaches("203.0.113.2", PORT, seconds=0.2)
