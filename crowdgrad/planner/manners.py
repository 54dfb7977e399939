"""How hard a volunteer works now, and why: one function of what is read, what is allowed and `now`.

What weighs more comes first: a person's word, then the hours, the battery, and who uses the
machine. Where nobody can say whether it is in use, it counts as idle; where nothing is known of a
battery, as on the mains.
"""

from __future__ import annotations

from crowdgrad.domain.manners import Effort, Limits, Pause, Profile, Readings, minutes_of
from crowdgrad.domain.matching import MINUTES_A_DAY

__all__ = ["Pause", "effort", "in_use", "share_of", "threads_by_now"]

SETTLED_S = 30.0
"""How long a trainer keeps its threads at least: another is started for others."""


def effort(readings: Readings, limits: Limits, pause: Pause | None = None) -> Effort:
    """`readings.at` is now."""
    if pause is not None and (pause.until is None or readings.at < pause.until):
        reason = _by_person(readings, pause.until)
        return _none(limits, reason, until=pause.until, by_person=True)
    left = _minutes_left(readings.minute_of_day, limits.hours)
    changes_at = None if left is None else _after(readings, abs(left))
    if left is not None and left < 0:
        begins = _of_day(readings.minute_of_day - left)
        return _none(limits, f"Paused: your hours begin at {begins}.", until=changes_at)
    if readings.on_battery and not limits.on_battery:
        return _none(limits, "Paused: this machine runs on battery.")
    used = in_use(readings, limits)
    if used and limits.only_when_idle:
        return _none(limits, "Paused: somebody uses this machine.")
    profile = limits.in_use if used else limits.idle
    return Effort(
        share=profile.share,
        threads=profile.threads,
        reason=f"Working {_how(profile)}: {_why(readings, limits, used=used)}.",
        until=changes_at,
    )


def share_of(effort: Effort, threads: int) -> float:
    """Of the time, for a trainer that was started with so many threads: where it may use fewer by
    now, it rests for the time that the others would have computed."""
    return effort.share * min(1.0, effort.threads / threads)


def threads_by_now(allowed: int, has: int, since_s: float) -> int:
    """Of a trainer that was started with so many, so long ago. Until then `share_of` counts."""
    return allowed if since_s >= SETTLED_S else has


def in_use(readings: Readings, limits: Limits) -> bool:
    """Whether somebody uses the machine, as far as anybody can say."""
    return readings.idle_s is not None and readings.idle_s < limits.idle_after_s


def _none(
    limits: Limits, reason: str, *, until: float | None = None, by_person: bool = False
) -> Effort:
    threads = limits.in_use.threads
    return Effort(share=0.0, threads=threads, reason=reason, until=until, by_person=by_person)


def _by_person(readings: Readings, until: float | None) -> str:
    if until is None:
        return "Paused by you, until you resume."
    minutes = int(until // 60) - int(readings.at // 60)
    days = (readings.minute_of_day + minutes) // MINUTES_A_DAY
    when = _of_day(readings.minute_of_day + minutes)
    later = f" in {days} days" if days > 1 else " tomorrow" if days else ""
    return f"Paused by you until {when}{later}."


def _how(profile: Profile) -> str:
    if profile.share == 1:
        return "at full speed"
    return "gently" if profile.share <= 0.5 else f"{profile.share:.0%} of the time"


def _why(readings: Readings, limits: Limits, *, used: bool) -> str:
    if limits.in_use == limits.idle and not limits.only_when_idle:
        return "so your limits say"
    if used:
        return "somebody uses this machine"
    if readings.idle_s is None:
        return "nobody can say whether this machine is in use"
    return "nobody uses this machine"


def _minutes_left(minute: int, hours: str) -> int | None:
    """Minutes until the hours end; below nothing: until they begin; None: there are none."""
    named = minutes_of(hours)
    if named is None:
        return None
    start, end = named
    to_start, to_end = (start - minute) % MINUTES_A_DAY, (end - minute) % MINUTES_A_DAY
    # Inside, the end is nearer than the next beginning.
    return to_end if 0 < to_end < (to_start or MINUTES_A_DAY) else -to_start


def _after(readings: Readings, minutes: int) -> float:
    """The beginning of the minute that is so many from this one."""
    return 60.0 * (readings.at // 60 + minutes)


def _of_day(minute: int) -> str:
    minute %= MINUTES_A_DAY
    return f"{minute // 60:02}:{minute % 60:02}"
