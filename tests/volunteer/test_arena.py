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

from crowdgrad.volunteer.arena import ALIGN, Arena, Region, lay_out
from tests.disks import shared_memory


@given(
    program=st.integers(1, 10_000),
    manifest=st.integers(1, 10_000),
    vector=st.integers(4, 100_000),
    slots=st.integers(1, 9),
    shards=st.dictionaries(st.integers(0, 50), st.integers(1, 50_000), max_size=8),
    coded=st.booleans(),
)
def test_regions_do_not_overlap_and_fit(
    program: int, manifest: int, vector: int, slots: int, shards: dict[int, int], coded: bool
) -> None:
    plan = lay_out(
        program_bytes=program,
        manifest_bytes=manifest,
        state_bytes=vector,
        update_bytes=max(4, vector // 2),
        slots=slots,
        shard_bytes=list(shards.items()),
        coded_bytes=(vector // 2, vector // 4) if coded else None,
    )
    regions = [plan.program, plan.manifest, *plan.shards.values()]
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
