"""A real router opens a port for a host at home, by each of the three protocols, and closes it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdgrad.errors import RouterError
from crowdgrad.net.routers import Mapping, PortKeeper, open_port, way_out
from crowdgrad.net.routers.base import Way
from crowdgrad.net.routers.natpmp import NatPmp
from crowdgrad.net.routers.pcp import Pcp
from crowdgrad.net.routers.upnp import Upnp
from tests.home_router import Home, home, needs_router
from tests.namespaces import Net

pytestmark = needs_router
PORT = 8701
PATIENT = (0.5, 1.0, 20.0)


def ways() -> dict[str, Way]:
    out = way_out()
    return {
        "PCP": Pcp(out.gateway, out.local, PORT, nonce=bytes(range(12)), waits_s=PATIENT),
        "NAT-PMP": NatPmp(out.gateway, PORT, waits_s=PATIENT),
        "UPnP": Upnp(out, PORT, other_ports=lambda: 8777, patience_s=40.0),
    }


@contextlib.contextmanager
def listening(at: Home) -> Iterator[None]:
    with at.host.inside():
        server = socket.create_server(("0.0.0.0", PORT))
    with server:
        yield


def arrives(at: Home, mapping: Mapping) -> bool:
    return at.outside.reaches(at.address, mapping.port, seconds=20.0)


@pytest.mark.parametrize("protocol", ["PCP", "NAT-PMP", "UPnP"])
def test_whoever_is_outside_gets_in_while_the_port_is_open(tmp_path: Path, protocol: str) -> None:
    async def main() -> None:
        mapping = await open_port(PORT, ways=[ways()[protocol]])
        assert mapping.protocol == protocol
        assert mapping.outside == (at.address, PORT)
        assert mapping.lifetime_s == 3600
        assert mapping.judge(at.address)[0] == "mapped"
        assert await asyncio.to_thread(arrives, at, mapping)
        assert await mapping.renew() is False
        assert await asyncio.to_thread(arrives, at, mapping)
        await mapping.close()
        assert not await asyncio.to_thread(arrives, at, mapping)

    with Net(tmp_path) as net, home(net) as at, listening(at):
        assert not at.outside.reaches(at.address, PORT)
        with at.host.inside():
            asyncio.run(main())


def test_it_finds_the_protocol_that_the_router_speaks_and_keeps_the_port(tmp_path: Path) -> None:
    async def main() -> None:
        async with PortKeeper(PORT) as keeper:
            mapping = keeper.mapping
            assert mapping is not None
            assert mapping.protocol in ("PCP", "NAT-PMP")
            assert await asyncio.to_thread(arrives, at, mapping)
        assert not await asyncio.to_thread(arrives, at, mapping)

    with Net(tmp_path) as net, home(net) as at, listening(at), at.host.inside():
        asyncio.run(main())


def test_a_router_with_upnp_alone(tmp_path: Path) -> None:
    async def main() -> None:
        mapping = await open_port(PORT)
        assert mapping.protocol == "UPnP"
        assert await asyncio.to_thread(arrives, at, mapping)

    with Net(tmp_path) as net, home(net, nat_pmp=False) as at, listening(at), at.host.inside():
        asyncio.run(main())


def test_a_router_behind_a_carrier_opens_nothing_and_says_so_in_every_protocol(
    tmp_path: Path,
) -> None:
    with (
        Net(tmp_path) as net,
        home(net, address="100.64.0.9") as at,
        at.host.inside(),
        pytest.raises(RouterError) as caught,
    ):
        asyncio.run(open_port(PORT))
    said = caught.value.message
    assert all(f"{protocol}: " in said for protocol in ("PCP", "NAT-PMP", "UPnP")), said
    assert "does not answer" not in said
    assert "UPnP: it has no address outside" in said


def test_two_hosts_at_home_get_a_port_each(tmp_path: Path) -> None:
    async def asked() -> Mapping:
        return await open_port(PORT, ways=[ways()["PCP"]])

    with Net(tmp_path) as net, home(net) as at:
        with at.host.inside():
            first = asyncio.run(asked())
        with net.add("second", "192.168.77.3", gateway="192.168.77.1").inside():
            second = asyncio.run(asked())
    assert (first.local, second.local) == ("192.168.77.2", "192.168.77.3")
    assert first.port != second.port
