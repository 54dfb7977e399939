"""Which ways are told: all that is known to work, in order, never too many."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crowdgrad.domain.routes import MAX_ROUTES, route_of
from crowdgrad.planner.ways import (
    MOST_LOCAL,
    Seen,
    next_step,
    own_addresses,
    to_be_dialled,
    ways,
)

PUBLIC, LOCAL, MAPPED = "203.0.113.7:8701", "192.168.1.7:8701", "203.0.113.9:40123"
RELAY = "relay:relay.example.org:8702"

ports = st.integers(1, 65535)
direct = st.builds(lambda a, port: f"{a}:{port}", st.ip_addresses(v=4).map(str), ports) | st.builds(
    lambda a, port: f"[{a}]:{port}", st.ip_addresses(v=6).map(str), ports
)
relays = st.builds(lambda n, port: f"relay:r{n}.example.org:{port}", st.integers(0, 99), ports)


def few(ways: st.SearchStrategy[str], most: int = 12) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(ways, max_size=most).map(tuple)


seen = st.builds(
    Seen,
    named=st.just("") | direct,
    reached=few(direct),
    mapped=st.just("") | direct,
    local=few(direct),
    relays=st.lists(relays, max_size=12, unique=True).map(tuple),
)


@given(seen)
@example(Seen())
@example(Seen(named=PUBLIC, reached=(PUBLIC,), mapped=PUBLIC, local=(PUBLIC, LOCAL)))
@example(Seen(relays=tuple(f"relay:r{n}:1" for n in range(12))))
@example(
    Seen(
        named=PUBLIC,
        reached=tuple(f"203.0.113.{n}:1" for n in range(12)),
        relays=tuple(f"relay:r{n}:1" for n in range(12)),
    )
)
def test_never_too_many_no_two_alike_and_in_order(seen: Seen) -> None:
    told = [str(route) for route in ways(seen)]
    assert len(told) <= MAX_ROUTES
    assert len(set(told)) == len(told)
    kept = [route for route in told if route.startswith("relay:")]
    assert kept == list(seen.relays[: MAX_ROUTES - 1]), "relays are always kept"
    assert told == [route for route in told if route not in kept] + kept, "relays come last"
    best = [*(way for way in (seen.named, *seen.reached, seen.mapped) if way), *seen.local]
    expected = list(dict.fromkeys(str(route_of(way)) for way in best))
    assert [route for route in told if route not in kept] == [
        way for way in expected if way in told
    ], "the best first"
    if best:
        assert told[0] == expected[0] or (seen.relays and not expected)
    if seen.named:
        assert told[0] == str(route_of(seen.named))


@given(seen)
def test_only_what_is_known_is_told(seen: Seen) -> None:
    known = {seen.named, *seen.reached, seen.mapped, *seen.local[:MOST_LOCAL], *seen.relays}
    assert {str(route) for route in ways(seen)} <= {str(route_of(way)) for way in known if way}


def test_a_machine_with_dozens_of_addresses_tells_two() -> None:
    local = tuple(f"10.0.{n}.1:8701" for n in range(40))
    assert [str(route) for route in ways(Seen(local=local))] == list(local[:MOST_LOCAL])


@pytest.mark.parametrize(
    ("seen", "asked", "router", "relays", "step", "words"),
    [
        (Seen(named=PUBLIC), False, True, True, "done", f"we are at {PUBLIC}"),
        (Seen(reached=(PUBLIC,)), True, True, True, "done", f"reach this machine at {PUBLIC}"),
        (Seen(mapped=MAPPED), True, True, True, "done", "the router has opened a port"),
        (Seen(local=(LOCAL,)), True, True, True, "router", "asked for a port"),
        (Seen(local=(LOCAL,)), True, False, True, "relay", "through a relay"),
        (Seen(local=(LOCAL,)), False, False, True, "relay", "through a relay"),
        (Seen(local=(LOCAL,)), True, False, False, "done", "no relay is known"),
        (Seen(local=(LOCAL,)), False, False, False, "done", "on the same network can come"),
    ],
)
def test_what_is_tried_next_and_why(
    seen: Seen, asked: bool, router: bool, relays: bool, step: str, words: str
) -> None:
    found, why = next_step(seen, asked=asked, router=router, relays=relays)
    assert found == step
    assert words in why


@given(seen, st.booleans(), st.booleans(), st.booleans())
def test_nothing_is_tried_twice(seen: Seen, asked: bool, router: bool, relays: bool) -> None:
    step, why = next_step(seen, asked=asked, router=router, relays=relays)
    assert why
    if step == "router":
        assert router
        assert not any((seen.named, seen.reached, seen.mapped))
    if step == "relay":
        assert relays
        assert not router


addresses = st.ip_addresses().map(str) | st.sampled_from(
    ["nonsense", "", "fe80::1%eth0", "127.0.0.1", "::1", "169.254.1.1", "224.0.0.1", "ff02::1"]
)


@given(st.lists(addresses, max_size=20), ports)
def test_own_addresses_are_such_as_others_could_dial(found: list[str], port: int) -> None:
    own = own_addresses(found, port)
    assert all(str(route_of(way)) == way for way in own)
    for way in own:
        host = ipaddress.ip_address(route_of(way).host)
        assert str(host) in found
        assert not any((host.is_loopback, host.is_link_local, host.is_multicast))
        assert route_of(way).port == port


def test_of_the_internet_first_then_private_ones_of_the_older_kind() -> None:
    found = ["192.168.1.7", "fd00::7", "10.0.0.7", "2a02:8071::7", "93.184.216.34", "127.0.0.1"]
    assert own_addresses(found, 8701) == (
        "[2a02:8071::7]:8701",
        "93.184.216.34:8701",
        "192.168.1.7:8701",
        "10.0.0.7:8701",
    )


@given(few(direct), ports, st.integers(1, 6))
def test_the_matchmaker_is_first_asked_about_the_address_it_sees(
    local: tuple[str, ...], port: int, most: int
) -> None:
    asked = to_be_dialled(local, port, most)
    assert asked[0] == f"*:{port}"
    assert len(asked) <= most
    assert all(way in local and way.startswith("[") for way in asked[1:])
