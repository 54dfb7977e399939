"""One status for all who watch, as long as it is fresh."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from crowdgrad.host.keeping.keeper import Health
from crowdgrad.host.telling.latest import FRESH_S, PART, Latest
from crowdgrad.host.telling.status import Others, Status
from crowdgrad.host.telling.taking import SHOWN_MEMBERS
from crowdgrad.host.training import Training
from tests.host import small
from tests.host.people import asynchronous


class Watched:
    """A training with so many members, its latest status, and a clock that is set."""

    def __init__(self, members: int = 1) -> None:
        self.now = 10.0
        self.training = small.training()
        for number in range(members):
            who = small.volunteer(f"v{number}")
            self.training.join(0.0, who, own=False)
        self.latest = Latest(self.training, Health, lambda: self.now)


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
