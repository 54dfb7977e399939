"""Rates are rates, and for a moment people may come more often."""

from __future__ import annotations

import pytest

from crowdgrad.matchmaker.limits import Rates


def test_rates_are_rates() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Rates(joins_per_s=0)


def test_at_once_people_may_come_as_often_as_in_some_seconds() -> None:
    rates = Rates(
        joins_per_s=1, address_joins_per_s=1, key_joins_per_s=1, key_reaches_per_s=1,
        address_reaches_per_s=1,
    )  # fmt: skip
    many = (
        (rates.in_all(), 2), (rates.by_address(), 10), (rates.by_key(), 20),
        (rates.questions(), 10), (rates.reaches_by_key(), 60), (rates.reaches_by_address(), 60),
    )  # fmt: skip
    for buckets, burst in many:
        taken = [buckets.take("", 0.0) for _ in range(burst + 1)]
        assert taken == [0.0] * burst + [pytest.approx(1.0)]
