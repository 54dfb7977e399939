"""Training ends with whichever comes first, and says which."""

from __future__ import annotations

import pytest

from crowdgrad.domain.job import StoppingRule
from crowdgrad.planner.stopping import should_stop

ALL = StoppingRule(epochs=5, target=0.97, minutes=2.0)


@pytest.mark.parametrize(
    ("rule", "all_done", "metric", "elapsed_s", "ends", "reason"),
    [
        (ALL, False, None, 0.0, False, "goes on"),
        (ALL, False, 0.9699, 119.9, False, "goes on"),
        (ALL, True, 0.5, 1.0, True, "all 5 epochs are done"),
        (ALL, False, 0.97, 1.0, True, "target of 0.97 is reached"),
        (ALL, False, 0.98, 500.0, True, "target"),
        (ALL, False, 0.5, 120.0, True, "2 minutes have passed"),
        (ALL, False, float("nan"), 1.0, False, "goes on"),
        (StoppingRule(epochs=5), False, 1.0, 1e9, False, "goes on"),
    ],
)
def test_when_a_job_is_over(
    rule: StoppingRule,
    all_done: bool,
    metric: float | None,
    elapsed_s: float,
    ends: bool,
    reason: str,
) -> None:
    stop, why = should_stop(rule, all_done=all_done, metric=metric, elapsed_s=elapsed_s)
    assert stop is ends
    assert reason in why


@pytest.mark.parametrize(
    ("perplexity", "ends"), [(5.1, False), (5.0, True), (3.0, True), (float("nan"), False)]
)
def test_where_less_is_better_a_target_is_reached_from_above(perplexity: float, ends: bool) -> None:
    rule = StoppingRule(epochs=5, target=5.0)
    stop, why = should_stop(rule, all_done=False, metric=perplexity, elapsed_s=1.0, better="lower")
    assert stop is ends
    assert ("target of 5 is reached" in why) is ends
