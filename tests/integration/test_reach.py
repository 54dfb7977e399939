"""Hosts that nobody can dial, volunteers behind walls: they come together all the same.

Real processes on machines of their own (network namespaces), all of which drop what others begin.
"""

from __future__ import annotations

import itertools
import re
import struct
from pathlib import Path

import msgspec
import pytest
from safetensors.numpy import load_file

from crowdgrad.data.catalogue import load
from crowdgrad.domain.codes import code_of
from crowdgrad.net import framing
from crowdgrad.net import relay_words as words
from crowdgrad.net.messages import Heartbeat, RelayKnock
from tests import web_only
from tests.home_router import home, needs_router
from tests.integration.reach_world import HOST_PORT, RELAY_PORT, TITLE, Host, World, world
from tests.namespaces import needs, needs_namespaces
from tests.wiretap import Stream, is_tls, streams

ADA, BOB = "ada-of-the-attic", "bob-of-the-basement"

pytestmark = [needs_namespaces, pytest.mark.timeout(240)]


def behind_walls(there: World, *names: str) -> None:
    """Machines that drop every connection that others begin."""
    for number, name in enumerate(names, start=20):
        there.add(name, f"10.77.0.{number}").drop_inbound()


# -- through a relay -------------------------------------------------------------------------------


@needs("tcpdump")
def test_three_behind_walls_train_through_a_relay_which_cannot_read_a_word(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        relay = there.relay(there.add("relay", "10.77.0.2"))
        behind_walls(there, "host", ADA, BOB)
        captures = [
            there.net[name].capture(tmp_path / f"{name}.pcap", "tcp")
            for name in ("relay", ADA, BOB, "host")
        ]
        host = there.host(there.net["host"], "--relay", relay.address, "--no-router", volunteers=2)
        assert not there.net[ADA].reaches(there.net["host"].address, HOST_PORT, seconds=0.2)
        volunteers = [there.volunteer(there.net[name], host.link) for name in (ADA, BOB)]
        found = host.to_the_end()
        assert [volunteer.await_end() for volunteer in volunteers] == [0, 0], there.told()
        by_name = {member["name"]: member["samples"] for member in found["members"]}
        assert min(by_name[ADA], by_name[BOB]) > 0
        assert by_name["worker-0"] == 0
        at_relay, *elsewhere = [streams(capture.stop()) for capture in captures]
        asked = [looks_alright(stream) for stream in at_relay]
        assert sorted(asked) == ["Answer", "Answer", "Call", "Call", "Serve"]
        inside_host = [s for s in elsewhere[2] if s.dialler[0] == "127.0.0.1"]
        outside = [s for s in itertools.chain(at_relay, *elsewhere) if s not in inside_host]
        for stream in outside:
            if stream.answered:  # else nobody was there
                looks_alright(stream)
        for name, secret in secrets(host).items():
            assert not any(secret in s.sent + s.answered for s in outside), name
            if name not in (ADA, BOB):  # else this test would look for the wrong bytes
                assert any(secret in s.sent + s.answered for s in inside_host), name


def secrets(host: Host) -> dict[str, bytes]:
    """Bytes that nobody on the way may see, as they stand in plain frames."""
    (model,) = host.run.glob("*.safetensors")
    largest = max(load_file(model).values(), key=len)
    digits = load("digits", cache=Path("unused"), offline=True)
    records = digits.splits["test"][0]
    return {
        "the title": TITLE.encode(),
        "parameters": largest.tobytes()[:64],
        "data": records[0].tobytes(),
        ADA: ADA.encode(),
        BOB: BOB.encode(),
    }


def looks_alright(stream: Stream) -> str:
    """What a connection to a relay was for; all else in it must be sealed."""
    assert stream.listener[1] == RELAY_PORT, stream.listener
    assert stream.sent.startswith(words.MAGIC)
    (_, ask), said = spoken(stream.sent[len(words.MAGIC) :], 2)
    heard, answered = spoken(stream.answered, 2)
    name: str = msgspec.json.decode(ask)["say"]
    assert [msgspec.json.decode(body)["say"] for body in heard] == [
        "Challenge",
        "Registered" if name == "Serve" else "Spliced",
    ]
    for data in (said, answered):
        if name == "Serve":
            assert kinds(data) <= {RelayKnock.kind, Heartbeat.kind}
        else:
            assert data
            assert is_tls(data)
    return name


def spoken(data: bytes, count: int) -> tuple[list[bytes], bytes]:
    """So many words from the beginning, and what follows them."""
    bodies = []
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data)
        bodies.append(data[2 : 2 + length])
        data = data[2 + length :]
    return bodies, data


def kinds(data: bytes) -> set[int]:
    """Of the plain frames in it, none of which may carry anything but a short body."""
    found = set()
    while data:
        header = framing.unpack(data)
        assert header.payload_bytes == 0
        assert header.body_bytes < 64
        found.add(header.kind)
        data = data[framing.HEADER_BYTES + header.body_bytes :]
    return found


@pytest.mark.slow
def test_a_matchmaker_names_the_relay_and_a_code_or_a_link_is_enough(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        relay = there.relay(there.add("relay", "10.77.0.2"))
        matchmaker = there.matchmaker(
            there.add("matchmaker", "10.77.0.3"), "--relay", relay.address
        )
        url = f"http://{matchmaker.address}"
        behind_walls(there, "host", ADA, BOB)
        host = there.host(there.net["host"], "--matchmaker", url, "--no-router", volunteers=2)
        assert "Nobody can dial this machine: volunteers come through a relay" in host.said
        code, link = str(host.here["code"]), host.link
        assert link.startswith(f"{url}/j/")
        there.volunteer(there.net[ADA], code, "--matchmaker", url)
        there.volunteer(there.net[BOB], link)
        found = host.to_the_end()
        by_name = {member["name"]: member["samples"] for member in found["members"]}
        assert min(by_name[ADA], by_name[BOB]) > 0
        assert relay.pairs == 2


# -- a relay that dies -----------------------------------------------------------------------------


@pytest.mark.slow
def test_when_a_relay_is_killed_the_second_takes_over_and_nothing_counts_twice(
    tmp_path: Path,
) -> None:
    with world(tmp_path) as there:
        relays = [there.relay(there.add(f"relay-{n}", f"10.77.0.{n}")) for n in (2, 3)]
        behind_walls(there, "host", ADA, BOB)
        named = [word for relay in relays for word in ("--relay", relay.address)]
        host = there.host(there.net["host"], *named, "--no-router", volunteers=2, epochs=10)
        for relay in relays:
            relay.await_words("host here")
        for name in (ADA, BOB):
            there.volunteer(there.net[name], host.link, pace_ms=30)
        host.await_units(ADA, BOB)
        there.until("each has one way", lambda: sum(relay.open_pairs for relay in relays) == 2)
        other, used = sorted(relays, key=lambda relay: relay.open_pairs)
        hit = used.open_pairs  # both, unless one took so long that another way was tried beside it
        assert hit > 0
        used.kill()
        there.until("both come by the other", lambda: other.open_pairs == 2, host)
        host.await_units(ADA, BOB)
        assert host.joined(ADA) + host.joined(BOB) == 2 + hit, "one reconnect each, and no more"
        host.to_the_end()


@pytest.mark.slow
def test_when_the_only_relay_is_killed_and_started_again_they_go_on(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        relay = there.relay(there.add("relay", "10.77.0.2"))
        behind_walls(there, "host", ADA, BOB)
        host = there.host(
            there.net["host"], "--relay", relay.address, "--no-router", volunteers=2, epochs=10
        )
        for name in (ADA, BOB):
            there.volunteer(there.net[name], host.link, pace_ms=30)
        host.await_units(ADA, BOB)
        relay.kill()
        for name in (ADA, BOB):
            host.await_gone(name)
        relay.start_again()
        host.await_units(ADA, BOB)
        host.to_the_end()
        assert (host.joined(ADA), host.joined(BOB)) == (2, 2)


# -- without a relay -------------------------------------------------------------------------------


@needs_router
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["NAT-PMP", "UPnP"])
def test_a_host_behind_a_home_router_is_reached_by_the_port_it_asked_for(
    tmp_path: Path, protocol: str
) -> None:
    with world(tmp_path) as there, home(there.net, nat_pmp=protocol == "NAT-PMP") as at:
        matchmaker = there.matchmaker(at.outside)
        ada = there.add(ADA, "11.0.0.3", link="wan")
        host = there.host(at.host, "--matchmaker", f"http://{matchmaker.address}")
        assert "the router has opened a port" in host.said
        assert f"Others reach this machine at {at.address}:" in host.said
        assert "dnat" in at.router.run(["nft", "list", "table", "inet", "miniupnpd"])
        volunteer = there.volunteer(ada, host.link)
        found = host.to_the_end()
        assert volunteer.await_end() == 0
        assert {m["name"]: m["samples"] > 0 for m in found["members"]}[ADA]
        assert "dnat" not in at.router.run(["nft", "list", "table", "inet", "miniupnpd"])


@pytest.mark.slow
def test_two_laptops_on_one_link_find_each_other_without_any_server(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        host = there.host(there.add("host", "10.77.0.20"), lan=True)
        ada = there.volunteer(there.add(ADA, "10.77.0.21"), lan=True)
        found = host.to_the_end()
        assert ada.await_end() == 0
        assert f"“{TITLE}” is on the local network." in ada.said
        assert {m["name"]: m["samples"] > 0 for m in found["members"]}[ADA]


@pytest.mark.slow
def test_on_one_link_the_hosts_own_code_is_enough_and_another_leads_nowhere(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        host = there.host(there.add("host", "10.77.0.20"), lan=True)
        (code,) = re.findall(r"on this network +crowdgrad work (\S+)", host.said)
        assert code == code_of(str(host.here["key"]))
        ada, bob = there.add(ADA, "10.77.0.21"), there.add(BOB, "10.77.0.22")
        mistyped = there.volunteer(bob, code[:-1] + ("2" if code[-1] != "2" else "3"), lan=True)
        assert mistyped.await_end() == 1
        assert "cannot be right: a letter is wrong, or two have changed places" in mistyped.said
        somebody_else = there.volunteer(bob, code_of("0123456789abcdef"), lan=True)
        somebody_else.await_words("No host on this network has the code")
        there.volunteer(ada, code.lower().replace("-", " "), lan=True)
        found = host.to_the_end()
        by_name = {m["name"]: m["samples"] for m in found["members"]}
        assert by_name == {"worker-0": 0, ADA: host.epochs * 1294}


# -- where only the web passes ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("way", ["direct", "relay"])
def test_where_only_the_web_passes_a_volunteer_comes_by_websocket(tmp_path: Path, way: str) -> None:
    with world(tmp_path) as there:
        wall = web_only.wall(there.net, outside="10.77.0.9", inside="192.168.5.1")
        log = tmp_path / "wall.log"
        wall.popen(["python", "-m", "tests.web_only", str(web_only.PORT)], log=log)
        there.until("the wall is there", lambda: "listens" in log.read_text())
        machine, options = there.add("host", "10.77.0.20"), []
        if way == "relay":
            relay = there.relay(there.add("relay", "10.77.0.2"))
            machine.drop_inbound()
            options = ["--relay", relay.address, "--no-router"]
        host = there.host(machine, *options)
        ada = there.add(ADA, "192.168.5.2", link="school", gateway="192.168.5.1")
        volunteer = there.volunteer(ada, host.link)
        found = host.to_the_end()
        assert volunteer.await_end() == 0, there.told()
        assert {m["name"]: m["samples"] for m in found["members"]}[ADA] > 0
        words = log.read_text().split()
        assert words.index("reset") < words.index("passed"), "the web was not the first choice"
        if way == "relay":
            assert relay.pairs == 1
