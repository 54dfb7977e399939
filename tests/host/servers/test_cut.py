"""Parts cover every word once, the last has the buffers, and none is much longer than another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.errors import SettingError
from crowdgrad.host.servers.cut import STEP, cut, whole
from crowdgrad.numerics.layout import StateLayout, trained_parts
from tests.host.servers.specs import spec_of, specs


@given(specs(), st.integers(1, 6))
def test_parts_cover_every_word_once_and_the_last_has_the_buffers(
    spec: ProgramSpec, servers: int
) -> None:
    try:
        parts = cut(spec, servers)
    except SettingError:
        assert spec.size <= 2 * (servers - 1)
        return
    assert len(parts) == servers
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert (parts[-1].stop, parts[-1].update_stop) == (spec.state_words, spec.update_words)
    assert all(part.update_stop == part.stop <= spec.size for part in parts[:-1])
    assert all(part.start % 2 == 0 and part.start < spec.size for part in parts)
    for part in parts:
        assert part.spec.state_words == part.stop - part.start
        assert part.spec.update_words == part.update_stop - part.start


@given(specs(), st.integers(2, 5))
def test_no_part_is_much_longer_than_its_share(spec: ProgramSpec, servers: int) -> None:
    if spec.size < 4 * STEP * servers:
        return
    share = spec.state_words / servers
    behind = spec.state_words - spec.size
    for part in cut(spec, servers):
        assert part.stop - part.start <= max(share, behind + STEP) + STEP
        assert part.start % STEP == 0


@given(specs(), st.integers(1, 6))
def test_what_is_frozen_and_where_buffers_lie_stays_what_it_was(
    spec: ProgramSpec, servers: int
) -> None:
    if spec.size <= 2 * (servers - 1):
        return

    def trains(of: ProgramSpec) -> np.ndarray:
        mask = np.full(of.size, trained_parts(of) is None)
        for here in trained_parts(of) or ():
            mask[here] = True
        return mask

    parts = cut(spec, servers)
    assert np.array_equal(np.concatenate([trains(part.spec) for part in parts]), trains(spec))
    last, all_ = StateLayout(parts[-1].spec), StateLayout(spec)
    shift = parts[-1].start
    assert [at + shift for at in last.buffer_places] == list(all_.buffer_places)
    assert [at + shift for at in last.fixed_places] == list(all_.fixed_places)


def test_half_of_a_known_model() -> None:
    spec = spec_of([(784, 100), (100,), (100, 10), (10,)])
    one, two = cut(spec, 2)
    assert (one.start, one.stop, two.start, two.stop) == (0, 39760, 39760, 79510)
    assert (whole(spec).start, whole(spec).stop) == (0, 79510)


@pytest.mark.parametrize(("size", "servers"), [(1, 2), (2, 2), (6, 4), (10, 0)])
def test_too_few_words_are_not_cut(size: int, servers: int) -> None:
    with pytest.raises(SettingError, match=f"{size} parameters"):
        cut(spec_of([(size,)]), servers)


def test_many_small_tensors_become_few() -> None:
    spec = spec_of([(4,)] * 1000, frozen=tuple(f"w{i}" for i in range(500)))
    assert [t.elements for t in whole(spec).spec.parameters] == [2000, 2000]
    assert isinstance(whole(spec).spec.parameters[0], TensorSpec)
