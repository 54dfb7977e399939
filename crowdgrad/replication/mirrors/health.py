"""When a mirror is asked, and when no longer: a decision of what happened and `now`.

After a failure it is left alone for a while, twice as long after each that follows; an answer with
the right bytes makes up for all of that. Wrong bytes are never made up for: a mirror that sent them
three times is a folder of something else. The host and other volunteers have the data anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crowdgrad.errors import CrowdgradError, DataAltered, MissingExtra, NotAgreed, NotDialled

FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 300.0
MOST_WRONG = 3
FINAL = (MissingExtra, NotAgreed, NotDialled)
"""What will be so the next time, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorHealth:
    """What is remembered of one mirror."""

    failures: int = 0
    """Since it last did as it should."""
    wrong: int = 0
    """How often it had other bytes than those of the chunk's name, in all."""
    not_before: float = 0.0
    """By the clock that `now` is of."""
    trouble: str = ""
    """What it was the last time, in words."""
    final: bool = False


NEW = MirrorHealth()


def may_ask(health: MirrorHealth, now: float) -> tuple[bool, str]:
    """Whether to ask it for a chunk now, and why or why not."""
    if health.final:
        return False, f"it is of no use here: {health.trouble}"
    if health.wrong >= MOST_WRONG:
        return False, f"it sent wrong bytes {health.wrong} times: it is not asked again"
    if now < health.not_before:
        wait_s = health.not_before - now
        times = "once" if health.failures == 1 else f"{health.failures} times in a row"
        return False, f"it failed {times}, so it has {wait_s:.0f} s more: {health.trouble}"
    if health.failures:
        return True, f"it has had its time since: {health.trouble}"
    return True, "nothing speaks against it"


def after_success(health: MirrorHealth) -> MirrorHealth:
    return replace(health, failures=0, not_before=0.0, trouble="")


def after_failure(health: MirrorHealth, error: CrowdgradError, now: float) -> MirrorHealth:
    """Several chunks may have been asked for at once: what fails while it is left alone already
    was asked before that, and makes nothing longer."""
    counted = replace(
        health,
        wrong=health.wrong + isinstance(error, DataAltered),
        trouble=error.message,
        final=health.final or isinstance(error, FINAL),
    )
    if now < health.not_before:
        return counted
    failures = health.failures + 1
    return replace(counted, failures=failures, not_before=now + wait_s(failures))


def wait_s(failures: int) -> float:
    """After so many in a row."""
    # 2.0**64 is far beyond the longest; the bound keeps a long night from overflowing.
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(failures - 1, 64))
