"""A few uploads at once, and more only beside those that are slow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.planner.replication.uploads import LEAST_S, MOST, REMEMBERED, SLOW, USUAL, Lanes

MB = 1_000_000


def measured() -> Lanes:
    """A link of a megabyte a second."""
    lanes = Lanes()
    lanes.end(1.0, lanes.begin(0.0, MB), sent=True)
    return lanes


def filled(lanes: Lanes, now: float, size: int = MB) -> list[int]:
    """As many as there always may be."""
    numbers = []
    for _ in range(USUAL):
        assert lanes.another(now) == (True, None)
        numbers.append(lanes.begin(now, size))
    return numbers


def test_a_few_at_once_and_no_more_while_nobody_knows_how_fast_the_link_is() -> None:
    lanes = Lanes()
    filled(lanes, 0.0)
    assert lanes.another(99.0) == (False, None)
    assert lanes.active == USUAL


def test_one_more_where_all_are_slow() -> None:
    lanes = measured()
    first, *_ = filled(lanes, 1.0)
    slow = 1.0 + SLOW * USUAL
    assert lanes.another(1.0) == (False, slow)
    assert lanes.another(slow) == (True, None)
    lanes.begin(slow, MB)
    due = slow + SLOW * (USUAL + 1)
    assert lanes.another(slow) == (False, due), "the new one has its time, too"
    lanes.end(slow, first, sent=False)
    assert lanes.another(slow) == (False, slow + SLOW * USUAL), "fewer share the link"


def test_the_first_chunks_that_only_fill_buffers_are_soon_forgotten() -> None:
    lanes, now = Lanes(), 0.0
    for took in (0.0, 0.0, *[1.0] * REMEMBERED):
        number = lanes.begin(now, MB)
        now += took
        lanes.end(now, number, sent=True)
    filled(lanes, now)
    assert lanes.another(now) == (False, now + SLOW * USUAL)


def test_what_was_not_sent_says_nothing_of_the_link() -> None:
    lanes = Lanes()
    lanes.end(0.0, lanes.begin(0.0, MB), sent=False)
    filled(lanes, 0.0)
    assert lanes.another(99.0) == (False, None), "nobody knows yet"


def test_a_chunk_of_no_size_has_a_moment() -> None:
    lanes = measured()
    filled(lanes, 2.0, size=0)
    assert lanes.another(2.0) == (False, 2.0 + LEAST_S)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1 << 22), st.booleans()), max_size=40))
def test_never_more_than_the_memory_that_is_meant_for_it(
    steps: list[tuple[float, int, bool]],
) -> None:
    lanes, active, now = Lanes(), [], 0.0
    for later, size, sent in steps:
        now += later
        more, at = lanes.another(now)
        assert at is None or at > now, "when it may be otherwise"
        assert lanes.active == len(active) <= MOST
        assert active or more, "an idle link takes one"
        if more:
            active.append(lanes.begin(now, size))
        elif active:
            lanes.end(now, active.pop(0), sent=sent)
