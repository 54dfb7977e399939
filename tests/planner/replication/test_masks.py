"""Sets of chunks survive their journey, and what somebody knows more than we do no harm."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.spreading import set_bytes
from crowdgrad.planner.replication.masks import (
    AHEAD,
    count,
    empty,
    from_bytes,
    grown,
    heard,
    mask_of,
    numbers_of,
    to_bytes,
)

numbers = st.sets(st.integers(0, 400))
sizes = st.integers(0, 300)


@given(numbers, sizes)
def test_a_set_survives_its_journey(chunks: set[int], size: int) -> None:
    mask = mask_of(chunks, 401)
    assert numbers_of(mask) == sorted(chunks)
    assert to_bytes(mask) == set_bytes(sorted(chunks)) == set_bytes(chunks)
    back = from_bytes(to_bytes(mask), size)
    assert len(back) >= size
    assert numbers_of(back) == sorted(chunks)


@given(st.binary(max_size=60), sizes)
def test_any_bytes_are_a_set(bits: bytes, size: int) -> None:
    mask = from_bytes(bits, size)
    assert len(mask) == max(size, 8 * len(bits))
    assert to_bytes(mask) == bits.rstrip(b"\0")
    assert set_bytes(numbers_of(mask)) == to_bytes(mask)


@given(numbers, sizes)
def test_numbers_beyond_the_size_are_not_in_it(chunks: set[int], size: int) -> None:
    assert numbers_of(mask_of(chunks, size)) == sorted(n for n in chunks if n < size)


@given(numbers, sizes, sizes)
def test_the_same_set_among_more_chunks(chunks: set[int], size: int, more: int) -> None:
    mask = mask_of(chunks, size)
    assert numbers_of(grown(mask, more)) == numbers_of(mask)
    assert len(grown(mask, more)) == max(size, more)


@given(numbers, numbers, numbers, st.none() | numbers)
def test_what_is_said_is_all_or_what_changed(
    before: set[int], chunks: set[int], lost: set[int], whole: set[int] | None
) -> None:
    said = mask_of(before, 401)
    kept = said.copy()
    bits = None if whole is None else set_bytes(whole)
    now = heard(said, sorted(chunks), lost, bits, known=0)
    assert set(numbers_of(now)) == ((before if whole is None else whole) | chunks) - lost
    assert np.array_equal(said, kept), "what was known before is not changed"


@given(st.lists(numbers, max_size=5))
def test_copies_are_counted(sets: list[set[int]]) -> None:
    counted = count((mask_of(chunks, 401) for chunks in sets), 401)
    assert counted.tolist() == [sum(n in chunks for chunks in sets) for n in range(401)]


def test_nothing_is_a_set() -> None:
    assert to_bytes(empty(0)) == to_bytes(empty(99)) == set_bytes(()) == b""
    assert numbers_of(from_bytes(b"", 3)) == []


def test_what_is_far_beyond_the_data_is_not_remembered() -> None:
    far = 4 << 20
    assert len(heard(empty(3), (1, far), (), None, known=3)) == 3
    assert len(heard(empty(3), (), (), b"\xff" * (far // 8), known=3)) <= 2 * 3 + AHEAD
    near = heard(empty(3), (5000,), (), None, known=3)
    assert numbers_of(near) == [5000], "data may have grown for others already"
