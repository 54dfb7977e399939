"""Points in time, bounded in number however long they come: about evenly over all of it.

Halving only the older points, each time there are too many, would leave next to nothing of how a
long run began. So all of them are thinned out alike: kept are those that lie a stride apart.
Strides are powers of two, so they grow seldom, and the same stride again drops nothing old.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
LEAST_MOST = 8
"""Below that the ends alone would be too many."""


def bounded(points: list[T], most: int, at_s: Callable[[T], float]) -> list[T]:
    """The same where they are no more than `most`; else at most two thirds of it and the ends.

    They come in the order of their time.
    """
    assert most >= LEAST_MOST
    return points if len(points) <= most else _apart(points, _stride_s(points, most, at_s), at_s)


def _stride_s(points: Sequence[T], most: int, at_s: Callable[[T], float]) -> float:
    """From one and a half to three times what lies between two of `most`."""
    passed_s = at_s(points[-1]) - at_s(points[0])
    if not 0.0 < passed_s < math.inf:
        return math.inf  # all at once, or of no time at all: the ends are enough
    _, power = math.frexp(1.5 * (passed_s / most))
    return math.ldexp(1.0, power)


def _apart(points: Sequence[T], stride_s: float, at_s: Callable[[T], float]) -> list[T]:
    """The first, each that is a stride or more behind the one before it, and the last."""
    kept = [points[0]]
    for point in points[1:-1]:
        if at_s(point) - at_s(kept[-1]) >= stride_s:
            kept.append(point)
    return [*kept, points[-1]]
