"""Which losses stay high: planted ones are found, passing ones are not, and the reason is said."""

from __future__ import annotations

import math
import random

import pytest

from crowdgrad.planner.label_noise import BARS, LabelNoise, judge, noise_in_words

CLASSES = 10


def looks(
    records: int, wrong: set[int], *, times: int = 3, usual: float = 0.2, high: float = 4.0
) -> list[dict[int, float]]:
    """Losses around the usual, those of the wrong records around the high."""
    dice = random.Random(1)
    return [
        {n: (high if n in wrong else usual) * dice.uniform(0.7, 1.3) for n in range(records)}
        for _ in range(times)
    ]


@pytest.mark.parametrize("classes", [CLASSES, None])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.4])
def test_planted_noise_is_found(share: float, classes: int | None) -> None:
    wrong = set(random.Random(2).sample(range(1000), int(1000 * share)))
    found, high = judge(looks(1000, wrong), classes)
    assert set(high) == wrong
    assert found.share == share
    assert (found.samples, found.looks) == (1000, 3)
    assert found.error == pytest.approx(math.sqrt(share * (1 - share) / 1000), abs=1.2e-3)
    assert found.error > 0
    assert f"{len(wrong):,} of 1,000 training records" in found.reason


def test_guessing_is_the_bound_of_a_classification() -> None:
    bound = math.log(CLASSES)
    found, high = judge([{1: bound - 1e-9, 2: bound + 1e-9, 3: 0.0}], CLASSES)
    assert (high, found.threshold) == ([2], bound)
    assert "in the only look" in found.reason


def test_a_loss_must_stay_high() -> None:
    seen = looks(50, {3, 4})
    seen[1][3] = 0.1  # once it was understood
    seen.insert(0, dict.fromkeys(range(50), 9.0))  # before anything was learned
    found, high = judge(seen, CLASSES)
    assert (high, found.looks) == ([4], 3)


def test_the_highest_come_first() -> None:
    seen = looks(50, set())
    for look in seen:
        look |= {7: 5.0, 8: 9.0, 9: 7.0}
    seen[0][8] = 3.0  # the least counts
    assert judge(seen, CLASSES)[1] == [9, 7, 8]


def test_what_is_not_finite_or_not_in_every_look_does_not_count() -> None:
    seen = looks(50, {3})
    seen[0][10], seen[2][11] = math.nan, math.inf
    del seen[1][12]
    found, high = judge(seen, CLASSES)
    assert (found.samples, high) == (47, [3])
    assert judge([{1: math.nan}], CLASSES)[0].share is None


def test_nothing_is_known_before_somebody_has_looked() -> None:
    found, high = judge([], CLASSES)
    assert (found.share, high) == (None, [])
    assert noise_in_words(found) == (
        "Noise in labels: not known; nobody has looked at single records yet."
    )


def test_where_most_losses_are_the_same_none_stands_out() -> None:
    found, high = judge([{n: float(n == 3) for n in range(9)}], None)
    assert (found.share, high) == (None, [])
    assert "the very same loss" in found.reason


def test_a_model_that_has_learned_nothing_is_said() -> None:
    assert "hardly learned" in judge(looks(50, {1}, usual=2.0), CLASSES)[0].reason
    assert "hardly learned" not in judge(looks(50, {1}), CLASSES)[0].reason


@pytest.mark.parametrize("classes", [CLASSES, None])
def test_the_histogram_has_every_record_and_a_bar_ends_at_the_threshold(
    classes: int | None,
) -> None:
    seen = looks(200, {1, 2, 3}, high=1e6)
    seen[-1][4] = -0.5  # a density may be larger than one
    found, high = judge(seen, classes)
    assert len(found.histogram) == BARS
    assert sum(bucket.records for bucket in found.histogram) == 200
    assert found.threshold == pytest.approx(found.histogram[3].most)
    assert found.histogram[-1].records == len(high)
    assert found.histogram[-1].most is None


def test_the_sentence_has_the_numbers() -> None:
    found = LabelNoise(share=0.2, error=0.0126, samples=1000, looks=3, reason="because")
    assert noise_in_words(found) == (
        "Noise in labels: the loss of 20.0 % (± 1.3 %) stays high; because."
    )
