"""What a sample of values says about shapes and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crowdgrad.data.preparing.options import ColumnWish, Options
from crowdgrad.data.preparing.pictures import PicturePlan, looked_at, plan_pictures
from crowdgrad.data.preparing.schema import is_picture

LOOKED_AT = 100
"""Pictures of a column."""


def shapes_in(sample: Mapping[str, Sequence[Any]], options: Options) -> dict[str, tuple[int, ...]]:
    """Of one record where all have one shape, else of one step; nothing for single numbers."""
    found = {}
    for name, values in sample.items():
        shapes = Counter(shape for value in values if (shape := _shape(value)) is not None)
        full = Counter({shape: n for shape, n in shapes.items() if 0 not in shape}) or shapes
        if not full or set(full) == {()}:
            continue
        usual = full.most_common(1)[0][0]
        wish = options.columns.get(name, ColumnWish()).kind
        steps = wish == "sequence" or (wish != "number" and len(shapes) > 1)
        found[name] = usual[1:] if steps else usual
    return found


def picture_in(sample: Mapping[str, Sequence[Any]], options: Options) -> PicturePlan | None:
    """What becomes of pictures; None where no column has one that can be opened."""
    seen = []
    for name, values in sample.items():
        wished = options.columns.get(name, ColumnWish()).kind == "image"  # paths, where one says so
        for value in values[:LOOKED_AT]:
            if is_picture(value) or (wished and isinstance(value, str)):
                try:
                    seen.append(looked_at(value))
                except ValueError:
                    continue  # counted as broken when it is read
    return plan_pictures(seen, options.images) if seen else None


def _shape(value: Any) -> tuple[int, ...] | None:
    if value is None or isinstance(value, str | bytes | Mapping):
        return None
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        return None
    return array.shape if array.dtype.kind in "fiub" else None
