"""Not every address that a host names is dialled."""

from __future__ import annotations

import pytest

from crowdgrad.errors import NotDialled
from crowdgrad.net.neighbourhood import check_neighbourhood


@pytest.mark.parametrize(
    ("server", "host"),
    [
        ("127.0.0.1", "8.8.8.8"),
        ("127.0.0.1", "192.168.1.7"),
        ("::1", "192.168.1.7"),
        ("::ffff:127.0.0.1", "192.168.1.7"),
        ("169.254.169.254", "10.0.0.3"),
        ("192.168.1.1", "8.8.8.8"),
        ("fe80::1", "2001:4860::1"),
        ("10.0.0.1", "2001:4860::1"),
        ("100.64.0.5", "8.8.8.8"),
        ("0.0.0.0", "192.168.1.7"),
        ("64:ff9b::7f00:1", "8.8.8.8"),
        ("64:ff9b::c0a8:101", "8.8.8.8"),
        ("2002:c0a8:101::1", "8.8.8.8"),
        ("::ffff:0:127.0.0.1", "8.8.8.8"),
        ("fd00::1", "8.8.8.8"),
    ],
)
def test_a_host_far_away_does_not_send_us_to_our_own_network(server: str, host: str) -> None:
    with pytest.raises(NotDialled, match="address of this machine"):
        check_neighbourhood(server, host=host, what="its parameters are")


@pytest.mark.parametrize(
    ("server", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("192.168.1.9", "127.0.0.1"),  # our own machine hosts
        ("192.168.1.9", "192.168.1.7"),
        ("10.0.0.1", "10.0.0.1"),
        ("8.8.4.4", "192.168.1.7"),
        ("8.8.4.4", "8.8.8.8"),
        ("fe80::2", "fe80::1"),
        ("64:ff9b::808:808", "8.8.4.4"),
        ("server.example", "8.8.8.8"),  # seen again once it has become an address
    ],
)
def test_others_may_be_dialled(server: str, host: str) -> None:
    check_neighbourhood(server, host=host, what="its parameters are")


def test_it_is_said_what_should_have_been_there() -> None:
    with pytest.raises(
        NotDialled, match=r"says that a mirror of its data is at 10\.0\.0\.1, which"
    ):
        check_neighbourhood("10.0.0.1", host="8.8.8.8", what="a mirror of its data is")


@pytest.mark.parametrize("host", ["relay.example", "", "inproc"])
@pytest.mark.parametrize("near", ["127.0.0.1", "10.0.0.1", "fe80::1", "::", "fd00::1"])
def test_a_host_without_an_address_counts_as_far_away_where_asked(near: str, host: str) -> None:
    check_neighbourhood(near, host=host, what="it is")
    with pytest.raises(NotDialled):
        check_neighbourhood(near, host=host, what="it is", strict=True)
    check_neighbourhood("8.8.4.4", host=host, what="it is", strict=True)
