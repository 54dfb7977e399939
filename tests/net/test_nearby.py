"""What strangers write about themselves can harm nobody."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zeroconf import ServiceInfo

from crowdgrad.domain.job import MAX_TITLE
from crowdgrad.domain.routes import MAX_ROUTES, Route, route_of
from crowdgrad.net.nearby import (
    SERVICE,
    VERSION,
    Nearby,
    Place,
    entries,
    instance,
    listened_on,
    read,
)

KEY = "0123456789abcdef" * 4
GOOD = {b"v": VERSION.encode(), b"key": KEY.encode(), b"job": b"job-1", b"title": b"Digits",
        b"cause": b"fun"}  # fmt: skip
LAN = Place(address="192.168.1.6", prefix=24, interface=2)
BRIDGE = Place(address="172.17.0.1", prefix=16, interface=3)
SIX = Place(address="fe80::6", prefix=64, interface=2)
INSIDE = Place(address="127.0.0.1", prefix=8, interface=1)


def test_what_a_host_says_is_read_as_it_was_said() -> None:
    said = entries(key=KEY, job="job-1", title="Digits für alle", cause="")
    found = read({a.encode(): b.encode() for a, b in said.items()}, ["192.168.1.5"], 8701, [LAN])
    assert found == Nearby(
        key=KEY,
        job="job-1",
        title="Digits für alle",
        cause="",
        routes=(Route(host="192.168.1.5", port=8701),),
    )


@pytest.mark.parametrize(
    "change",
    [
        {b"v": b"2"},
        {b"v": None},
        {b"key": b""},
        {b"key": KEY.upper().encode()},
        {b"key": KEY[:-1].encode()},
        {b"key": b"\xff" * 64},
        {b"job": b""},
        {b"job": b"../../etc"},
        {b"job": b"j" * 65},
        {b"%d" % number: b"" for number in range(40)},
    ],
)
def test_what_no_host_would_say_is_not_listened_to(change: dict[bytes, bytes | None]) -> None:
    assert read(GOOD, ["192.168.1.5"], 8701) is not None
    assert read({**GOOD, **change}, ["192.168.1.5"], 8701) is None


@pytest.mark.parametrize("port", [None, 0, -1, 65536])
def test_a_port_is_one(port: int | None) -> None:
    assert read(GOOD, ["192.168.1.5"], port) is None


@pytest.mark.parametrize(
    "address",
    ["", "somewhere", "127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.251", "ff02::fb",
     "255.255.255.255", "fe80::5", "fe80::5%a/b", "192.168.1.5/24", "192.168.1.5%2"],
)  # fmt: skip
def test_an_address_that_leads_to_nobody_or_to_ourselves_is_none(address: str) -> None:
    assert read(GOOD, [address], 8701, [LAN]) is None


def test_neighbours_come_before_what_every_machine_has() -> None:
    told = ["203.0.113.5", "172.17.0.1", "fe80::5%2", "192.168.1.5"]
    found = read(GOOD, told, 8701, [BRIDGE, LAN, SIX])
    assert found is not None
    assert [route.host for route in found.routes] == [
        "192.168.1.5", "fe80::5%2", "172.17.0.1", "203.0.113.5",
    ]  # fmt: skip


def test_a_link_local_address_is_on_one_of_our_links() -> None:
    found = read(GOOD, ["fe80::5"], 8701, [LAN, SIX])
    assert found is not None
    assert found.routes == (Route(host="fe80::5%2", port=8701),)


def test_the_inside_of_this_machine_counts_where_that_is_all_we_listen_to() -> None:
    found = read(GOOD, ["127.0.0.1", "192.168.1.5"], 8701, [INSIDE])
    assert found is not None
    assert [route.host for route in found.routes] == ["127.0.0.1"]


def test_no_more_ways_than_anybody_tries() -> None:
    found = read(GOOD, [f"192.168.1.{n}" for n in range(1, 200)], 8701)
    assert found is not None
    assert len(found.routes) == MAX_ROUTES


def test_where_somebody_who_listens_is_found() -> None:
    here = [INSIDE, SIX, BRIDGE, LAN]
    assert listened_on(here, "0.0.0.0") == (LAN, BRIDGE)
    assert listened_on(here, "::") == (LAN, BRIDGE, SIX)
    assert listened_on(here, "192.168.1.6") == (LAN,)
    assert listened_on(here, "127.0.0.1") == (INSIDE,)
    assert listened_on(here, "192.168.1.7") == ()
    many = [Place(address=f"10.0.{n}.1", prefix=24, interface=n) for n in range(50)]
    assert len(listened_on(many, "0.0.0.0")) == MAX_ROUTES


@pytest.mark.parametrize(("key", "job"), [(KEY[:16], "job"), (KEY, "a job"), (KEY, "")])
def test_nobody_announces_what_nobody_would_believe(key: str, job: str) -> None:
    with pytest.raises(ValueError, match="64 digits"):
        entries(key=key, job=job, title="t", cause="")


def test_records_have_names_of_their_own_that_stay() -> None:
    assert instance(KEY, "a") == instance(KEY, "a")
    assert len({instance(KEY, "a"), instance(KEY, "b"), instance("f" * 64, "a")}) == 3


@given(title=st.text(max_size=400), cause=st.text(max_size=400))
def test_whatever_the_title_it_fits_and_comes_out_on_one_line(title: str, cause: str) -> None:
    said = entries(key=KEY, job="job-1", title=title, cause=cause)
    assert all(len(f"{name}={text}".encode()) <= 255 for name, text in said.items())
    found = read({a.encode(): b.encode() for a, b in said.items()}, ["192.168.1.5"], 8701)
    assert found is not None
    check(found)


def check(found: Nearby) -> None:
    assert 0 < len(found.title) <= MAX_TITLE
    assert len(found.cause) <= MAX_TITLE
    assert (found.title + found.cause).isprintable()
    assert 0 < len(found.routes) <= MAX_ROUTES
    for route in found.routes:
        assert route_of(str(route)) == route
        address = ipaddress.ip_address(route.host)
        assert not address.is_loopback
        assert not address.is_multicast
        assert not address.is_unspecified


VALUES = st.one_of(st.none(), st.binary(max_size=300), st.sampled_from(list(GOOD.values())))


@given(
    said=st.dictionaries(st.one_of(st.sampled_from(list(GOOD)), st.binary(max_size=9)), VALUES),
    good=st.booleans(),
    addresses=st.lists(st.one_of(st.ip_addresses().map(str), st.text(max_size=50))),
    port=st.one_of(st.none(), st.integers(-10, 70_000)),
)
def test_any_record_is_sound_or_nothing(
    said: dict[bytes, bytes | None], good: bool, addresses: list[str], port: int | None
) -> None:
    found = read({**said, **GOOD} if good else said, addresses, port, [LAN, SIX])
    if found is not None:
        check(found)


@given(st.binary(max_size=2000))
def test_any_bytes_of_a_text_record_are_read(text: bytes) -> None:
    info = ServiceInfo(SERVICE, f"x.{SERVICE}", port=8701, properties=text)
    found = read(info.properties, ["192.168.1.5"], 8701)
    if found is not None:
        check(found)
