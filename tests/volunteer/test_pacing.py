"""The duty cycle: rests between batches make up the share, whatever a timer and a host do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.program.engines.base import Batch
from crowdgrad.volunteer.pacing import LEAST_S, SAVED_S, Paced, Pacer

SHARES = st.floats(0.05, 0.95)


class Time:
    """A clock, and a processor that is busy when told."""

    def __init__(self, late_s: float = 0.0, *, says: bool = True) -> None:
        """`says`: whether anybody can ask how busy it was."""
        self.now = self.spent = self.slept = 0.0
        self._late_s = late_s
        self._says = says

    def pacer(self) -> Pacer:
        busy = (lambda: self.spent) if self._says else None
        return Pacer(busy=busy, clock=lambda: self.now, sleep=self._sleep)

    def work(self, seconds: float, waits_s: float = 0.0) -> None:
        self.now += seconds + waits_s
        self.spent += seconds

    def _sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds + self._late_s


@given(
    SHARES,
    st.lists(st.floats(0.001, 0.5), min_size=20, max_size=60),
    st.floats(0, 0.01),
    st.floats(0, 0.1),
    st.booleans(),
)
def test_the_share_is_kept(
    share: float, batches: Sequence[float], late_s: float, hearing_s: float, says: bool
) -> None:
    """With what it takes to hear of the next unit, where anybody can say how much that was."""
    time = Time(late_s, says=says)
    pacer = time.pacer()
    for index, seconds in enumerate(batches):
        if index % 5 == 0:
            if says and index:
                time.work(hearing_s)
            pacer.begin(share)
        pacer.rest()
        time.work(seconds)
        if index % 5 == 4:
            pacer.end()
    pacer.end()
    pacer.rest()
    busy_s = time.spent
    # It may be ahead by what was saved and a rest put off, behind by one late timer.
    assert busy_s <= share * (time.now + SAVED_S + LEAST_S) + 1e-9
    assert busy_s >= share * (time.now - late_s - SAVED_S) - 1e-9


def test_waiting_for_the_next_unit_is_a_rest() -> None:
    time = Time()
    pacer = time.pacer()
    pacer.begin(0.5)
    time.work(1.0)
    pacer.end()
    time.now += 0.4
    pacer.begin(0.5)
    pacer.rest()
    assert time.slept == pytest.approx(0.6)


def test_a_long_wait_saves_up_little() -> None:
    time = Time()
    pacer = time.pacer()
    time.now += 3600.0
    pacer.begin(0.5)
    time.work(1.0)
    pacer.rest()
    assert time.slept == pytest.approx(1.0 - SAVED_S)


def test_time_that_others_had_the_processor_is_a_rest() -> None:
    time = Time()
    pacer = time.pacer()
    pacer.begin(0.25)
    time.work(1.0, waits_s=2.0)
    pacer.rest()
    assert time.slept == pytest.approx(1.0)


def test_at_full_speed_nothing_is_owed() -> None:
    time = Time()
    pacer = time.pacer()
    pacer.begin(0.1)
    time.work(1.0)
    pacer.end()
    pacer.begin(1.0)
    pacer.rest()
    time.work(1.0)
    pacer.rest()
    assert time.slept == 0


def test_where_nobody_says_how_busy_it_was_a_unit_counts_and_the_wait_for_it_does_not() -> None:
    time = Time(says=False)
    pacer = time.pacer()
    time.now += 100.0
    pacer.begin(0.5)
    time.work(1.0)
    pacer.rest()
    time.work(1.0)
    pacer.end()
    assert time.slept == pytest.approx(1.0 - SAVED_S)
    time.now += 0.4
    pacer.begin(0.5)
    pacer.rest()
    assert time.slept == pytest.approx(1.0 - SAVED_S + 0.6)


def test_a_rest_is_taken_before_each_batch_once() -> None:
    batches = [Batch(number=n, fields=(np.zeros(1),)) for n in range(3)]
    rests: list[Any] = []
    paced = Paced(batches, lambda: rests.append(None))
    assert list(paced) == batches
    assert [paced[n] for n in range(len(paced))] == batches
    assert paced[1:] == batches[1:]
    assert len(rests) == 3
