"""How fast the link to a relay is: by socket and by WebSocket, within what it allows."""

from __future__ import annotations

import pytest

from crowdgrad.domain.routes import route_of
from crowdgrad.errors import NotPutThrough, Unreachable
from crowdgrad.net.relay_measure import measure
from tests.relay.world import CALLER, relay, run, until


@pytest.mark.parametrize("way", ["relay:127.0.0.1:{}", "relay:ws://127.0.0.1:{}/relay"])
def test_so_many_bytes_go_each_way(way: str) -> None:
    async def main() -> None:
        async with relay(measure_bytes=300_000) as running:
            link = await measure(route_of(way.format(running.port)), CALLER, count=1 << 20)
            assert link.bytes == 300_000
            assert min(link.down_per_s, link.up_per_s) > 0
            assert min(link.round_trip_s, link.down_s, link.up_s) >= 0
            await until(lambda: running.board.wires == 0)
            assert running.board.meters.all.bytes >= 600_000

    run(main())


def test_a_relay_that_lets_nobody_measure_says_so() -> None:
    async def main() -> None:
        async with relay(measure_bytes=0) as running:
            with pytest.raises(NotPutThrough, match="The relay says: Nobody may measure here"):
                await measure(route_of(f"relay:127.0.0.1:{running.port}"), CALLER)

    run(main())


def test_where_no_relay_is_it_is_said_so() -> None:
    async def main() -> None:
        async with relay() as running:
            route = route_of(f"relay:127.0.0.1:{running.port}")
        with pytest.raises(Unreachable, match=str(route.port)):
            await measure(route, CALLER)

    run(main())
