"""How hard a volunteer works: what its owner allows, what its machine says, what follows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from crowdgrad.domain.matching import MINUTES_A_DAY

LEAST_SHARE = 0.05
"""Less is a pause: say that instead."""
MOST_THREADS = 256

_HOURS = re.compile(r"([0-9]{1,2})(?::([0-5][0-9]))?[-–]([0-9]{1,2})(?::([0-5][0-9]))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How hard to work in one situation."""

    share: float = 1.0
    """Of the time: after each batch the trainer rests for the remainder."""
    threads: int = 1
    """How many cores a batch may use. Within half a minute the trainer has as many; with fewer, one
    that has more rests longer meanwhile."""

    def __post_init__(self) -> None:
        if not LEAST_SHARE <= self.share <= 1:
            raise ValueError(f"a share is {LEAST_SHARE} to 1, not {self.share}")
        if not 1 <= self.threads <= MOST_THREADS:
            raise ValueError(f"threads are 1 to {MOST_THREADS}, not {self.threads}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the machine's owner allows. The defaults are gentle."""

    in_use: Profile = Profile(share=0.5)
    """While somebody uses the machine."""
    idle: Profile = Profile()
    """While nobody does, or nobody can say."""
    only_when_idle: bool = False
    idle_after_s: float = 300.0
    """How long nobody must have touched it for that."""
    on_battery: bool = False
    """Whether to work on battery, too."""
    hours: str = ""
    """When to work, in the machine's own time: `22:00-07:00`; empty: at any time."""
    memory_mb: int = 0
    """The most a job may take; 0: half of what there is. Counts from the next job on."""
    cache_mb: int = 4096
    """How much disk the chunks of data sets may take."""
    most_upload_mbps: float = 0.0
    """Over all connections; 0: no cap."""
    most_download_mbps: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.idle_after_s < 1e9:
            raise ValueError(f"idle after {self.idle_after_s} s; give seconds from 0 on")
        if not 0 <= self.memory_mb < 1e9:
            raise ValueError(f"memory of {self.memory_mb} MB; give megabytes, or 0 for half")
        if not 0 < self.cache_mb < 1e9:
            raise ValueError(f"a cache of {self.cache_mb} MB; give a positive number")
        for name in ("most_upload_mbps", "most_download_mbps"):
            if not 0 <= getattr(self, name) < 1e9:
                raise ValueError(f"{name} is {getattr(self, name)}; give Mbit/s, or 0 for no cap")
        minutes_of(self.hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What the machine says of itself."""

    at: float
    """When, in seconds since 1970."""
    minute_of_day: int
    """By the machine's own clock and time zone."""
    idle_s: float | None = None
    """How long nobody has touched it; None: nobody can say."""
    on_battery: bool | None = None
    """None: it cannot be told, or there is none."""
    battery: float | None = None
    """How full, 0 to 1."""
    load: float | None = None
    """How many processes wanted to compute, on average over the last minute."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.at):
            raise ValueError(f"read at {self.at}")
        if not 0 <= self.minute_of_day < MINUTES_A_DAY:
            raise ValueError(f"minute {self.minute_of_day} of a day")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A person said: not now."""

    until: float | None = None
    """In seconds since 1970; None: until somebody says otherwise."""

    def __post_init__(self) -> None:
        if self.until is not None and not math.isfinite(self.until):
            raise ValueError(f"a pause until {self.until}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard to work, and why."""

    share: float
    """Of the time; 0: not at all."""
    threads: int
    reason: str
    """In plain words: people read it."""
    until: float | None = None
    """When it changes by itself, in seconds since 1970; None: nobody knows. Where hours say so, by
    today's clock: in the two nights that it is changed it is an hour off until then."""
    by_person: bool = False
    """Whether a person paused it, and can resume it; otherwise hours, battery or use decide."""

    def __post_init__(self) -> None:
        if self.by_person and self.share != 0:
            raise ValueError(f"paused by a person, with a share of {self.share}")
        if self.share != 0 and not LEAST_SHARE <= self.share <= 1:
            raise ValueError(f"a share is 0, or {LEAST_SHARE} to 1, not {self.share}")


def minutes_of(hours: str) -> tuple[int, int] | None:
    """First and last minute of the day that `22:00-07:00` or `22-7` names; None: it names none.

    Raises ValueError.
    """
    if not hours:
        return None
    found = _HOURS.fullmatch(hours.replace(" ", ""))
    if found is not None:
        start, end = (60 * int(found[n]) + int(found[n + 1] or 0) for n in (1, 3))
        if max(start, end) <= MINUTES_A_DAY and start % MINUTES_A_DAY != end % MINUTES_A_DAY:
            return start % MINUTES_A_DAY, end % MINUTES_A_DAY
    raise ValueError(f"hours are from when to when, as 22:00-07:00 or 22-7, not {hours[:70]!r}")
