"""What a ready-made model is told of a data set: ranges and moments that its fields do not say.

Names of classes and a vocabulary are taken from the data's card; where it has none, every record
is looked at for the largest number. Moments are measured on the first training records, where the
data does not bring its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crowdgrad.capture.ready.base import Column, Told
from crowdgrad.capture.ready.reading import goal_of, is_length, is_whole, materials
from crowdgrad.data.dataset import DataSet
from crowdgrad.data.folder import DataFolder
from crowdgrad.domain.data import Field, Moment
from crowdgrad.errors import JobFileError
from crowdgrad.host.folder_data import fields_of, some_of

MEASURED = 8192
"""Records that moments are measured on, at most."""


def told_of(data: DataSet | DataFolder) -> Told:
    """Raises DataError, and JobFileError where the data has no target."""
    fields = fields_of(data)
    if len(fields) < 2:
        raise JobFileError(
            f"The data has one field, {fields[0].name}: there is nothing to learn.",
            advice="Give it a target, or write a task of your own: docs/models.md.",
        )
    names = data.manifest.card if isinstance(data, DataFolder) else data
    classes, vocabulary = len(names.classes), len(names.vocabulary)
    ranges = _ranges(data, fields, classes, vocabulary)
    some = some_of(data, MEASURED)
    columns = []
    for number, field in enumerate(fields):
        least, most = ranges.get(number, (0, 0))
        mean, std = _moments(field, some[number])
        columns.append(Column(field=field, least=least, most=most, mean=mean, std=std))
    return Told(columns=tuple(columns), classes=classes, vocabulary=vocabulary)


def _ranges(
    data: DataSet | DataFolder, fields: tuple[Field, ...], classes: int, vocabulary: int
) -> dict[int, tuple[int, int]]:
    """By the number of the field: the least and the most of those that count something."""
    last, text = len(fields) - 1, "text" in materials(fields)
    found: dict[int, tuple[int, int]] = {}
    wanted = []
    for number, field in enumerate(fields):
        if not is_whole(field) or field.mean is not None or len(field.shape) > 1:
            continue
        if is_length(field, fields[0]) and 0 < number < last:
            found[number] = (1, fields[0].shape[0])
        elif number == last and goal_of(fields) == "class" and classes:
            found[number] = (0, classes - 1)
        elif text and vocabulary and (number == 0 or goal_of(fields) == "next"):
            found[number] = (0, vocabulary - 1)
        else:
            wanted.append(number)
    for columns in _blocks(data) if wanted else ():
        for number in wanted:
            low, high = int(columns[number].min()), int(columns[number].max())
            before = found.get(number, (low, high))
            found[number] = (min(low, before[0]), max(high, before[1]))
    return found


def _blocks(data: DataSet | DataFolder) -> Iterator[tuple[np.ndarray, ...]]:
    """All records of all splits, a part at a time."""
    if isinstance(data, DataFolder):
        yield from map(data.columns, range(len(data.manifest.shards)))
    else:
        yield from data.splits.values()


def _moments(field: Field, values: np.ndarray) -> tuple[Moment, Moment]:
    """Of what the model reads: each place of a row for itself, everything else as a whole."""
    if field.mean is not None or field.dtype == "bool":
        return 0.0, 1.0
    numbers = values.astype(np.float64)
    if len(field.shape) != 1:
        mean, std = float(numbers.mean()), float(numbers.std())
        return mean, std if std > 0 else 1.0
    means, stds = numbers.mean(axis=0), numbers.std(axis=0)
    return tuple(means.tolist()), tuple(np.where(stds > 0, stds, 1.0).tolist())
