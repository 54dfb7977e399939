"""When the hours end, the job at hand is left; not before they have begun, and not otherwise."""

from __future__ import annotations

import asyncio

import pytest

from crowdgrad.domain.matching import Hours
from crowdgrad.volunteer.resting import LOOK_S, Resting, in_own_time
from tests.virtual_time import run_virtual

NIGHT = Hours(start=1380, end=60)
DAY_S = 86_400.0


def left_after_s(hours: Hours | None, at_minute: int, job_s: float) -> float | None:
    """How long such a job, begun at that minute of the day, is worked for until a rest."""

    async def main() -> float | None:
        loop = asyncio.get_running_loop()
        rested: list[float] = []
        began = loop.time()
        resting = Resting(lambda: hours, lambda: 10 * DAY_S + 60 * at_minute + loop.time() - began)
        async with resting.guard(lambda: rested.append(loop.time() - began)):
            await asyncio.sleep(job_s)
        assert resting.over is bool(rested)
        assert len(rested) <= 1
        return rested[0] if rested else None

    return run_virtual(main())


@pytest.mark.parametrize(
    ("hours", "at_minute", "job_s", "rests_at_s"),
    [
        (None, 700, 2 * DAY_S, None),
        (NIGHT, 0, 3000.0, None),  # it ends before the night does
        (NIGHT, 0, DAY_S, 3600.0),
        (NIGHT, 1400, DAY_S, 6000.0),  # over midnight
        (NIGHT, 1379, DAY_S, 7260.0),  # sent a minute early, by a clock that is ahead
        (NIGHT, 1379, 600.0, None),
    ],
)
def test_when_it_rests(
    hours: Hours | None, at_minute: int, job_s: float, rests_at_s: float | None
) -> None:
    found = left_after_s(hours, at_minute, job_s)
    if rests_at_s is None:
        assert found is None
    else:
        assert found is not None
        assert rests_at_s <= found <= rests_at_s + LOOK_S


@pytest.mark.parametrize(
    ("reason", "offset_h", "told"),
    [
        ("waiting: your hours begin at 08:00 UTC", -5.0, "waiting: your hours begin at 03:00"),
        ("waiting: your hours begin at 20:30 UTC", 5.75, "waiting: your hours begin at 02:15"),
        ("waiting: your hours begin at 03:00 UTC", 0.0, "waiting: your hours begin at 03:00"),
        ("waiting: no job is open", 2.0, "waiting: no job is open"),
        ("waiting: job “at 08:00 UTC” is full", 2.0, "waiting: job “at 08:00 UTC” is full"),
    ],
)
def test_when_hours_begin_is_told_by_the_owners_clock(
    reason: str, offset_h: float, told: str
) -> None:
    assert in_own_time(reason, 3600 * offset_h) == told


def test_the_next_job_begins_anew() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        resting = Resting(lambda: NIGHT, lambda: 10 * DAY_S + loop.time())
        async with resting.guard(lambda: None):
            await asyncio.sleep(4000.0)
        assert resting.over
        async with resting.guard(lambda: None):
            await asyncio.sleep(10.0)
        assert not resting.over

    run_virtual(main())


@pytest.mark.parametrize(
    ("later", "over_at_s"),
    [(NIGHT, 3600.0), (None, None), (Hours(start=1380, end=30), 2400.0)],
)
def test_hours_that_are_changed_meanwhile_count(
    later: Hours | None, over_at_s: float | None
) -> None:
    """40 minutes after midnight, in a night that ends at one."""

    async def main() -> None:
        loop, rested = asyncio.get_running_loop(), []
        began = loop.time()

        def hours() -> Hours | None:
            return NIGHT if loop.time() - began < 2400.0 else later

        resting = Resting(hours, lambda: 10 * DAY_S + loop.time() - began)
        async with resting.guard(lambda: rested.append(loop.time() - began)):
            await asyncio.sleep(3 * DAY_S)
        if over_at_s is None:
            assert not rested
        else:
            assert over_at_s <= rested[0] <= over_at_s + LOOK_S

    run_virtual(main())
