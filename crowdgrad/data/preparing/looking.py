"""What a sample of values says about shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def shapes_in(sample: Mapping[str, Sequence[Any]]) -> dict[str, tuple[int, ...]]:
    """Of one record where all have one shape, else of one step; nothing for single numbers."""
    found = {}
    for name, values in sample.items():
        shapes = Counter(shape for value in values if (shape := _shape(value)) is not None)
        if not shapes or set(shapes) == {()}:
            continue
        if len(shapes) == 1:
            found[name] = next(iter(shapes))
        else:
            found[name] = shapes.most_common(1)[0][0][1:]
    return found


def _shape(value: Any) -> tuple[int, ...] | None:
    if value is None or isinstance(value, str | bytes | Mapping):
        return None
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        return None
    return array.shape if array.dtype.kind in "fiub" else None
