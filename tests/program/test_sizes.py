"""Polynomials in the batch size compute what numbers do, whatever the batch."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crowdgrad.program.sizes import (
    MAX_BATCH,
    B,
    Poly,
    Size,
    add,
    at,
    at_most,
    batch_from,
    divide,
    in_batch,
    least,
    multiply,
    negative,
    never_negative,
    poly,
    product,
    show,
    subtract,
)

coefficients = st.integers(-12, 12)
sizes = st.lists(coefficients, min_size=1, max_size=3).map(poly)
linear = st.lists(coefficients, min_size=1, max_size=2).map(poly)
batches = st.integers(1, MAX_BATCH)


@given(sizes, sizes, batches)
def test_sums_and_differences_are_those_of_the_numbers(a: Size, b: Size, batch: int):
    assert at(add(a, b), batch) == at(a, batch) + at(b, batch)
    assert at(subtract(a, b), batch) == at(a, batch) - at(b, batch)
    assert at(negative(a), batch) == -at(a, batch)


@given(linear, linear, batches)
def test_products_and_exact_quotients_are_those_of_the_numbers(a: Size, b: Size, batch: int):
    both = multiply(a, b)
    assert at(both, batch) == at(a, batch) * at(b, batch)
    assume(b != 0)
    assert divide(both, b) == a


@given(sizes, sizes, batches)
def test_a_quotient_is_exact_or_refused(a: Size, b: Size, batch: int):
    quotient = divide(a, b)
    if quotient is not None:
        assert at(quotient, batch) * at(b, batch) == at(a, batch)


@given(sizes, sizes, st.lists(batches, min_size=1, max_size=20))
def test_an_order_holds_for_every_batch(a: Size, b: Size, several: list[int]):
    order = at_most(a, b)
    if order is not None:
        assert all((at(a, batch) <= at(b, batch)) is order for batch in several)


@given(sizes, batches, batches)
def test_a_dimension_is_never_negative_and_never_falls(a: Size, one: int, other: int):
    if never_negative(a):
        low, high = sorted((one, other))
        assert 0 <= at(a, low) <= at(a, high)


@given(sizes, batches)
def test_people_read_powers_of_the_batch(a: Size, batch: int):
    assert sum(c * batch**k for k, c in enumerate(in_batch(a))) == at(a, batch)


@given(st.integers(1, 64), linear, linear, batches)
def test_the_smallest_batch_changes_nothing_but_what_is_certain(
    smallest: int, a: Size, b: Size, batch: int
):
    """a + b·B, written in another variable."""
    size = add(at(a, 1), multiply(batch_from(smallest), at(b, 1)))
    assert at(size, batch) == at(a, 1) + at(b, 1) * batch
    assert sum(c * batch**k for k, c in enumerate(in_batch(size))) == at(size, batch)
    assert least(size) == at(size, smallest)


def test_with_larger_batches_more_is_certain():
    two = batch_from(2)
    assert never_negative(subtract(two, 2))
    assert at_most(2, two) is True
    assert str(subtract(two, 2)) == "B − 2"
    assert divide(multiply(two, 6), two) == 6


def test_what_does_not_depend_on_the_batch_is_a_number():
    assert subtract(B, B) == 0
    assert multiply(B, 0) == 0
    assert divide(multiply(B, 6), B) == 6
    assert product((2, B, 3, B)) == multiply(multiply(B, B), 6)


def test_only_sizes_that_grow_are_dimensions():
    assert never_negative(subtract(B, 1))  # 0 at the smallest batch
    assert not never_negative(subtract(B, 2))
    assert not never_negative(subtract(9, B))


def test_orders_that_depend_on_the_batch_are_not_told():
    assert at_most(1, B) is True
    assert at_most(0, subtract(1, B)) is None
    assert at_most(5, B) is None
    assert at_most(B, 1 << 40) is True
    assert at_most(1 << 40, B) is False


@pytest.mark.parametrize(
    "make",
    [
        lambda: product((B, B, B, B)),
        lambda: multiply(B, 1 << 50),
        lambda: add(B, 1 << 62),
        lambda: multiply(product((B, B, B)), 1 << 15),
    ],
)
def test_what_could_wrap_around_in_a_runtime_is_given_up(make):
    with pytest.raises(OverflowError):
        make()


@given(st.lists(st.integers(-(1 << 50), 1 << 50), min_size=2, max_size=4))
def test_whatever_is_made_fits_64_bits_at_the_largest_batch(terms: list[int]):
    try:
        size = poly(terms)
    except OverflowError:
        return
    assert abs(at(size, MAX_BATCH)) < 1 << 63


def test_shapes_are_written_as_people_do():
    assert show((B, 3)) == "(B, 3)"
    assert show((subtract(multiply(B, 4), 1),)) == "(4B − 1,)"
    assert str(negative(B)) == "−B"
    assert str(Poly((1, 3, 1))) == "B² + B − 1"
