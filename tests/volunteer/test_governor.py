"""The governor: what it reads and is told becomes an effort, at once, and everybody hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from crowdgrad.domain.manners import Effort, Limits, Profile, Readings
from crowdgrad.settings import Settings, load
from crowdgrad.volunteer.governor import (
    LOOK_S,
    Governor,
    free,
    limits_of,
    settings_of,
    without_rules,
)
from tests.virtual_time import run_virtual

DAY_S = 86_400.0


class World:
    """A machine under the loop's own clock, which begins at noon."""

    def __init__(self, limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.clock_s = 0.0
        """By how much somebody has set it."""
        self.zone_min: Callable[[float], int] = lambda at: 0
        self.now = lambda: 1000 * DAY_S + 43_200 + self.clock_s + loop.time() - began
        self.idle_s: float | None = None
        self.on_battery = False
        self.heard: list[Effort] = []
        self.heard_at: list[float] = []
        self.governor = Governor(limits, read=self.read, wall=self.now, minute=self.minute)
        self.governor.subscribe(self._hear)

    def _hear(self, effort: Effort) -> None:
        self.heard.append(effort)
        self.heard_at.append(self.now())

    def minute(self, at: float) -> int:
        return (int(at // 60) + self.zone_min(at)) % 1440

    async def read(self) -> Readings:
        at = self.now()
        return Readings(
            at=at,
            minute_of_day=self.minute(at),
            idle_s=self.idle_s,
            on_battery=self.on_battery,
        )


def test_a_pause_counts_at_once_and_ends_by_itself() -> None:
    async def main() -> None:
        world = World(Limits())
        governor = world.governor
        running = asyncio.create_task(governor.run())
        governor.pause(7200.0)
        assert governor.effort.share == 0
        assert governor.paused_until == world.now() + 7200.0
        began = world.now()
        await governor.may_work()
        assert 7200.0 <= world.now() - began <= 7200.0 + LOOK_S
        assert not governor.paused
        assert [effort.share for effort in world.heard] == [0.0, 1.0]
        assert world.heard[0].until == began + 7200.0
        governor.pause(None)
        await asyncio.sleep(10 * DAY_S)
        assert governor.paused
        assert governor.effort.share == 0
        governor.resume()
        assert governor.effort.share == 1
        running.cancel()

    run_virtual(main())


def test_nothing_begins_before_the_machine_was_read() -> None:
    """Somebody may be sitting there."""

    async def main() -> None:
        world = World(Limits(only_when_idle=True))
        world.idle_s = 0.0
        waiting = asyncio.create_task(world.governor.looked())
        await asyncio.sleep(10.0)
        assert not waiting.done()
        running = asyncio.create_task(world.governor.run())
        await waiting
        assert world.governor.effort.share == 0
        running.cancel()

    run_virtual(main())


def test_a_machine_that_sleeps_through_a_pause_works_when_it_wakes() -> None:
    async def main() -> None:
        world = World(Limits())
        running = asyncio.create_task(world.governor.run())
        world.governor.pause(7200.0)
        await asyncio.sleep(60.0)
        world.clock_s += 3 * 3600.0  # a closed lid stops the loop's clock, not the one on the wall
        await asyncio.sleep(LOOK_S)
        assert world.governor.effort.share == 1
        running.cancel()

    run_virtual(main())


@pytest.mark.parametrize("back_s", [60.0, 10 * DAY_S])
def test_a_clock_that_is_set_back_makes_no_pause_longer(back_s: float) -> None:
    async def main() -> None:
        world = World(Limits())
        running = asyncio.create_task(world.governor.run())
        world.governor.pause(7200.0)
        await asyncio.sleep(3600.0)
        world.clock_s -= back_s
        await asyncio.sleep(3600.0 - 2 * LOOK_S)
        assert world.governor.paused
        await asyncio.sleep(4 * LOOK_S)
        assert not world.governor.paused
        assert world.governor.effort.share == 1
        running.cancel()

    run_virtual(main())


@pytest.mark.parametrize(("ahead_min", "works_h"), [(60, 8), (-60, 10)])
def test_hours_end_by_the_clock_on_the_wall_where_it_is_changed_meanwhile(
    ahead_min: int, works_h: int
) -> None:
    """From ten in the evening to seven, in the night when summer time begins, and when it ends."""

    async def main() -> None:
        world = World(Limits(hours="22:00-07:00"))
        change = world.now() + 14 * 3600.0  # at two in the morning
        world.zone_min = lambda at: ahead_min if at >= change else 0
        running = asyncio.create_task(world.governor.run())
        await asyncio.sleep(2 * DAY_S)
        running.cancel()
        shares = [effort.share for effort in world.heard]
        began, ended = (world.heard_at[shares.index(share)] for share in (1.0, 0.0))
        assert works_h * 3600.0 <= ended - began + LOOK_S < works_h * 3600.0 + 2 * LOOK_S

    run_virtual(main())


def test_it_follows_the_machine() -> None:
    async def main() -> None:
        world = World(Limits())
        running = asyncio.create_task(world.governor.run())
        shares = []
        for world.idle_s, world.on_battery in ((0.0, False), (0.0, True), (900.0, False)):
            await asyncio.sleep(2 * LOOK_S)
            shares.append(world.governor.effort.share)
        running.cancel()
        assert shares == [0.5, 0.0, 1.0]
        assert [effort.share for effort in world.heard] == shares, "each change is told once"

    run_virtual(main())


def test_other_limits_count_at_once_and_those_who_keep_them_hear_of_it() -> None:
    async def main() -> None:
        world = World(Limits())
        kept: list[Limits] = []
        world.governor.heed(kept.append)
        limits = Limits(idle=Profile(share=0.25), most_upload_mbps=2.0)
        world.governor.set_limits(limits)
        assert world.governor.limits == limits
        assert kept == [limits]
        assert world.governor.effort.share == 0.25
        world.governor.set_limits(limits)
        assert len(world.heard) == 1, "nothing has changed"
        with pytest.raises(ValueError, match="a pause of -1"):
            world.governor.pause(-1)

    run_virtual(main())


def test_settings_become_limits() -> None:
    settings = replace(
        Settings(), cpu=20, cpu_idle=80, threads=2, only_when_idle=True, hours="22-7", memory_mb=512
    )
    assert limits_of(settings) == Limits(
        in_use=Profile(share=0.2, threads=2),
        idle=Profile(share=0.8, threads=2),
        only_when_idle=True,
        hours="22-7",
        memory_mb=512,
    )
    assert limits_of(Settings()) == Limits(), "one place has the gentle defaults"


def test_limits_become_settings_that_become_the_same_limits() -> None:
    profile = Profile(share=0.35, threads=3)
    limits = Limits(
        in_use=profile, idle=profile, only_when_idle=True, idle_after_s=60, on_battery=True,
        hours="22:00-07:00", memory_mb=512, cache_mb=100, most_upload_mbps=2, most_download_mbps=9,
    )  # fmt: skip
    assert limits_of(load(settings_of(limits))) == limits
    assert limits_of(load(settings_of(Limits()))) == Limits()


def test_those_a_host_starts_are_not_held_back() -> None:
    limits = without_rules(Limits(hours="1-2", only_when_idle=True, memory_mb=512))
    assert limits.memory_mb == 512
    governor = Governor(limits)
    assert governor.effort.share == 1
    assert free().effort.share == 1
