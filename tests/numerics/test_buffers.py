"""Buffers never leave the range of what was received, whatever the staleness; counters add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.numerics import buffers
from crowdgrad.numerics.layout import StateLayout

MOMENTUM = 0.1


def tensor(name: str, dtype, *shape: int) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


SPEC = ProgramSpec(
    parameters=(tensor("w", "float32", 3),),
    buffers=(tensor("mean", "float32", 2), tensor("count", "int64")),
    inputs=(tensor("x", "float32"),),
    noise=(),
    metrics=(),
    outputs=1,
    work_per_sample=1.0,
    opset=20,
)
LAYOUT = StateLayout(SPEC)


def vector(mean: tuple[float, float], count: int) -> np.ndarray:
    found = np.zeros(LAYOUT.words, np.float32)
    (_, means), (_, counts) = LAYOUT.buffers(found)
    means[:], counts[...] = mean, count
    return found


def read(state: np.ndarray) -> tuple[list[float], int]:
    (_, means), (_, counts) = LAYOUT.buffers(state)
    return means.tolist(), int(counts)


def test_an_update_nobody_came_before_is_taken_as_it_is() -> None:
    state = vector((1.0, 2.0), 10)
    buffers.mix(LAYOUT, state, vector((0.1, -7.0), 3), buffers.share(0))
    assert read(state) == (pytest.approx([0.1, -7.0]), 13)


def test_a_stale_one_weighs_less_but_its_counter_counts() -> None:
    state = vector((0.0, 0.0), 10)
    buffers.mix(LAYOUT, state, vector((4.0, -4.0), 3), buffers.share(3))
    assert read(state) == ([2.0, -2.0], 13)


@pytest.mark.parametrize("staleness", [0, 1, 15, 16, 40])
def test_running_means_converge_at_any_staleness(staleness: int) -> None:
    # Everyone sees batches of mean 5; adding differences instead diverges from staleness 16 on.
    state, history = vector((100.0, -100.0), 0), []
    for step in range(60 * (staleness + 1)):
        history.append(read(state)[0])
        base = history[max(0, step - staleness)]
        sent = tuple((1 - MOMENTUM) * b + MOMENTUM * 5.0 for b in base)
        late = min(step, staleness)
        buffers.mix(LAYOUT, state, vector(sent, 1), buffers.share(late))  # type: ignore[arg-type]
        assert all(-100.0 <= value <= 100.0 for value in read(state)[0])
    means, count = read(state)
    assert means == pytest.approx([5.0, 5.0], abs=2.0)
    assert count == 60 * (staleness + 1)


LARGEST = float(np.finfo(np.float32).max)
HUGE = float(np.float32(3e38))
any_finite = st.sampled_from([HUGE, -HUGE, LARGEST, -LARGEST]) | st.floats(
    width=32, allow_nan=False, allow_infinity=False
)


@given(any_finite, any_finite, st.floats(0, 1))
def test_finite_numbers_never_mix_to_more_than_the_larger(
    one: float, other: float, part: float
) -> None:
    state = vector((one, -one), 0)
    with np.errstate(all="raise", under="ignore"):
        buffers.mix(LAYOUT, state, vector((other, -other), 1), part)
    low, high = sorted((one, other))
    assert low <= read(state)[0][0] <= high
    assert -high <= read(state)[0][1] <= -low


@given(st.floats(0, 1))
def test_the_largest_of_all_numbers_stays_itself(part: float) -> None:
    """Of 64 bits: there is no wider type to mix it in."""
    wide = StateLayout(replace(SPEC, buffers=(tensor("mean", "float64"),)))
    most = np.finfo(np.float64).max
    state = wide.pack({"w": np.zeros(3), "mean": np.array(most)})
    buffers.mix(wide, state, state.copy(), part)
    ((_, mean),) = wide.buffers(state)
    assert mean == most


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 50)), min_size=1, max_size=20))
def test_a_mix_stays_within_what_was_received(received: list[tuple[float, int]]) -> None:
    state = vector((0.0, 0.0), 0)
    for value, staleness in received:
        buffers.mix(LAYOUT, state, vector((value, -value), 1), buffers.share(staleness))
    most = max(abs(value) for value, _ in received)
    rounding = 1e-44  # of the smallest numbers there are
    assert all(abs(value) <= most * 1.00001 + rounding for value in read(state)[0])


def test_a_round_is_a_mean_by_samples_and_a_sum_of_counts() -> None:
    total = np.zeros(LAYOUT.update_words, np.float32)
    buffers.mix(LAYOUT, total, vector((1.0, 0.0), 1), 10 / 10)
    buffers.mix(LAYOUT, total, vector((4.0, 3.0), 2), 20 / 30)
    assert read(total) == ([3.0, 2.0], 3)


def test_what_a_unit_returns() -> None:
    before, last = vector((0.0, 0.0), 100), vector((1.0, 2.0), 104)
    update = np.zeros(LAYOUT.update_words, np.float32)
    buffers.return_buffers(LAYOUT, last, LAYOUT.counters(before), update, add=False)
    assert read(update) == ([1.0, 2.0], 4)
    again = vector((9.0, 9.0), 206)
    buffers.return_buffers(LAYOUT, again, LAYOUT.counters(vector((0, 0), 200)), update, add=True)
    assert read(update) == ([9.0, 9.0], 10)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_none_are_noticed(bad: float) -> None:
    assert buffers.finite(LAYOUT, vector((1.0, 2.0), 1 << 40))
    assert not buffers.finite(LAYOUT, vector((1.0, bad), 1))


@pytest.mark.parametrize("count", [buffers.MAX_INCREMENT + 1, -buffers.MAX_INCREMENT - 1, -(2**63)])
def test_counters_nobody_can_have_counted_are_noticed(count: int) -> None:
    assert buffers.credible(LAYOUT, vector((0.0, 0.0), buffers.MAX_INCREMENT))
    assert not buffers.credible(LAYOUT, vector((0.0, 0.0), count))
