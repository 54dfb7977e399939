"""However long points come, what is kept lies about evenly over all of their time."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.numerics.evenly import bounded


def kept_of(stream: list[float], most: int) -> list[float]:
    points: list[float] = []
    for at_s in stream:
        points.append(at_s)
        points = bounded(points, most, float)
    return points


@settings(deadline=None)
@given(
    most=st.integers(8, 64),
    every_s=st.floats(0.01, 100.0),
    count=st.integers(2, 3000),
)
def test_a_regular_stream_leaves_no_hole(most: int, every_s: float, count: int) -> None:
    points = kept_of([(n + 1) * every_s for n in range(count)], most)
    gaps_s = [later - before for before, later in itertools.pairwise(points)]
    mean_s = (points[-1] - points[0]) / len(gaps_s)
    assert (points[0], points[-1]) == (every_s, count * every_s)
    assert min(count, most // 4) <= len(points) <= most
    assert max(gaps_s) <= 7 * mean_s


@settings(deadline=None)
@given(
    most=st.integers(8, 64),
    steps_s=st.lists(st.floats(0.0, 1e300, allow_subnormal=True), min_size=1, max_size=500),
)
def test_any_stream_is_bounded_and_keeps_its_ends(most: int, steps_s: list[float]) -> None:
    stream, at_s = [], 0.0
    for step_s in steps_s:
        at_s += step_s
        stream.append(at_s)
    points = kept_of(stream, most)
    assert len(points) <= most
    assert (points[0], points[-1]) == (stream[0], stream[-1])
    assert points == sorted(points)


def test_few_points_stay_as_they_are() -> None:
    points = [1.0, 1.5, 9.0]
    assert bounded(points, 8, float) is points
