"""A place for every shard, or rooms in which they take turns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.work import LocalSteps
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import ALIGN, LEAST_MANIFEST_ROOM, whole_pages
from crowdgrad.volunteer.layout import Wanted, layout
from tests.host import small
from tests.volunteer.test_workshop import job

KB = 1 << 10


def wanted(shards: list[int], *, overlap: int = 1, growing: bool = False) -> Wanted:
    local = LocalSteps(batch_size=10, overlap=overlap)
    return Wanted(
        job=replace(job(local), growing=growing),
        spec=small.spec(),
        program_bytes=1000,
        manifest_bytes=1000,
        shard_bytes=list(enumerate(shards)),
    )


def bare_bytes(of: Wanted) -> int:
    """What it takes without any shard."""
    still = replace(of, shard_bytes=[], job=replace(of.job, growing=False))
    return layout(still, 1 << 40).total_bytes


def test_a_place_for_each_wherever_that_fits() -> None:
    of = wanted([100 * KB, 60 * KB, 100 * KB])
    needed = layout(of, 1 << 40).total_bytes
    plan = layout(of, needed)
    assert (plan.rooms, [region.bytes for region in plan.shards.values()]) == (
        0,
        [100 * KB, 60 * KB, 100 * KB],
    )
    assert layout(of, needed - 1).rooms == 3


def test_rooms_get_half_of_what_is_left_and_later_all_of_it() -> None:
    of = wanted([100 * KB] * 50)
    lent = bare_bytes(of) + 40 * 100 * KB
    plan = layout(of, lent)
    assert (plan.rooms, plan.room_bytes, plan.shards) == (20, 100 * KB, {})
    assert layout(of, lent, known=True).rooms == 40
    assert layout(of, lent, known=True).total_bytes == lent


@pytest.mark.parametrize(("overlap", "least"), [(0, 2), (1, 3), (8, 10)])
def test_there_are_always_more_rooms_than_lanes(overlap: int, least: int) -> None:
    plan = layout(wanted([100 * KB] * 50, overlap=overlap), 10 * KB)
    assert plan.rooms == least
    assert plan.total_bytes > 10 * KB, "whoever asked sees that it is too large"


def test_where_data_grows_there_is_room_for_its_list_only() -> None:
    of = wanted([100 * KB] * 90, growing=True)
    plan = layout(of, bare_bytes(of) + 40 * 100 * KB)
    assert (plan.manifest_room, plan.free.bytes) == (LEAST_MANIFEST_ROOM, 0)
    assert plan.rooms == (4000 - 256) // 2 // 100, "half of what the list leaves"


def test_a_list_too_long_to_be_told_makes_them_take_turns() -> None:
    of = wanted([1 << 20] * 131_072)
    plan = layout(of, 1 << 40)
    assert plan.rooms == 131_072
    assert talk.plan_bytes(plan) < 1000


@given(
    shards=st.lists(st.integers(1, 200 * KB), min_size=1, max_size=30),
    lent=st.integers(0, 4000 * KB),
    overlap=st.integers(0, 3),
    growing=st.booleans(),
    known=st.booleans(),
)
def test_it_fits_wherever_the_least_does(
    shards: list[int], lent: int, overlap: int, growing: bool, known: bool
) -> None:
    of = wanted(shards, overlap=overlap, growing=growing)
    plan = layout(of, lent, known=known)
    largest = whole_pages(max(shards))
    each = sum(map(whole_pages, shards))
    least = bare_bytes(of) + min(each, (overlap + 2) * largest)
    assert (plan.rooms == 0) == (set(plan.shards) == set(range(len(shards))))
    assert plan.rooms == 0 or (plan.rooms > overlap + 1 and plan.room_bytes == largest)
    if plan.total_bytes > lent:
        # Only a longer list, of a quarter at most, may stand in the way.
        assert least + (lent // 4 if growing else 0) + ALIGN > lent
