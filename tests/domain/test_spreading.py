"""What a host decides of its data, and what members say of it, is checked where it is made."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.routes import MAX_ROUTES
from crowdgrad.domain.spreading import (
    MAX_CHUNKS,
    MAX_MIRROR,
    MAX_MIRRORS,
    MAX_SET_BYTES,
    PLANS,
    SHARES,
    Flow,
    Neighbour,
    PlanName,
    Share,
    Spreading,
    check_set,
    set_bytes,
)
from crowdgrad.domain.work import MAX_COUNT, VolunteerId


def test_every_plan_and_share_is_listed() -> None:
    assert get_args(PlanName) == PLANS
    assert get_args(Share) == SHARES


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("share", SHARES)
def test_trees_carry_copies_or_segments(plan: PlanName, share: Share) -> None:
    if plan != "swarm" and share == "needed":
        with pytest.raises(ValueError, match="carries full copies or segments"):
            Spreading(plan=plan, share=share)
    else:
        assert Spreading(plan=plan, share=share).plan == plan


@pytest.mark.parametrize(
    "change",
    [
        {"plan": "gossip"},
        {"share": "half"},
        {"mirrors": ("a",) * (MAX_MIRRORS + 1)},
        {"mirrors": ("a" * (MAX_MIRROR + 1),)},
        {"mirrors": ("http://a\x1b[2J",)},
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"plan '|at most 8 mirrors|is printable"):
        Spreading(**change)  # type: ignore[arg-type]


def test_as_many_mirrors_as_allowed() -> None:
    assert len(Spreading(mirrors=("m" * MAX_MIRROR,) * MAX_MIRRORS).mirrors) == MAX_MIRRORS


NEIGHBOUR = Neighbour(position=3, id=VolunteerId("a1b2"), routes=("192.0.2.7:7720",))


@pytest.mark.parametrize(
    "change",
    [{"position": -1}, {"position": MAX_COUNT}, {"id": ""}, {"id": "a" * 65},
     {"routes": ("192.0.2.7:7720",) * (MAX_ROUTES + 1)}, {"routes": ("nonsense",)}],
)  # fmt: skip
def test_a_neighbour_has_a_place_an_id_and_ways(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"a place and an id|ways to one|a way to somebody"):
        replace(NEIGHBOUR, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["position", "received", "wasted", "bad"])
@pytest.mark.parametrize("value", [-1, MAX_COUNT])
def test_a_flow_counts_from_zero(field: str, value: int) -> None:
    with pytest.raises(ValueError, match="a flow of"):
        replace(Flow(position=1), **{field: value})  # type: ignore[arg-type]


@given(st.sets(st.integers(0, 3000)))
def test_a_set_is_bits_without_zeros_at_its_end(chunks: set[int]) -> None:
    bits = set_bytes(chunks)
    assert {n for n in range(8 * len(bits)) if bits[n // 8] >> n % 8 & 1} == chunks
    assert not bits.endswith(b"\0")
    check_set(bits)


def test_a_set_of_all_chunks_fits_and_no_more() -> None:
    assert len(set_bytes((MAX_CHUNKS - 1,))) == MAX_SET_BYTES
    check_set(bytes(MAX_SET_BYTES))
    with pytest.raises(ValueError, match="a set of chunks has at most"):
        check_set(bytes(MAX_SET_BYTES + 1))
