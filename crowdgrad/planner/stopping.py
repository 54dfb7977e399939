"""When a job is over."""

from __future__ import annotations

from crowdgrad.domain.job import StoppingRule
from crowdgrad.domain.program import Better


def should_stop(
    rule: StoppingRule,
    *,
    all_done: bool,
    metric: float | None,
    elapsed_s: float,
    better: Better = "higher",
) -> tuple[bool, str]:
    """Whether training ends now, and why (or what it waits for).

    A target is reached from below, or from above where `better` is lower.
    """
    if all_done:
        done = "the epoch is done" if rule.epochs == 1 else f"all {rule.epochs} epochs are done"
        return True, done
    if rule.target is not None and metric is not None and _reached(metric, rule.target, better):
        return True, f"the target of {rule.target:g} is reached ({metric:.4f})"
    if rule.minutes is not None and elapsed_s >= 60 * rule.minutes:
        return True, f"{_duration(60 * rule.minutes)} have passed"
    return False, "training goes on"


def _reached(metric: float, target: float, better: Better) -> bool:
    return metric >= target if better == "higher" else metric <= target


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.3g} minutes"
