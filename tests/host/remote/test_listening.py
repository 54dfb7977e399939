"""Where the public page listens, and what others are told of it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from crowdgrad.errors import PortBusy
from crowdgrad.host.remote import listening
from crowdgrad.host.remote.listening import PublicPage, open_page
from crowdgrad.net.lan import Place
from crowdgrad.net.ports import WILDCARDS

HERE = tuple(
    Place(address=address, prefix=24, interface=1)
    for address in ("fe80::1", "2600:1::7", "192.168.1.7", "10.0.0.7")
)


def opened(host: str, port: int, *, any_port: bool = False) -> PublicPage:
    async def main() -> PublicPage:
        page = await open_page(lambda: None, (host, port), any_port=any_port)
        await page.server.stop()
        return page

    return asyncio.run(main())


@pytest.mark.parametrize("host", WILDCARDS)
def test_on_all_networks_it_is_told_by_an_address_that_others_can_type(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if host == "::" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    monkeypatch.setattr(listening.lan, "networks", lambda: HERE)
    page = opened(host, 0)
    assert page.place[0] == host
    assert page.url == f"http://192.168.1.7:{page.place[1]}/"
    monkeypatch.setattr(listening.lan, "networks", lambda: HERE[:2])
    assert opened(host, 0).url.startswith("http://[2600:1::7]:")
    monkeypatch.setattr(listening.lan, "networks", lambda: ())
    monkeypatch.setattr(listening, "reachable", lambda host: "my-computer")
    assert opened(host, 0).url.startswith("http://my-computer:")


def test_one_address_is_told_as_it_is() -> None:
    page = opened("127.0.0.1", 0)
    assert page.url == f"http://127.0.0.1:{page.place[1]}/"


def test_who_goes_on_takes_another_port_where_that_one_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortBusy, match="--page"):
            opened("127.0.0.1", port)
        assert opened("127.0.0.1", port, any_port=True).place[1] != port
