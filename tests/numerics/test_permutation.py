"""Every place once, the same for the same seed, and nothing a chi-squared test would notice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.numerics.permutation import permuted


def whole(count: int, *seed: int) -> np.ndarray:
    return permuted(np.arange(count, dtype=np.int64), count, *seed)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5000), st.integers(0, 2**64 - 1))
def test_every_place_is_somebodys_once(count: int, seed: int) -> None:
    assert np.array_equal(np.sort(whole(count, seed)), np.arange(count))


@given(st.integers(2, 2**62), st.integers(0, 2**64 - 1), st.integers(0, 2**62 - 1))
def test_a_place_knows_where_it_goes_without_the_others(count: int, seed: int, at: int) -> None:
    place = np.array([at % count], np.int64)
    found = permuted(place, count, seed)
    assert 0 <= found[0] < count
    assert np.array_equal(found, permuted(np.concatenate([place, place]), count, seed)[1:])


def test_known_answers() -> None:
    """Shuffled data is named by its hash: this order may never change."""
    assert whole(10, 0).tolist() == [8, 6, 5, 1, 7, 4, 3, 0, 2, 9]
    assert whole(10, 0, 1).tolist() == [9, 4, 6, 0, 3, 2, 7, 1, 8, 5]
    assert permuted(np.array([0, 123456789], np.int64), 10**12, 7).tolist() == [
        165615885775,
        973546790657,
    ]


def test_other_seeds_are_other_orders() -> None:
    orders = {tuple(whole(20, seed)) for seed in range(50)}
    orders |= {tuple(whole(20, 0, split)) for split in range(1, 50)}
    assert len(orders) == 99


@pytest.mark.parametrize("count", [6, pytest.param(24, marks=pytest.mark.slow)])
def test_every_place_is_as_likely_as_any_other(count: int) -> None:
    """Chi-squared over (place, destination) of 2,000 orders, far beyond chance only if biased."""
    orders = 2000
    table = np.zeros((count, count))
    for seed in range(orders):
        table[np.arange(count), whole(count, seed)] += 1
    expected = orders / count
    statistic = float(((table - expected) ** 2 / expected).sum())
    degrees = (count - 1) ** 2
    assert abs(statistic - degrees) < 6 * (2 * degrees) ** 0.5


def test_neighbours_do_not_stay_neighbours() -> None:
    gaps = np.abs(np.diff(whole(100_000, 3)))
    assert np.median(gaps) > 20_000
    assert (gaps == 1).mean() < 1e-3


@pytest.mark.parametrize("count", [0, -1, 2**62 + 1])
def test_there_is_no_order_of_nothing(count: int) -> None:
    with pytest.raises(ValueError, match="no order"):
        permuted(np.zeros(1, np.int64), count, 0)
