"""The pause before trying again stays within its bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.net.retry import delay_s


@given(st.integers(-1, 10**9), st.floats(0, 1, exclude_max=True))
def test_it_never_exceeds_the_cap(attempt: int, random01: float) -> None:
    assert 0 <= delay_s(attempt, random01) <= 10.0


def test_the_ceiling_doubles_up_to_the_cap() -> None:
    ceilings = [delay_s(n, 1.0, base_s=0.2, cap_s=1.0) for n in range(5)]
    assert ceilings == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_the_whole_interval_is_used() -> None:
    assert delay_s(3, 0.0) == 0.0
    assert delay_s(3, 0.5) == delay_s(3, 1.0) / 2
