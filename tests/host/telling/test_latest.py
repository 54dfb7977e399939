"""One status for all who watch, as long as it is fresh."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from crowdgrad.host.keeping.keeper import Health
from crowdgrad.host.telling.latest import FRESH_S, PART, SWARM_EVERY_S, SWARM_TIMES, Latest
from crowdgrad.host.telling.status import Others, Status
from crowdgrad.host.telling.taking import SHOWN_MEMBERS
from crowdgrad.host.training import Training
from tests.host import small
from tests.host.people import asynchronous
from tests.host.swarms import Played, play


class Watched:
    """A training with so many members, its latest status, and a clock that is set."""

    def __init__(self, members: int = 1, spread: Played | None = None) -> None:
        self.now = 10.0
        self.spread = spread
        self.training = small.training()
        for number in range(members):
            who = small.volunteer(f"v{number}")
            self.training.join(0.0, who, own=False)
        self.latest = Latest(self.training, Health, lambda: self.now, lambda: self.spread)


@asynchronous
async def test_all_who_ask_at_about_the_same_time_get_the_same() -> None:
    watched = Watched()
    first = watched.latest.take()
    watched.now += 0.9 * FRESH_S
    assert watched.latest.status() is first
    watched.now += 0.2 * FRESH_S
    second = watched.latest.status()
    assert second is not first
    assert watched.latest.status() is second
    assert watched.latest.take() is not second, "a tick takes a new one"


@asynchronous
async def test_the_first_to_ask_does_not_wait_for_a_tick() -> None:
    assert Watched(3).latest.status().here == 3


WISHES: dict[str, Callable[[Training], None]] = {
    "pause": lambda training: training.pause(10.0),
    "finish": lambda training: training.finish(10.0, "enough"),
    "stop": lambda training: training.stop("enough"),
}


@pytest.mark.parametrize("wish", WISHES)
def test_what_was_wished_is_seen_at_once(wish: str) -> None:
    async def look() -> tuple[Status, Status]:
        watched = Watched()
        before = watched.latest.take()
        WISHES[wish](watched.training)
        return before, watched.latest.status()

    before, after = asyncio.run(look())
    assert (after.paused, after.reason) != (before.paused, before.reason)


@asynchronous
async def test_everybody_is_named_in_parts_and_others_have_their_turns() -> None:
    size = SHOWN_MEMBERS + 2 * PART + 1
    watched = Watched(size)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    status = await watched.latest.in_parts()
    beside.cancel()
    assert status == watched.latest.whole()
    assert (len(status.members), status.others) == (size, Others())
    assert turns >= size // PART
    shown = watched.latest.status()
    assert (len(shown.members), shown.others.members) == (SHOWN_MEMBERS, size - SHOWN_MEMBERS)


@asynchronous
async def test_the_picture_of_the_swarm_is_taken_more_seldom_and_named_by_the_ledger() -> None:
    watched = Watched(3, play(3, 40, 20))
    first = watched.latest.swarm()
    assert first is not None
    assert [m.name for m in first.members] == ["v0", "v1", "v2"]
    assert watched.latest.take().spreading is not None
    watched.now += 0.9 * SWARM_EVERY_S
    assert watched.latest.swarm() is first
    watched.now += 0.2 * SWARM_EVERY_S
    assert watched.latest.swarm() is not first


@asynchronous
async def test_where_the_picture_takes_long_it_is_taken_less_often() -> None:
    watched = Watched(3, play(3, 40, 20))

    def slow() -> float:
        watched.now += 0.1
        return watched.now

    latest = Latest(watched.training, Health, slow, lambda: watched.spread)
    first = latest.swarm()
    watched.now += 0.1 * SWARM_TIMES / 2
    assert latest.swarm() is first
    watched.now += 0.1 * SWARM_TIMES
    assert latest.swarm() is not first


@asynchronous
async def test_what_was_held_at_the_end_is_told_when_all_have_gone() -> None:
    watched = Watched(3, play(3, 40))
    last = watched.latest.last_swarm()
    assert last is not None
    assert watched.spread is not None
    for node in (1, 2, 3):
        watched.spread.crowd.leave(node)
    watched.now += 100 * SWARM_EVERY_S
    assert watched.latest.swarm() is last
    told = watched.latest.whole().spreading
    assert told is not None
    assert (told.members, told.complete, told.progress) == (3, 3, 1.0)


@asynchronous
async def test_where_the_host_alone_sends_there_is_no_swarm() -> None:
    watched = Watched(3)
    assert watched.latest.swarm() is None
    assert watched.latest.last_swarm() is None
    assert watched.latest.take().spreading is None
