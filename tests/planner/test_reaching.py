"""Where a matchmaker may be sent, and whose turn it is: never to a stranger's door, hosts first."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crowdgrad.planner.reaching import (
    ALSO_PORTS,
    LOWEST_PORT,
    PRIVATE,
    Turns,
    aim,
    name_to_look_up,
)

PUBLIC = "203.0.113.7"


@pytest.mark.parametrize("host", ["", "*", PUBLIC, "::ffff:203.0.113.7", "home.example.org"])
def test_the_senders_own_address_is_dialled_however_it_is_called(host: str) -> None:
    asked = f"[{host}]:8701" if ":" in host else f"{host}:8701"
    found = aim(asked, PUBLIC, ["192.0.2.1", PUBLIC])
    assert (found.host, found.port) == (PUBLIC, 8701)
    assert found.why


@pytest.mark.parametrize(
    ("asked", "observed"),
    [
        ("203.0.113.8:8701", PUBLIC),
        ("127.0.0.1:8701", PUBLIC),
        ("10.0.0.1:8701", PUBLIC),
        ("169.254.169.254:80", PUBLIC),
        ("169.254.169.254:80", "169.254.1.1"),
        ("224.0.0.1:8701", PUBLIC),
        ("0.0.0.0:8701", PUBLIC),
        ("255.255.255.255:8701", "192.168.1.4"),
        ("[::1]:8701", PUBLIC),
        ("127.0.0.2:8701", "127.0.0.1"),
        ("100.64.0.2:8701", "100.64.0.1"),
        ("192.168.2.5:8701", "192.168.1.4"),
        ("10.0.0.5:8701", "192.168.1.4"),
        ("[fe80::2%eth0]:8701", "fe80::1%eth0"),
        ("[2001:db8::2]:8701", "2001:db8::1"),
        ("[fd00:0:0:1::2]:8701", "fd00::1"),
        ("[::ffff:10.0.0.1]:8701", PUBLIC),
        ("elsewhere.example.org:8701", PUBLIC),
        ("localhost:8701", PUBLIC),
    ],
)
def test_nobody_elses_address_is(asked: str, observed: str) -> None:
    found = aim(asked, observed, ["127.0.0.1", "198.51.100.1"])
    assert found.host == ""
    assert "address you come from" in found.why


@pytest.mark.parametrize(
    ("asked", "observed"),
    [
        ("192.168.1.5:8701", "192.168.1.4"),
        ("10.0.0.5:8701", "::ffff:10.0.0.4"),
        ("[fd00::5]:8701", "fd00::4"),
    ],
)
def test_a_private_network_is_its_members_own(asked: str, observed: str) -> None:
    found = aim(asked, observed)
    assert found.host == asked.rpartition(":")[0].strip("[]")
    assert "private" in found.why


@pytest.mark.parametrize("port", [1, 22, 25, 79, 81, 442, 444, 1023])
def test_ports_of_others_are_not_dialled(port: int) -> None:
    assert aim(f"*:{port}", PUBLIC).host == ""
    assert name_to_look_up(f"home.example.org:{port}") == "", "no name is looked up for nothing"


@pytest.mark.parametrize("port", [80, 443, 1024, 8701, 65535])
def test_ports_of_nodes_are(port: int) -> None:
    assert aim(f"*:{port}", PUBLIC).port == port


@pytest.mark.parametrize(
    "asked",
    ["", "*", ":", ":0", "*:65536", "*:x", "a b:8701", "relay:192.0.2.1:8701", "wss://x/y",
     "relay:wss://x/y", "::1:8701", "[::1]", "http://x:8701", "*:8701/x", "*:٨٧٠١"],
)  # fmt: skip
def test_what_is_no_address_is_not_dialled(asked: str) -> None:
    assert aim(asked, PUBLIC).host == ""
    assert name_to_look_up(asked) == ""


def test_only_names_are_looked_up() -> None:
    assert name_to_look_up("home.example.org:8701") == "home.example.org"
    for asked in ("*:8701", ":8701", "203.0.113.7:8701", "[2001:db8::1]:8701"):
        assert name_to_look_up(asked) == ""


def test_of_an_unknown_sender_nothing_is_dialled() -> None:
    for observed in ("", "testclient", "unix:"):
        assert aim("*:8701", observed).host == ""


addresses = st.ip_addresses() | st.sampled_from(
    [ipaddress.ip_address(text) for text in
     ("127.0.0.1", "10.0.0.1", "10.0.0.2", "192.168.1.1", "192.168.2.1", "169.254.169.254",
      "172.16.0.1", "172.32.0.1", "::1", "fe80::1", "fd00::1", "fd00::2", "ff02::1", "0.0.0.0")]
)  # fmt: skip


def spelt(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


@given(addresses, addresses, st.integers(1, 65535), st.lists(addresses, max_size=3))
def test_whatever_is_asked_only_the_sender_or_its_private_network_is_dialled(
    wanted: ipaddress.IPv4Address, sender: ipaddress.IPv4Address, port: int, named: list[object]
) -> None:
    for asked in (spelt(wanted, port), f"some.example.org:{port}", f"*:{port}"):
        found = aim(asked, str(sender), [str(one) for one in named])
        if not found.host:
            continue
        assert found.port == port
        assert port >= LOWEST_PORT or port in ALSO_PORTS
        there = ipaddress.ip_address(found.host)
        ours = getattr(sender, "ipv4_mapped", None) or sender
        if there == ours:
            continue
        (network,) = [network for network in PRIVATE if there in network]
        assert ours in network
        assert ours in ipaddress.ip_network((int(there), 24 if there.version == 4 else 64), False)


@given(st.text(max_size=40), st.text(max_size=40), st.lists(st.text(max_size=20), max_size=3))
@example("*:8701", PUBLIC, ["%"])
def test_any_text_is_an_aim_or_not(asked: str, observed: str, named: list[str]) -> None:
    found = aim(asked, observed, named)
    assert found.why
    assert name_to_look_up(asked) in ("", asked.rpartition(":")[0])


# -- turns ------------------------------------------------------------------------------------


def test_hosts_go_first() -> None:
    turns: Turns[str] = Turns(1, 2)
    assert turns.come("a", hosts=False) == "begin"
    assert turns.come("b", hosts=False) == "wait"
    assert turns.come("c", hosts=False) == "wait"
    assert turns.come("d", hosts=False) == "full"
    assert turns.come("e", hosts=True) == "wait", "the others do not take up its room"
    assert turns.come("f", hosts=True) == "wait"
    assert turns.come("g", hosts=True) == "full"
    order = ["a"]
    while (following := turns.leave(order[-1])) is not None:
        order.append(following)
    assert order == ["a", "e", "f", "b", "c"]
    assert (turns.under_way, turns.waiting) == (0, 0)


def test_who_waits_no_more_is_passed_over() -> None:
    turns: Turns[str] = Turns(1, 2)
    for name in "abc":
        turns.come(name, hosts=False)
    assert turns.leave("b") is None, "a is still at it"
    assert turns.leave("a") == "c"
    assert turns.leave("a") is None, "as often as one likes"
    assert turns.leave("c") is None


def test_numbers_that_make_no_sense() -> None:
    for most, waiting in ((0, 1), (1, -1)):
        with pytest.raises(ValueError, match="at once"):
            Turns(most, waiting)


@given(
    st.integers(1, 3),
    st.integers(0, 3),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 20)), max_size=60),
)
def test_turns_keep_their_promises(
    most: int, most_waiting: int, script: list[tuple[bool, bool, int]]
) -> None:
    """Never more than `most` at a time, nobody twice, nobody idle while somebody waits, and no
    other begins while a host waits."""
    turns: Turns[int] = Turns(most, most_waiting)
    begun: list[int] = []
    waiting: dict[int, bool] = {}
    for name, (comes, hosts, which) in enumerate(script):
        if comes:
            answer = turns.come(name, hosts=hosts)
            if answer == "begin":
                assert not waiting
                begun.append(name)
            elif answer == "wait":
                waiting[name] = hosts
        elif begun or waiting:
            everyone = [*begun, *waiting]
            who = everyone[which % len(everyone)]
            following = turns.leave(who)
            if who in begun:
                begun.remove(who)
                assert (following is None) == (not waiting)
            else:
                del waiting[who]
                assert following is None
            if following is not None:
                same = [name for name, host in waiting.items() if host == waiting[following]]
                assert following == same[0], "first come"
                assert waiting.pop(following) or not any(waiting.values()), "hosts first"
                begun.append(following)
        assert turns.under_way == len(begun) <= most
        assert turns.waiting == len(waiting) <= 2 * most_waiting
