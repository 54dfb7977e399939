"""The memory agent and trainer share."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.volunteer.arena import (
    ALIGN,
    LEAST_SHARD_ROOM,
    Arena,
    Plan,
    Region,
    extend,
    lay_out,
    room_for_growth,
)
from tests.disks import shared_memory


@given(
    program=st.integers(1, 10_000),
    manifest=st.integers(1, 10_000),
    vector=st.integers(4, 100_000),
    slots=st.integers(1, 9),
    shards=st.dictionaries(st.integers(0, 50), st.integers(1, 50_000), max_size=8),
    coded=st.booleans(),
    rooms=st.tuples(st.integers(0, 5), st.integers(1, 50_000)),
)
def test_regions_do_not_overlap_and_fit(
    program: int,
    manifest: int,
    vector: int,
    slots: int,
    shards: dict[int, int],
    coded: bool,
    rooms: tuple[int, int],
) -> None:
    plan = lay_out(
        program_bytes=program,
        manifest_bytes=manifest,
        state_bytes=vector,
        update_bytes=max(4, vector // 2),
        slots=slots,
        shard_bytes=list(shards.items()),
        coded_bytes=(vector // 2, vector // 4) if coded else None,
        rooms=rooms,
    )
    regions = [plan.program, plan.manifest, *plan.shards.values()]
    regions += [plan.room(number, rooms[1]) for number in range(plan.rooms)]
    regions += [region for slot in plan.slots for region in (slot.state, slot.update)]
    assert all(slot.coded == coded for slot in plan.slots)
    if coded:
        regions += [region for slot in plan.slots for region in (slot.comes, slot.goes)]
    else:  # what travels is what is computed with
        assert all((slot.comes, slot.goes) == (slot.state, slot.update) for slot in plan.slots)
    regions.sort(key=lambda region: region.offset)
    for before, after in pairwise(regions):
        assert before.offset + before.bytes <= after.offset
    assert regions[-1].offset + regions[-1].bytes <= plan.total_bytes
    assert all(region.offset % ALIGN == 0 for region in regions)


@given(
    shards=st.lists(st.integers(1, 50_000), max_size=5),
    more=st.lists(st.lists(st.integers(1, 50_000), min_size=1, max_size=3), max_size=4),
    manifests=st.lists(st.integers(1, 12_000), min_size=4, max_size=4),
    room=st.tuples(st.integers(0, 10_000), st.integers(0, 400_000)),
)
def test_what_is_added_overlaps_nothing_and_fits_or_has_no_room(
    shards: list[int], more: list[list[int]], manifests: list[int], room: tuple[int, int]
) -> None:
    plan = first = lay_out(
        program_bytes=10, manifest_bytes=100, state_bytes=40, update_bytes=40, slots=2,
        shard_bytes=list(enumerate(shards)), room=room,
    )  # fmt: skip
    for sizes, manifest in zip(more, manifests, strict=False):
        new = list(enumerate(sizes, len(plan.shards)))
        pages = sum(-(-size // ALIGN) * ALIGN for size in sizes)
        found = extend(plan, manifest, new)
        assert (found is None) == (manifest > room[0] or pages > plan.free.bytes)
        if found is None:
            continue
        assert {n: region for n, region in found.shards.items() if n in plan.shards} == plan.shards
        assert (found.total_bytes, found.slots) == (first.total_bytes, first.slots)
        assert found.manifest == Region(offset=first.manifest.offset, bytes=manifest)
        plan = found
    whole = Region(offset=plan.manifest.offset, bytes=max(plan.manifest.bytes, room[0]))
    regions = [plan.program, whole, plan.free, *plan.shards.values()]
    regions += [region for slot in plan.slots for region in (slot.state, slot.update)]
    regions.sort(key=lambda region: (region.offset, region.bytes))
    for before, after in pairwise(regions):
        assert before.offset + before.bytes <= after.offset
    assert regions[-1].offset + regions[-1].bytes <= plan.total_bytes


@pytest.mark.parametrize(
    ("number", "size"), [(-1, 1), (3, 1), (1 << 40, 1), (0, -1), (2, 2 * ALIGN + 1), (0, 1 << 62)]
)
def test_there_is_no_room_beside_the_rooms(number: int, size: int) -> None:
    plan = turns()
    with pytest.raises(ValueError, match=r"room"):
        plan.room(number, size)
    assert plan.room(2, 2 * ALIGN).offset + 2 * ALIGN == plan.window.offset + plan.window.bytes


def test_where_shards_take_turns_more_of_them_need_no_more_room() -> None:
    plan = turns(room=(1000, 0))
    grown = extend(plan, 900, [(4, 2 * ALIGN), (5, 10)])
    assert grown is not None
    assert (grown.shards, grown.window, grown.rooms) == ({}, plan.window, 3)
    assert grown.manifest.bytes == 900
    assert extend(plan, 1001, [(4, 10)]) is None, "its list needs room"
    assert extend(plan, 900, [(4, 2 * ALIGN + 1)]) is None, "it is larger than a room"


def turns(room: tuple[int, int] = (0, 0)) -> Plan:
    return lay_out(
        program_bytes=10, manifest_bytes=100, state_bytes=40, update_bytes=40, slots=2,
        shard_bytes=[], room=room, rooms=(3, ALIGN + 1),
    )  # fmt: skip


def test_room_for_growth_is_as_much_again_but_never_much_of_what_is_left() -> None:
    lots = 1 << 34
    assert room_for_growth(1000, 1 << 30, lots) == (256 << 10, 1 << 30)
    assert room_for_growth(1 << 20, 1000, lots) == (2 << 20, LEAST_SHARD_ROOM)
    assert sum(room_for_growth(1000, 1 << 30, 1 << 30)) == 1 << 28
    assert room_for_growth(1000, 1 << 30, 1 << 20) == (0, 0), "the manifest alone would not fit"
    assert room_for_growth(1000, 1000, -5) == (0, 0)


def test_a_child_sees_what_we_write_and_no_name_remains() -> None:
    before = shared_memory()
    arena = Arena.make(ALIGN)
    Region(offset=8, bytes=5).of(arena.memory)[:] = b"hello"
    code = (
        "import sys; from crowdgrad.volunteer.arena import Arena\n"
        "a = Arena(int(sys.argv[1]), 4096); a.memory[8:13] = bytes(a.memory[8:13]).upper()"
    )
    subprocess.run([sys.executable, "-c", code, str(arena.fd)], pass_fds=(arena.fd,), check=True)
    assert bytes(arena.memory[8:13]) == b"HELLO"
    assert shared_memory() == before
    arena.close()
    assert not Path(f"/proc/self/fd/{arena.fd}").exists()


def test_nobody_can_cut_it_short_under_the_other() -> None:
    arena = Arena.make(3 * ALIGN)
    for size in (0, ALIGN, 4 * ALIGN):
        with pytest.raises(PermissionError):
            os.ftruncate(arena.fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(arena.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    arena.close()


def test_closing_waits_for_nobody() -> None:
    arena = Arena.make(ALIGN)
    kept = arena.memory[:4]
    kept[:] = b"abcd"
    arena.close()
    assert bytes(kept) == b"abcd"
