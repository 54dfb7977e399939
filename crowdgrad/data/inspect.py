"""Looking at every record once before anybody trains on it."""

from __future__ import annotations

import numpy as np

from crowdgrad.data.dataset import DataSet
from crowdgrad.errors import DataMalformed

IGNORED = -100
"""The class that PyTorch's losses pass over by default."""


def check_finite(data: DataSet) -> None:
    """Raises DataMalformed, naming the first value that is not a finite number."""
    for split, columns in data.splits.items():
        for field, column in zip(data.fields, columns, strict=True):
            if column.dtype.kind != "f":
                continue
            rows = np.isfinite(column).reshape(len(column), -1).all(axis=1)
            if not rows.all():
                raise DataMalformed(
                    f"{field.name} of record {int(np.argmin(rows))} ({split}) is not a finite "
                    f"number ({int((~rows).sum())} such records in all).",
                    advice="Remove such records or fill the gaps.",
                )


def check_classes(data: DataSet, classes: int, number: int = -1) -> None:
    """Field `number` holds classes 0 to `classes` − 1. Raises DataMalformed."""
    for split, columns in data.splits.items():
        check_labels(columns[number], classes, data.fields[number].name, f"({split})")


def check_labels(labels: np.ndarray, classes: int, name: str, where: str) -> None:
    """Each is a class, or one that losses pass over. Raises DataMalformed."""
    wrong = (labels < 0) | (labels >= classes)
    if labels.dtype.kind == "i":
        wrong &= labels != IGNORED
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataMalformed(
            f"{name} of record {at} {where} is {labels[at]}; the model has the classes "
            f"0 to {classes - 1}.",
            advice="Number the classes from 0, or give the model more outputs.",
        )
