"""Sources made for tests, and every record of what they have become."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crowdgrad.data.folder import DataFolder
from crowdgrad.data.preparing.options import Options, from_table
from crowdgrad.data.preparing.prepare import Result, prepare
from crowdgrad.net.identity import guest

KEY = guest("preparer")


def options(**wishes: Any) -> Options:
    """As a TOML file says them."""
    return from_table(wishes, "test")


def made(source: Any, out: Path, *, jobs: int = 1, **wishes: Any) -> Result:
    return prepare(source, out, options(**wishes), KEY, jobs=jobs)


def whole(source: Any, out: Path, *, jobs: int = 1, **wishes: Any) -> dict[str, np.ndarray]:
    """All records of all splits, an array for each field, in the order of the shards."""
    return records(made(source, out, jobs=jobs, **wishes).folder)


def records(folder: DataFolder, *splits: str) -> dict[str, np.ndarray]:
    shards = [
        folder.columns(number)
        for number, shard in enumerate(folder.manifest.shards)
        if not splits or shard.split in splits
    ]
    fields = folder.manifest.fields
    return {
        field.name: np.concatenate([shard[place] for shard in shards])
        if shards
        else np.zeros((0, *field.shape), field.dtype)
        for place, field in enumerate(fields)
    }


def in_order(found: Mapping[str, np.ndarray], by: np.ndarray) -> dict[str, np.ndarray]:
    """The same records as their source had them: `by` is the number each had there."""
    order = np.argsort(by, kind="stable")
    return {name: array[order] for name, array in found.items()}


def rows(found: Mapping[str, np.ndarray]) -> list[bytes]:
    """Every record as bytes, in an order of their own: for comparing sets that may be shuffled."""
    count = len(next(iter(found.values())))
    return sorted(b"|".join(array[n].tobytes() for array in found.values()) for n in range(count))


def classes(result: Result) -> tuple[str, ...]:
    """As the source spells them; a card has each on one line."""
    return result.record.fitted.classes
