"""Who is here, in doubt or gone: by signs of life and by progress, never by our own sleep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.planner.membership import judge, later, look_again_s, overslept_s

SILENCE_S = 10.0
seconds = st.floats(0, 1e6)


@pytest.mark.parametrize(
    ("silent_s", "presence"),
    [(0, "here"), (4.9, "here"), (5.0, "here"), (5.1, "suspect"), (10.0, "suspect"),
     (10.1, "gone"), (1e6, "gone")],
)  # fmt: skip
def test_silence_makes_suspect_and_then_gone(silent_s: float, presence: str) -> None:
    now = 2e6
    found, reason = judge(now, heard_at=now - silent_s, silence_s=SILENCE_S)
    assert found == presence
    assert (reason == f"nothing heard for {silent_s:.0f} s") == (presence != "here")


@pytest.mark.parametrize(
    ("at_unit_s", "usual_s", "reason"),
    [
        (4.9, 0.3, ""),
        (12.0, 0.3, "at a unit for 12 s, usually 0.3 s"),
        (12.0, 3.0, ""),
        (16.0, 3.0, "at a unit for 16 s, usually 3 s"),
        (1e5, 0.0, ""),
        (61.0, 12.0, "at a unit for 61 s, usually 12 s"),
    ],
)
def test_a_unit_that_takes_far_too_long_makes_suspect(
    at_unit_s: float, usual_s: float, reason: str
) -> None:
    found, why = judge(0.0, heard_at=0.0, silence_s=SILENCE_S, at_unit_s=at_unit_s, usual_s=usual_s)
    assert found == ("suspect" if reason else "here")
    assert not reason or why == reason


@given(seconds, seconds, seconds)
def test_getting_nothing_done_alone_makes_nobody_gone(
    silent_s: float, at_unit_s: float, usual_s: float
) -> None:
    now = 2e6
    found, reason = judge(
        now, heard_at=now - silent_s, silence_s=SILENCE_S, at_unit_s=at_unit_s, usual_s=usual_s
    )
    assert (found == "gone") == (now - (now - silent_s) > SILENCE_S)
    assert reason


@given(st.floats(0, 9.9), seconds)
def test_our_own_sleep_is_nobodys_silence(silent_s: float, asleep_s: float) -> None:
    now = 4e6
    heard_at = now - silent_s - asleep_s
    found, _ = judge(now, heard_at=heard_at, silence_s=SILENCE_S, asleep_s=asleep_s)
    assert found != "gone"
    assert (found == "suspect") == (now - heard_at - asleep_s > SILENCE_S / 2)


@given(st.floats(0, 9.99), st.floats(0, 100))
def test_nothing_changes_before_we_look_again(silent_s: float, asleep_s: float) -> None:
    heard_at = 1000.0
    now = heard_at + silent_s + asleep_s
    pause_s = look_again_s(now, heard_at=heard_at, silence_s=SILENCE_S, asleep_s=asleep_s)
    assert 0 <= pause_s <= SILENCE_S / 2 + 1e-6
    before, _ = judge(now, heard_at=heard_at, silence_s=SILENCE_S, asleep_s=asleep_s)
    later = now + max(0.0, pause_s - 1e-6)
    assert judge(later, heard_at=heard_at, silence_s=SILENCE_S, asleep_s=asleep_s)[0] == before
    later = now + pause_s + 1e-6
    assert judge(later, heard_at=heard_at, silence_s=SILENCE_S, asleep_s=asleep_s)[0] != before


@pytest.mark.parametrize(
    ("asked_s", "took_s", "slept_s"),
    [(2.0, 2.0, 0.0), (2.0, 2.9, 0.0), (2.0, 62.0, 60.0), (0.05, 0.5, 0.0), (0.05, 3.05, 3.0)],
)
def test_a_pause_that_took_far_longer_was_sleep(
    asked_s: float, took_s: float, slept_s: float
) -> None:
    assert overslept_s(asked_s, took_s) == pytest.approx(slept_s)


@pytest.mark.parametrize(
    ("ends_at", "held_up_s", "most", "ends"),
    [(130.0, 5.0, 200.0, 135.0), (101.0, 5.0, 200.0, 110.0), (190.0, 50.0, 200.0, 200.0),
     (250.0, 5.0, 200.0, 250.0), (101.0, 0.0, 90.0, 101.0)],
)  # fmt: skip
def test_a_lease_ends_later_by_what_we_held_its_holder_up(
    ends_at: float, held_up_s: float, most: float, ends: float
) -> None:
    assert later(ends_at, 100.0, held_up_s=held_up_s, least_s=10.0, most=most) == ends
