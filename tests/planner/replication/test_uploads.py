"""One upload after the other, and more only beside those that are slow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.planner.replication.uploads import AT_FIRST, LEAST_S, MOST, SLOW, Lanes

MB = 1_000_000


def measured() -> Lanes:
    """A link of a megabyte a second."""
    lanes = Lanes()
    lanes.end(1.0, lanes.begin(0.0, MB), sent=True)
    return lanes


def test_a_few_at_once_while_nobody_knows_how_fast_the_link_is() -> None:
    lanes = Lanes()
    for _ in range(AT_FIRST):
        assert lanes.another(0.0) == (True, None)
        lanes.begin(0.0, MB)
    assert lanes.another(99.0) == (False, None)
    assert lanes.active == AT_FIRST


def test_one_after_the_other_and_one_more_beside_a_slow_one() -> None:
    lanes = measured()
    assert lanes.another(1.0) == (True, None)
    first = lanes.begin(1.0, MB)
    assert lanes.another(1.0) == (False, 1.0 + SLOW)
    assert lanes.another(1.0 + SLOW) == (True, None)
    lanes.begin(3.0, MB)
    assert lanes.another(3.0) == (False, 3.0 + SLOW), "the new one has its time, too"
    lanes.end(4.0, first, sent=False)
    assert lanes.another(4.0) == (False, 3.0 + SLOW)


def test_what_was_not_sent_says_nothing_of_the_link() -> None:
    lanes = Lanes()
    lanes.end(0.0, lanes.begin(0.0, MB), sent=False)
    lanes.begin(0.0, MB)
    assert lanes.another(0.0) == (True, None), "nobody knows yet"


def test_a_chunk_of_no_size_has_a_moment() -> None:
    lanes = measured()
    lanes.begin(2.0, 0)
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
