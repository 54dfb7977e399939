"""What the matchmaker is told of the hours, as they change."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from crowdgrad.domain.matching import Hours, Machine
from crowdgrad.volunteer.probe import hours as hours_of
from crowdgrad.volunteer.probe import utc_offset_s
from crowdgrad.volunteer.resting import LOOK_S
from crowdgrad.volunteer.searching import _HoursByNow
from tests.virtual_time import run_virtual


class Presence:
    def __init__(self) -> None:
        self.offered: list[Hours | None] = []

    def offer(self, machine: Machine) -> None:
        assert machine.gflops == 7.0
        if [machine.hours] != self.offered[-1:]:
            self.offered.append(machine.hours)


def test_hours_are_told_soon_after_they_change() -> None:
    presence: Any = Presence()
    texts = ["22:00-07:00"]

    async def main() -> None:
        known = _HoursByNow(Machine(gflops=7.0), lambda: texts[-1])
        telling = asyncio.create_task(known.keep_telling())
        await asyncio.sleep(1.0)
        known.tell(presence)
        for text in ("", "01:00-02:00"):
            texts.append(text)
            await asyncio.sleep(LOOK_S)
        telling.cancel()

    run_virtual(main())
    night, _, other = presence.offered
    assert presence.offered[1] is None
    ahead = utc_offset_s(time.time())
    assert (night, other) == (hours_of("22:00-07:00", ahead), hours_of("01:00-02:00", ahead))


def test_where_nothing_changes_them_they_are_those_of_the_beginning() -> None:
    hours = Hours(start=60, end=120)
    known = _HoursByNow(Machine(hours=hours), None)
    assert known() == hours
    assert known.machine == Machine(hours=hours)
