"""Learning rates by hand, and what holds for all schedules."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.numerics.schedules import Schedule


def factors(schedule: Schedule, *epochs: float, of: int = 10, volunteers: int = 1) -> list[float]:
    return [schedule.factor(epoch=e, epochs=of, volunteers=volunteers) for e in epochs]


def test_a_constant_rate_stays() -> None:
    assert factors(Schedule(), 0, 0.5, 9.99, 25, volunteers=7) == [1, 1, 1, 1]


def test_warm_up_rises_in_a_straight_line_from_a_hundredth() -> None:
    schedule = Schedule(warmup_epochs=4.0)
    assert factors(schedule, 0, 0.02, 1, 3, 4, 9) == [0.01, 0.01, 0.25, 0.75, 1, 1]


def test_the_rate_follows_the_number_of_volunteers() -> None:
    schedule = Schedule(scale_with_volunteers=True)
    by_crowd = [schedule.factor(epoch=3.0, epochs=10, volunteers=n) for n in (0, 1, 2, 8)]
    assert by_crowd == [1, 1, 2, 8]


def test_warm_up_rises_from_one_volunteers_rate_to_that_of_all() -> None:
    schedule = Schedule(scale_with_volunteers=True, warmup_epochs=2.0)
    assert factors(schedule, 0, 0.5, 1, 2, 5, volunteers=5) == [1, 2, 3, 5, 5]
    assert factors(schedule, 0, 0.5, 1, 2, 5, volunteers=1) == [1, 1, 1, 1, 1]


def test_steps_fall_by_the_factor_every_so_many_epochs() -> None:
    schedule = Schedule(shape="step", step_every=3.0, step_factor=0.5)
    assert factors(schedule, 0, 2.99, 3, 5.5, 6, 9) == [1, 1, 0.5, 0.5, 0.25, 0.125]
    assert factors(Schedule(shape="step", step_factor=1.0), 0, 10, 20) == [1, 1, 1]


def test_half_a_cosine() -> None:
    schedule = Schedule(shape="cosine")
    assert factors(schedule, 0, 2.5, 5, 7.5, 10, 12) == pytest.approx(
        [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0, 0], abs=1e-12
    )
    with_floor = Schedule(shape="cosine", floor=0.2)
    assert factors(with_floor, 0, 5, 10) == pytest.approx([1, 0.6, 0.2])


def test_the_cosine_begins_where_warm_up_ends() -> None:
    schedule = Schedule(shape="cosine", warmup_epochs=2.0)
    assert factors(schedule, 1, 2, 6, 10) == pytest.approx([0.5, 1, 0.5, 0], abs=1e-12)
    longer_than_training = Schedule(shape="cosine", warmup_epochs=20.0)
    assert factors(longer_than_training, 5, 10) == pytest.approx([0.25, 0.5])


def test_all_at_once() -> None:
    schedule = Schedule(
        shape="step", warmup_epochs=2.0, step_every=1.0, step_factor=0.1, scale_with_volunteers=True
    )
    # warm-up half done: 1 + (4 − 1)·0.75, and one step of ·0.1 already
    assert factors(schedule, 1.5, volunteers=4) == pytest.approx([3.25 * 0.1])


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": "linear"},
        {"warmup_epochs": -1.0},
        {"warmup_epochs": math.inf},
        {"warmup_epochs": math.nan},
        {"step_every": 0.0},
        {"step_every": math.inf},
        {"step_every": math.nan},
        {"step_factor": 0.0},
        {"step_factor": 1.1},
        {"step_factor": math.nan},
        {"floor": -0.1},
        {"floor": 1.1},
        {"floor": math.nan},
    ],
)
def test_nonsense_is_refused_with_its_value(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        Schedule(**wrong)


SCHEDULES = st.builds(
    Schedule,
    shape=st.sampled_from(["constant", "step", "cosine"]),
    warmup_epochs=st.just(0.0) | st.floats(0.01, 50),
    step_every=st.floats(0.1, 50),
    step_factor=st.floats(0.01, 1),
    floor=st.floats(0, 1),
    scale_with_volunteers=st.booleans(),
)
EPOCH, EPOCHS, CROWD = st.floats(0, 200), st.integers(1, 100), st.integers(0, 10_000)


@given(SCHEDULES, EPOCH, EPOCHS, CROWD)
def test_it_is_never_negative_and_never_above_the_crowds_rate(
    schedule: Schedule, epoch: float, epochs: int, crowd: int
) -> None:
    factor = schedule.factor(epoch=epoch, epochs=epochs, volunteers=crowd)
    most = max(1, crowd) if schedule.scale_with_volunteers else 1
    assert 0 <= factor <= most * (1 + 1e-12)


@given(SCHEDULES, EPOCH, st.floats(0, 50), EPOCHS, CROWD)
def test_after_warm_up_it_never_rises(
    schedule: Schedule, epoch: float, later: float, epochs: int, crowd: int
) -> None:
    first = schedule.warmup_epochs + epoch
    rates = factors(schedule, first, first + later, of=epochs, volunteers=crowd)
    assert rates[1] <= rates[0] * (1 + 1e-12)


@given(SCHEDULES, st.floats(0, 1), st.floats(0, 1), EPOCHS, CROWD)
def test_a_warm_up_to_a_constant_rate_never_falls(
    schedule: Schedule, one: float, other: float, epochs: int, crowd: int
) -> None:
    rising = Schedule(
        warmup_epochs=schedule.warmup_epochs, scale_with_volunteers=schedule.scale_with_volunteers
    )
    places = [share * rising.warmup_epochs for share in sorted((one, other))]
    rates = factors(rising, *places, of=epochs, volunteers=crowd)
    assert rates[0] <= rates[1] * (1 + 1e-12)


@given(SCHEDULES, EPOCH, EPOCHS, CROWD)
def test_the_crowd_counts_only_where_it_was_asked_to(
    schedule: Schedule, epoch: float, epochs: int, crowd: int
) -> None:
    alone, together = (
        schedule.factor(epoch=epoch, epochs=epochs, volunteers=n) for n in (1, max(1, crowd))
    )
    if not schedule.scale_with_volunteers:
        assert together == alone
    elif epoch >= schedule.warmup_epochs:
        assert together == pytest.approx(max(1, crowd) * alone)
    else:
        assert alone <= together * (1 + 1e-12)
