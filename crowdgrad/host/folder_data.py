"""A prepared data folder as the data of a job: looked through shard by shard, never all at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from crowdgrad.data.dataset import DataSet
from crowdgrad.data.folder import DataFolder
from crowdgrad.data.inspect import check_labels
from crowdgrad.domain.data import Field, Manifest, Split
from crowdgrad.errors import DataMalformed, JobFileError, RecipeError
from crowdgrad.recipes.base import Recipe

Columns = tuple[np.ndarray, ...]


def fields_of(data: DataSet | DataFolder) -> tuple[Field, ...]:
    return data.manifest.fields if isinstance(data, DataFolder) else data.fields


def records_of(data: DataSet | DataFolder, split: Split) -> int:
    return data.manifest.records(split) if isinstance(data, DataFolder) else data.records(split)


def some_of(data: DataSet | DataFolder, records: int) -> Columns:
    """The first so many training records. Raises DataError."""
    if isinstance(data, DataFolder):
        return data.some("train", records)
    return tuple(column[:records] for column in data.splits["train"])


def check_usable(folder: DataFolder, recipe: Recipe) -> None:
    """Raises JobFileError, RecipeError."""
    for split in ("train", "validation"):
        if not folder.manifest.numbers(split):
            raise JobFileError(
                f"{folder.path} has no {split} records.",
                advice="Prepare it with some: its splits are used as they are.",
            )
    if folder.growing and recipe.serving().assignment == "segments":
        raise RecipeError(
            f"{folder.path} is growing, and with assignment = segments every volunteer has its own "
            "part of the data, which cannot grow.",
            advice="Give the recipe assignment = leases, or wait until the folder is complete.",
        )


def look_through(
    folder: DataFolder, numbers: Iterable[int], classes: int | None, label: int
) -> None:
    """Every record of these shards, once: whole, finite, and of a class the model has.

    `label`: the number of the field that says which. Raises DataError.
    """
    for number in numbers:
        columns = folder.columns(number)
        for field, column in zip(folder.manifest.fields, columns, strict=True):
            if column.dtype.kind == "f" and not np.isfinite(column).all():
                raise DataMalformed(
                    f"{field.name} of some record of {_where(folder.manifest, number)} is not a "
                    "finite number.",
                    advice="Remove such records or fill the gaps, and prepare the data anew.",
                )
        if classes is not None:
            name, where = folder.manifest.fields[label].name, _where(folder.manifest, number)
            check_labels(columns[label], classes, name, f"of {where}")


def _where(manifest: Manifest, number: int) -> str:
    return f"shard {number} ({manifest.shards[number].split})"


def small_shards(manifest: Manifest, batch_size: int) -> tuple[str, ...]:
    """What people should know of a folder that was not cut for this recipe."""
    records = [shard.records for shard in manifest.shards if shard.split == "train"]
    small = sum(count < batch_size for count in records)
    if not small:
        return ()
    return (
        f"{small:,} of {len(records):,} training shards hold fewer records than a batch of "
        f"{batch_size}: a batch lies in one shard, so theirs are smaller.",
    )
