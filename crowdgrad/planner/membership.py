"""Who is here, who is in doubt, who has gone: judged by signs of life and by progress.

Somebody in doubt keeps its place but not its work: what it is at is offered to others, and taken
from whoever is first. Only silence makes somebody gone; a connection that beats but gets nothing
done is merely in doubt. Time in which we ourselves were asleep (stopped, suspended, held up) says
nothing about others and is not counted.
"""

from __future__ import annotations

from typing import Literal

Presence = Literal["here", "suspect", "gone"]

SUSPECT_SHARE = 0.5
"""Of the silence that makes somebody gone."""
AWAKE_S = 2.0
"""While we are awake we look at something at least so often."""
LEAST_AT_A_UNIT_S = 5.0
TIMES_ITS_USUAL = 5.0


def judge(
    now: float,
    *,
    heard_at: float,
    silence_s: float,
    asleep_s: float = 0.0,
    at_unit_s: float = 0.0,
    usual_s: float = 0.0,
) -> tuple[Presence, str]:
    """Whether a member is here, and why.

    `asleep_s`: how long we slept since it was heard of. `at_unit_s`: how long it has been at its
    oldest unit without a word about it; `usual_s`: how long a unit usually takes it, 0 if unknown.
    """
    silent_s = now - heard_at - asleep_s
    if silent_s > silence_s:
        return "gone", f"nothing heard for {silent_s:.0f} s"
    if silent_s > SUSPECT_SHARE * silence_s:
        return "suspect", f"nothing heard for {silent_s:.0f} s"
    if usual_s > 0 and at_unit_s > max(LEAST_AT_A_UNIT_S, TIMES_ITS_USUAL * usual_s):
        return "suspect", f"at a unit for {at_unit_s:.0f} s, usually {_short(usual_s)}"
    return "here", "heard of" if silent_s < 1 else f"heard of {silent_s:.0f} s ago"


def look_again_s(now: float, *, heard_at: float, silence_s: float, asleep_s: float = 0.0) -> float:
    """How long until silence alone could change the judgement."""
    silent_s = now - heard_at - asleep_s
    for bound_s in (SUSPECT_SHARE * silence_s, silence_s):
        if silent_s <= bound_s:
            return bound_s - silent_s
    return 0.0


def overslept_s(asked_s: float, took_s: float) -> float:
    """How much of a pause was our own sleep: all beyond the pause, unless we were merely busy."""
    late_s = took_s - asked_s
    return late_s if late_s > max(0.5, 0.5 * asked_s) else 0.0


def later(ends_at: float, now: float, *, held_up_s: float, least_s: float, most: float) -> float:
    """When a lease ends whose holder we held up for so long: so much later, and not at once.

    Never after `most`, unless it did before: whoever waits for us must not keep all others waiting.
    """
    return max(ends_at, min(most, max(ends_at + held_up_s, now + least_s)))


def _short(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1g} s"
