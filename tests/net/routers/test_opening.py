"""The port is opened in whichever way the router speaks; where none works, each says why."""

from __future__ import annotations

import asyncio

import pytest

from crowdgrad.errors import RouterError
from crowdgrad.net.routers.base import Way
from crowdgrad.net.routers.natpmp import NatPmp
from crowdgrad.net.routers.opening import Mapping, close_quietly, open_port
from crowdgrad.net.routers.pcp import Pcp
from tests.net.routers.gateways import HASTY, SHORT, Gateway

NONCE = bytes(range(12))


def ways(gateway: Gateway, waits_s: tuple[float, ...] = SHORT) -> list[Way]:
    where = gateway.port
    return [
        Pcp("127.0.0.1", "127.0.0.1", 8701, nonce=NONCE, server_port=where, waits_s=waits_s),
        NatPmp("127.0.0.1", 8701, server_port=where, waits_s=waits_s),
    ]


async def opened(gateway: Gateway, waits_s: tuple[float, ...] = SHORT) -> Mapping:
    return await open_port(8701, gateway="127.0.0.1", ways=ways(gateway, waits_s))


def test_pcp_comes_first_and_a_mapping_is_renewed_and_closed() -> None:
    async def main() -> None:
        async with Gateway(lifetime_s=600) as gateway:
            mapping = await opened(gateway)
            assert (mapping.protocol, mapping.lifetime_s) == ("PCP", 600)
            assert mapping.outside == ("203.0.113.7", 8701)
            assert (mapping.local, mapping.local_port) == ("127.0.0.1", 8701)
            assert mapping.judge()[0] == "mapped"
            assert mapping.judge("198.51.100.9")[0] == "double"
            assert "203.0.113.7:8701 → 127.0.0.1:8701 by PCP" in repr(mapping)
            assert await mapping.renew() is False
            gateway.address = "100.64.1.2"
            assert await mapping.renew() is True
            assert mapping.judge()[0] == "carrier"
            await mapping.close()
            assert gateway.open == {}

    asyncio.run(main())


def test_from_pcp_it_falls_back_to_nat_pmp() -> None:
    async def main() -> None:
        async with Gateway(pcp=False) as gateway:
            assert (await opened(gateway)).protocol == "NAT-PMP"

    asyncio.run(main())


def test_where_no_way_works_each_says_why() -> None:
    async def main() -> None:
        async with Gateway(pcp=False, result=2) as gateway:
            with pytest.raises(RouterError) as caught:
                await opened(gateway)
        assert "The router at 127.0.0.1 opens no port 8701" in caught.value.message
        assert "PCP: it does not speak PCP" in caught.value.message
        assert "NAT-PMP: not allowed" in caught.value.message
        assert "docs/home.md" in caught.value.advice
        assert caught.value.code == "CG210"

    asyncio.run(main())


def test_whoever_leaves_does_not_mind_a_router_that_is_gone() -> None:
    async def main() -> None:
        async with Gateway() as gateway:
            mapping = await opened(gateway, HASTY)
        await close_quietly(mapping)
        with pytest.raises(RouterError):
            await mapping.close()

    asyncio.run(main())
