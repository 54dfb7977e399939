"""A port is kept: asked for again in time, followed to another address, given back at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import RouterError
from crowdgrad.net.routers.base import Grant, Name
from crowdgrad.net.routers.gateway import WayOut
from crowdgrad.net.routers.keeper import GIVEN_UP, LEAST_S, LOOK_S, PortKeeper, next_look_s
from crowdgrad.net.routers.opening import Mapping
from tests.virtual_time import run_virtual

HERE = WayOut(gateway="127.0.0.1", local="127.0.0.1")


class Router:
    """A way to a router that needs no socket; time is virtual."""

    name: Name = "PCP"

    def __init__(self) -> None:
        self.address = "203.0.113.7"
        self.works = True
        self.asked: list[float] = []
        self.closed: list[Grant] = []
        self.hangs = False

    async def open(self, external: int, lifetime_s: int) -> Grant:
        self.asked.append(asyncio.get_running_loop().time())
        if not self.works:
            raise RouterError("it does not answer")
        return Grant(address=self.address, port=external, lifetime_s=lifetime_s)

    async def close(self, grant: Grant) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        self.closed.append(grant)


def keeper(
    router: Router, told: list[tuple[str, int] | None], look_s: float = LOOK_S
) -> PortKeeper:
    async def opening() -> Mapping:
        return Mapping(router, HERE, 8701, await router.open(8701, 3600), 3600)

    def changed(mapping: Mapping | None) -> None:
        told.append(mapping.outside if mapping else None)

    return PortKeeper(8701, changed=changed, opening=opening, look_s=look_s)


def run(main: Callable[[Router, list[tuple[str, int] | None]], Awaitable[None]]) -> None:
    async def whole() -> None:
        await main(Router(), [])

    run_virtual(whole())


@given(st.integers(0, 1 << 32), st.integers(0, 1000))
def test_the_router_is_asked_at_half_the_lifetime_at_the_latest(life: int, failures: int) -> None:
    wait_s = next_look_s(life, failures)
    assert wait_s >= LEAST_S
    assert wait_s <= max(LEAST_S, 300.0)
    if life:
        assert wait_s <= max(LEAST_S, life / 2)


def test_it_is_asked_again_in_time_and_given_back_at_the_end() -> None:
    async def main(router: Router, told: list[tuple[str, int] | None]) -> None:
        async with keeper(router, told, look_s=1e9) as kept:
            assert kept.mapping is not None
            await asyncio.sleep(4000)
            start, *later = router.asked
            assert [at - start for at in later] == pytest.approx([1800, 3600])
        assert told == []
        assert [grant.port for grant in router.closed] == [8701]

    run(main)


def test_another_address_is_noticed_and_told() -> None:
    async def main(router: Router, told: list[tuple[str, int] | None]) -> None:
        async with keeper(router, told) as kept:
            router.address = "203.0.113.8"
            await asyncio.sleep(301)
            assert told == [("203.0.113.8", 8701)]
            router.address = "203.0.113.9"
            kept.look_now()
            await asyncio.sleep(1)
            assert told[1:] == [("203.0.113.9", 8701)]

    run(main)


def test_a_router_that_begins_anew_is_waited_for_and_one_that_is_gone_is_told() -> None:
    async def main(router: Router, told: list[tuple[str, int] | None]) -> None:
        async with keeper(router, told) as kept:
            router.works = False
            await asyncio.sleep(301)
            assert kept.mapping is not None
            router.works = True
            await asyncio.sleep(20)
            assert told == []  # it was away for a moment, and nothing has changed
            router.works = False
            await asyncio.sleep(301 + 10 * 2**GIVEN_UP)
            assert told == [None]
            assert kept.mapping is None
            router.works = True
            await asyncio.sleep(301)
            assert told == [None, ("203.0.113.7", 8701)]
            assert kept.mapping is not None

    run(main)


def test_where_none_is_opened_nothing_is_begun() -> None:
    async def main(router: Router, told: list[tuple[str, int] | None]) -> None:
        router.works = False
        with pytest.raises(RouterError):
            async with keeper(router, told):
                pytest.fail("it was opened")
        assert router.closed == []

    run(main)


def test_a_router_that_hangs_keeps_nobody_from_leaving() -> None:
    async def main(router: Router, told: list[tuple[str, int] | None]) -> None:
        async with keeper(router, told):
            router.hangs = True
        assert router.closed == []

    run(main)


def test_a_machine_that_has_moved_asks_for_a_new_port() -> None:
    async def main(router: Router, told: list[tuple[str, int] | None]) -> None:
        moved = Mapping(
            router,
            WayOut(gateway="127.0.0.1", local="192.0.2.99"),
            8701,
            await router.open(8700, 3600),
            3600,
        )
        with pytest.raises(RouterError, match=r"no longer 192\.0\.2\.99"):
            await moved.renew()

    run(main)
