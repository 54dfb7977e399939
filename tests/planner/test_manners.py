"""How hard a volunteer works: what weighs more, until when, and in which words."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.manners import (
    LEAST_SHARE,
    Effort,
    Limits,
    Pause,
    Profile,
    Readings,
    minutes_of,
)
from crowdgrad.domain.matching import MINUTES_A_DAY, Hours
from crowdgrad.planner.manners import effort, in_use, share_of, threads_by_now

NOON = 20_000 * 86_400.0 + 12 * 3600
"""In a place where the clock shows UTC."""
GENTLE = Limits()
EQUAL = Limits(in_use=Profile(share=0.25), idle=Profile(share=0.25))


def read(at: float = NOON, **more: Any) -> Readings:
    return Readings(at=at, minute_of_day=int(at // 60) % MINUTES_A_DAY, **more)


@pytest.mark.parametrize(
    ("readings", "limits", "pause", "share", "reason"),
    [
        (read(), GENTLE, None, 1.0,
         "Working at full speed: nobody can say whether this machine is in use."),
        (read(idle_s=0.0), GENTLE, None, 0.5, "Working gently: somebody uses this machine."),
        (read(idle_s=299.9), GENTLE, None, 0.5, "Working gently: somebody uses this machine."),
        (read(idle_s=300.0), GENTLE, None, 1.0,
         "Working at full speed: nobody uses this machine."),
        (read(idle_s=0.0), Limits(in_use=Profile(share=0.75)), None, 0.75,
         "Working 75% of the time: somebody uses this machine."),
        (read(idle_s=0.0), EQUAL, None, 0.25, "Working gently: so your limits say."),
        (read(idle_s=0.0), Limits(only_when_idle=True), None, 0.0,
         "Paused: somebody uses this machine."),
        (read(idle_s=900.0), Limits(only_when_idle=True), None, 1.0,
         "Working at full speed: nobody uses this machine."),
        (read(on_battery=True, idle_s=900.0), GENTLE, None, 0.0,
         "Paused: this machine runs on battery."),
        (read(on_battery=True, idle_s=900.0), Limits(on_battery=True), None, 1.0,
         "Working at full speed: nobody uses this machine."),
        (read(on_battery=False), Limits(hours="22:00-07:00"), None, 0.0,
         "Paused: your hours begin at 22:00."),
        (read(on_battery=True), Limits(hours="22-7"), None, 0.0,
         "Paused: your hours begin at 22:00."),
        (read(idle_s=0.0), Limits(hours="9-17"), None, 0.5,
         "Working gently: somebody uses this machine."),
        (read(idle_s=900.0), GENTLE, Pause(), 0.0, "Paused by you, until you resume."),
        (read(), GENTLE, Pause(until=NOON + 7200), 0.0, "Paused by you until 14:00."),
        (read(), GENTLE, Pause(until=NOON + 14 * 3600), 0.0, "Paused by you until 02:00 tomorrow."),
        (read(), GENTLE, Pause(until=NOON + 72 * 3600), 0.0,
         "Paused by you until 12:00 in 3 days."),
        (read(), GENTLE, Pause(until=NOON), 1.0,
         "Working at full speed: nobody can say whether this machine is in use."),
    ],
)  # fmt: skip
def test_what_it_comes_to(
    readings: Readings, limits: Limits, pause: Pause | None, share: float, reason: str
) -> None:
    found = effort(readings, limits, pause)
    assert (found.share, found.reason) == (share, reason)
    assert found.by_person == reason.startswith("Paused by you")


def test_threads_are_those_of_the_profile() -> None:
    limits = Limits(in_use=Profile(threads=2, share=0.5), idle=Profile(threads=4))
    assert effort(read(idle_s=0.0), limits).threads == 2
    assert effort(read(idle_s=1e4), limits).threads == 4


@pytest.mark.parametrize(
    ("hours", "pause", "until"),
    [
        ("", None, None),
        ("", Pause(), None),
        ("22-7", Pause(), None),  # it lasts longer than the hours
        ("22-7", Pause(until=NOON + 60), NOON + 60),
        ("22-7", None, NOON + 10 * 3600),
        ("9:30-17:15", None, NOON + 5 * 3600 + 900),
        ("12-13", None, NOON + 3600),
        ("11-12", None, NOON + 23 * 3600),
    ],
)
def test_when_it_changes_by_itself(hours: str, pause: Pause | None, until: float | None) -> None:
    assert effort(read(), Limits(hours=hours), pause).until == until


def test_a_day_with_hours_and_a_pause_under_a_virtual_clock() -> None:
    """Nobody sleeps, and every change comes when it was announced."""
    limits, pause = Limits(hours="22:00-07:00"), Pause(until=NOON + 13 * 3600)
    now, end, told = NOON, NOON + 2 * 86_400, []
    while now < end:
        found = effort(read(now), limits, pause)
        told.append((int(now - NOON) // 60, found.share))
        assert found.until is not None
        assert found.until > now
        before = effort(read(found.until - 1), limits, pause)  # in its words midnight may pass
        assert (before.share, before.until) == (found.share, found.until)
        assert effort(read(found.until), limits, pause).until != found.until
        now = found.until
    assert told == [
        (0, 0.0),  # paused over the evening
        (13 * 60, 1.0),
        (19 * 60, 0.0),
        (34 * 60, 1.0),
        (43 * 60, 0.0),
    ]


profiles = st.builds(Profile, share=st.floats(LEAST_SHARE, 1), threads=st.integers(1, 64))
minutes = st.integers(0, MINUTES_A_DAY - 1)
hours = st.one_of(
    st.just(""),
    st.tuples(minutes, minutes)
    .filter(lambda both: both[0] != both[1])
    .map(lambda both: "-".join(f"{m // 60:02}:{m % 60:02}" for m in both)),
)
all_limits = st.builds(
    Limits,
    in_use=profiles,
    idle=profiles,
    only_when_idle=st.booleans(),
    idle_after_s=st.floats(0, 1e6),
    on_battery=st.booleans(),
    hours=hours,
)
times = st.floats(NOON, NOON + 1e7)
all_readings = st.builds(
    read,
    at=times,
    idle_s=st.none() | st.floats(0, 1e7),
    on_battery=st.none() | st.booleans(),
    battery=st.none() | st.floats(0, 1),
    load=st.none() | st.floats(0, 100),
)
pauses = st.none() | st.builds(Pause, until=st.none() | times)


@given(all_readings, all_limits, pauses)
def test_it_never_works_harder_than_allowed(
    readings: Readings, limits: Limits, pause: Pause | None
) -> None:
    found = effort(readings, limits, pause)
    used = in_use(readings, limits)
    allowed = limits.in_use if used else limits.idle
    assert found.share in (0.0, allowed.share)
    assert found.reason.endswith(".")
    assert found.reason.startswith("Working" if found.share else "Paused")
    if found.until is not None:
        assert found.until > readings.at
    paused = pause is not None and (pause.until is None or pause.until > readings.at)
    assert found.by_person == paused
    if found.share == 0:
        return
    assert found.threads == allowed.threads
    assert not paused
    assert not readings.on_battery or limits.on_battery
    assert not (used and limits.only_when_idle)


@given(all_readings, all_limits, pauses, st.data())
def test_whoever_allows_less_gets_less(
    readings: Readings, limits: Limits, pause: Pause | None, data: st.DataObject
) -> None:
    """One preference made stricter, whatever the others say."""
    gentler, shorter = (
        dataclasses.replace(profile, share=data.draw(st.floats(LEAST_SHARE, profile.share)))
        for profile in (limits.in_use, limits.idle)
    )
    stricter = [
        dataclasses.replace(limits, in_use=gentler),
        dataclasses.replace(limits, idle=shorter),
        dataclasses.replace(limits, only_when_idle=True),
        dataclasses.replace(limits, on_battery=False),
    ]
    if not limits.hours:
        stricter.append(dataclasses.replace(limits, hours=data.draw(hours)))
    if limits.in_use.share <= limits.idle.share:
        later = data.draw(st.floats(limits.idle_after_s, 2e6))
        stricter.append(dataclasses.replace(limits, idle_after_s=later))
    before = effort(readings, limits, pause).share
    for less in stricter:
        assert effort(readings, less, pause).share <= before, less
    assert effort(readings, limits, Pause()).share == 0


@given(all_readings, all_limits, st.integers(1, 64))
def test_a_trainer_with_too_many_threads_rests_for_them(
    readings: Readings, limits: Limits, threads: int
) -> None:
    found = effort(readings, limits)
    share = share_of(found, threads)
    assert 0 <= share <= found.share
    assert (share > 0) == (found.share > 0)
    assert share * threads <= found.share * max(found.threads, threads) + 1e-9
    if threads > found.threads:
        assert share * threads == pytest.approx(found.share * found.threads)
    else:
        assert share == found.share


@given(st.integers(1, 64), st.integers(1, 64), st.floats(0, 1e6))
def test_a_trainer_keeps_its_threads_for_a_while(allowed: int, has: int, since_s: float) -> None:
    assert threads_by_now(allowed, has, since_s) == (has if since_s < 30 else allowed)


@given(times, hours)
def test_hours_are_those_that_a_matchmaker_keeps(at: float, named: str) -> None:
    found = minutes_of(named)
    works = effort(read(at), Limits(hours=named)).share > 0
    assert works == (found is None or Hours(start=found[0], end=found[1]).include(at))


@given(all_readings, all_limits, pauses)
def test_what_is_not_known_never_stops_it(
    readings: Readings, limits: Limits, pause: Pause | None
) -> None:
    blind = dataclasses.replace(readings, idle_s=None, on_battery=None, battery=None, load=None)
    harder = effort(blind, limits, pause)
    assert harder.share in (0.0, limits.idle.share)
    if effort(readings, limits, pause).share > 0:
        assert harder.share > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Profile(share=0.0),
        lambda: Profile(share=1.01),
        lambda: Profile(share=math.nan),
        lambda: Profile(threads=0),
        lambda: Limits(idle_after_s=-1),
        lambda: Limits(hours="late"),
        lambda: Limits(hours="7-7"),
        lambda: Limits(memory_mb=-1),
        lambda: Limits(cache_mb=0),
        lambda: Limits(most_upload_mbps=-1),
        lambda: Limits(most_download_mbps=math.inf),
        lambda: Pause(until=math.inf),
        lambda: Effort(share=0.01, threads=1, reason=""),
        lambda: Effort(share=0.5, threads=1, reason="", by_person=True),
        lambda: Readings(at=math.nan, minute_of_day=0),
        lambda: Readings(at=0, minute_of_day=MINUTES_A_DAY),
    ],
)
def test_what_makes_no_sense_is_not_made(make: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        make()
