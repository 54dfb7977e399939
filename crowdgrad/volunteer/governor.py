"""How hard this machine works, as of now: who asks it hears it, who subscribes hears of changes.

It reads the machine every two seconds and lets `planner.manners` decide; a person's pause, or other
limits, count at once. Nothing here works or rests: agent and trainer do, as it says.

A pause ends by the clock on the wall: a machine that sleeps through it works when it wakes. Where
that clock is set back, the pause gets no longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from crowdgrad.domain.manners import Effort, Limits, Pause, Profile, Readings
from crowdgrad.errors import SettingError, one_line
from crowdgrad.planner.manners import effort
from crowdgrad.settings import Settings
from crowdgrad.volunteer.readings import minute_of_day

LOOK_S = 2.0
MAX_BYTES = 64 << 10
"""Of a file with limits."""

Read = Callable[[], Awaitable[Readings]]


class Governor:
    """One for each volunteer, for all its jobs. For use within one event loop."""

    def __init__(
        self,
        limits: Limits,
        *,
        read: Read | None = None,
        wall: Callable[[], float] = time.time,
        minute: Callable[[float], int] = minute_of_day,
    ) -> None:
        """`read`: what the machine says; None: it is not asked, only the clock counts.

        `wall`: seconds since 1970. `minute`: of the day, in this machine's own time.
        """
        self._limits = limits
        self._read = read
        self._wall = wall
        self._minute = minute
        self._pause: Pause | None = None
        self._hear: list[Callable[[Effort], None]] = []
        self._heed: list[Callable[[Limits], None]] = []
        self._may_work = asyncio.Event()
        self._looked = asyncio.Event()
        self._decided_at = wall()
        self._readings = self._now(Readings(at=0.0, minute_of_day=0))
        self._effort = effort(self._readings, limits)
        self._gate()

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def readings(self) -> Readings:
        return self._readings

    @property
    def effort(self) -> Effort:
        return self._effort

    @property
    def paused(self) -> bool:
        """Whether a person has said so."""
        return self._pause is not None

    @property
    def paused_until(self) -> float | None:
        """In seconds since 1970; None: until somebody resumes, or there is no pause."""
        return self._pause.until if self._pause is not None else None

    def set_limits(self, limits: Limits) -> None:
        """From now on. Memory counts from the next job on."""
        self._limits = limits
        for heed in self._heed:
            heed(limits)
        self._decide()

    def pause(self, seconds: float | None) -> None:
        """For so long; None: until resumed. Raises ValueError for what is no time."""
        if seconds is not None and seconds < 0:
            raise ValueError(f"a pause of {seconds} s")
        self._pause = Pause(until=None if seconds is None else self._wall() + seconds)
        self._decide()

    def resume(self) -> None:
        """Whatever else holds us back still does."""
        self._pause = None
        self._decide()

    def subscribe(self, hear: Callable[[Effort], None]) -> None:
        """`hear` is called on every change."""
        self._hear.append(hear)

    def heed(self, limits: Callable[[Limits], None]) -> None:
        """`limits` is called with those that count from now on, whenever they are set."""
        self._heed.append(limits)

    async def may_work(self) -> None:
        """Wait while it pauses."""
        await self._may_work.wait()

    async def looked(self) -> None:
        """Wait until the machine was read once: before that nothing is known of it."""
        await self._looked.wait()

    async def run(self) -> None:
        """Read the machine every two seconds, until cancelled."""
        while True:
            if self._read is not None:
                self._readings = await self._read()
            self._decide()
            self._looked.set()
            await asyncio.sleep(LOOK_S)

    def _decide(self) -> None:
        self._readings = self._now(self._readings)
        now, before = self._readings.at, self._decided_at
        self._decided_at = now
        until = self.paused_until
        if until is not None and now < before:
            until += now - before
            self._pause = Pause(until=until)
        if until is not None and until <= now:
            self._pause = None
        last, self._effort = self._effort, effort(self._readings, self._limits, self._pause)
        self._gate()
        if self._effort != last:
            for hear in self._hear:
                hear(self._effort)

    def _gate(self) -> None:
        if self._effort.share > 0:
            self._may_work.set()
        else:
            self._may_work.clear()

    def _now(self, readings: Readings) -> Readings:
        now = self._wall()
        return replace(readings, at=now, minute_of_day=self._minute(now))


def limits_of(settings: Settings) -> Limits:
    """What the settings allow."""
    return Limits(
        in_use=Profile(share=settings.cpu / 100, threads=settings.threads),
        idle=Profile(share=settings.cpu_idle / 100, threads=settings.threads),
        only_when_idle=settings.only_when_idle,
        idle_after_s=settings.idle_after_s,
        on_battery=settings.on_battery,
        hours=settings.hours,
        memory_mb=settings.memory_mb,
        cache_mb=settings.cache_mb,
        most_upload_mbps=settings.most_upload_mbps,
        most_download_mbps=settings.most_download_mbps,
    )


def settings_of(limits: Limits) -> dict[str, object]:
    """The settings that allow as much, but for threads: they know one number for both profiles."""
    return {
        "cpu": round(100 * limits.in_use.share),
        "cpu_idle": round(100 * limits.idle.share),
        "threads": min(limits.in_use.threads, limits.idle.threads),
        "only_when_idle": limits.only_when_idle,
        "idle_after_s": limits.idle_after_s,
        "on_battery": limits.on_battery,
        "hours": limits.hours,
        "memory_mb": limits.memory_mb,
        "cache_mb": limits.cache_mb,
        "most_upload_mbps": limits.most_upload_mbps,
        "most_download_mbps": limits.most_download_mbps,
    }


def read_limits(file: Path) -> Limits:
    """As the status tells them, in JSON. Raises SettingError."""
    try:
        with file.open("rb") as opened:
            return msgspec.json.decode(opened.read(MAX_BYTES), type=Limits)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise SettingError(
            f"{file} holds no limits: {one_line(str(error))}.",
            advice="Write there what `limits` of the volunteer's status says.",
        ) from None


def without_rules(limits: Limits) -> Limits:
    """For those a host starts on its own machine: its owner wants the work done."""
    return replace(
        limits,
        in_use=Profile(),
        idle=Profile(),
        only_when_idle=False,
        on_battery=True,
        hours="",
    )


def free() -> Governor:
    """One that lets work as hard as can be."""
    return Governor(without_rules(Limits()))
