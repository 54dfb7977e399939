"""Whose connection it is: lies before our own proxy are not believed."""

from __future__ import annotations

import pytest

from crowdgrad.errors import SettingError
from crowdgrad.net.addresses import Proxies, client_address, counted, is_loopback

HERE = Proxies(["127.0.0.1", "10.0.0.0/8", "fd00::/8"])


def scope(peer: str | None, *values: str) -> dict[str, object]:
    headers = [(b"host", b"x"), *((b"x-forwarded-for", value.encode()) for value in values)]
    return {"client": peer and (peer, 1234), "headers": headers}


@pytest.mark.parametrize(
    ("peer", "values", "expected"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),  # no proxy of ours: its own word
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["192.0.2.66, 198.51.100.1"], "198.51.100.1"),  # the first was claimed
        ("127.0.0.1", ["192.0.2.66", "198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["192.0.2.66, 198.51.100.1, 10.1.2.3"], "198.51.100.1"),
        ("127.0.0.1", ["198.51.100.1, rubbish"], "127.0.0.1"),
        ("127.0.0.1", ["rubbish, 10.1.2.3"], "10.1.2.3"),
        ("127.0.0.1", [""], "127.0.0.1"),
        ("::ffff:127.0.0.1", ["2001:db8::5"], "2001:db8::5"),
        ("fd12::1", [" 2001:db8::5 "], "2001:db8::5"),
        (None, ["198.51.100.1"], ""),
    ],
)
def test_a_proxy_of_ours_is_believed_and_nobody_else(
    peer: str | None, values: list[str], expected: str
) -> None:
    assert client_address(scope(peer, *values), HERE) == expected


def test_endless_claims_are_not_read() -> None:
    claims = ", ".join(["198.51.100.1", *["10.0.0.1"] * 5000])
    assert client_address(scope("127.0.0.1", claims), HERE) == "10.0.0.1"


def test_without_proxies_the_header_means_nothing() -> None:
    assert client_address(scope("127.0.0.1", "198.51.100.1"), Proxies()) == "127.0.0.1"


def test_ipv6_counts_by_its_network() -> None:
    assert counted("2001:db8:1:2:3:4:5:6") == counted("2001:db8:1:2::1") == "2001:db8:1:2::/64"
    assert counted("2001:db8:1:3::1") != counted("2001:db8:1:2::1")
    assert counted("::ffff:192.0.2.1") == counted("192.0.2.1") == "192.0.2.1"
    assert counted("192.0.2.1") != counted("192.0.2.2")
    assert counted("x" * 1000) == "x" * 64


def test_what_is_this_machine() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.0.2.1", "example.org", ""]))


def test_a_proxy_needs_an_address() -> None:
    with pytest.raises(SettingError, match="named by its address"):
        Proxies(["caddy"])
