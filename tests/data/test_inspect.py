"""What every record is looked at for before anybody trains on it."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.data.dataset import DataSet, from_arrays
from crowdgrad.data.inspect import check_classes, check_finite
from crowdgrad.errors import DataMalformed


def data(
    labels: list[int], dtype: str = "int64", broken: dict[int, float] | None = None
) -> DataSet:
    x = np.zeros((len(labels), 2), np.float32)
    for row, value in (broken or {}).items():
        x[row, 1] = value
    y = np.array(labels, dtype)
    return from_arrays({"train": (x, y), "test": (x[:2], y[:2])})


def test_good_data_passes() -> None:
    check_finite(data([0, 1, 2]))
    check_classes(data([0, 1, 2]), 3)
    check_classes(data([0, 1, 2], "uint8"), 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_finite_number_is_named(value: float) -> None:
    with pytest.raises(DataMalformed, match=r"x of record 3 \(train\).*2 such records"):
        check_finite(data([0] * 5, broken={3: value, 4: value}))


@pytest.mark.parametrize(("labels", "said"), [([0, 7, 1], "record 1"), ([0, 1, -1], "record 2")])
def test_a_label_out_of_range_is_named(labels: list[int], said: str) -> None:
    with pytest.raises(DataMalformed, match=rf"y of {said}.*classes 0 to 2"):
        check_classes(data(labels), 3)


def test_the_class_that_losses_pass_over_is_no_mistake() -> None:
    check_classes(data([0, -100, 1]), 3)
