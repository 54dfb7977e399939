"""Shards that take turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crowdgrad.planner.rooms import Rooms, may_be_needed
from tests.planner.test_passes import manifest

MOST_ROOMS = 5


def served(rooms: Rooms, *shards: int) -> list[int | None]:
    """The rooms in which units of these are computed, one after the other."""
    found = []
    for shard in shards:
        found.append(rooms.need(shard).room)
        rooms.done(shard)
    return found


def test_the_shard_that_was_needed_longest_ago_leaves() -> None:
    rooms = Rooms(3)
    assert served(rooms, 7, 8, 9, 7) == [0, 1, 2, 0]
    given = rooms.need(4)
    assert (given.room, given.leaves) == (1, 8)
    assert given.why == (
        "shard 8 leaves room 1 to shard 4: of those no unit uses, it was needed longest ago"
    )
    assert [rooms.room_of(shard) for shard in (7, 8, 9, 4)] == [0, None, 2, 1]


def test_one_that_is_in_use_stays_however_long_ago_it_was_needed() -> None:
    rooms = Rooms(2)
    rooms.need(1)
    assert served(rooms, 2, 3, 4) == [1, 1, 1]
    rooms.need(5)
    assert rooms.room_of(1) == 0
    waiting = rooms.need(6)
    assert (waiting.room, waiting.why) == (None, "all 2 rooms are in use by units under way")
    assert rooms.room_of(6) is None
    rooms.done(1)
    assert (rooms.need(6).room, rooms.room_of(1)) == (0, None)


def test_two_units_use_one_room_until_both_are_done() -> None:
    rooms = Rooms(1)
    assert rooms.need(3).room == rooms.need(3).room == 0
    rooms.done(3)
    assert rooms.need(4).room is None
    rooms.done(3)
    assert rooms.need(4).leaves == 3


def test_what_makes_no_sense_is_said() -> None:
    with pytest.raises(ValueError, match="no room at all"):
        Rooms(0)
    with pytest.raises(ValueError, match="no unit uses shard 2"):
        Rooms(1).done(2)


def test_only_worker_0_needs_what_is_evaluated() -> None:
    data = manifest([20, 10], validation=50)
    assert list(may_be_needed(data, evaluates=True)) == [0, 1, 2]
    assert list(may_be_needed(data, evaluates=False)) == list(data.numbers("train"))


class Turns(RuleBasedStateMachine):
    """Units come and go, as many as there are lanes, compared with the obvious."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms = Rooms(1)
        self.count = 1
        self.under_way: list[int] = []
        self.needed: list[int] = []
        """Shards with a room, the one needed longest ago first."""

    @precondition(lambda self: not self.needed)
    @rule(count=st.integers(1, MOST_ROOMS))
    def so_many_rooms(self, count: int) -> None:
        self.rooms, self.count = Rooms(count), count

    @rule(shard=st.integers(0, 8))
    def need(self, shard: int) -> None:
        before = {other: self.rooms.room_of(other) for other in self.needed}
        given = self.rooms.need(shard)
        assert given.why
        if shard in self.needed:
            assert (given.room, given.leaves) == (before[shard], None)
        elif len(self.needed) < self.count:
            assert given.room is not None
            assert given.leaves is None
        else:
            free = [other for other in self.needed if other not in self.under_way]
            assert given.leaves == (free[0] if free else None)
            assert given.room == (before[free[0]] if free else None)
        if given.room is None:
            return
        gone = {given.leaves, shard}
        self.needed = [*(other for other in self.needed if other not in gone), shard]
        self.under_way.append(shard)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def unit_is_over(self, data: st.DataObject) -> None:
        shard = data.draw(st.sampled_from(self.under_way))
        self.under_way.remove(shard)
        self.rooms.done(shard)
        self.needed.remove(shard)
        self.needed.append(shard)

    @invariant()
    def no_room_has_two_shards_and_none_in_use_is_lost(self) -> None:
        places = [self.rooms.room_of(shard) for shard in self.needed]
        assert None not in places
        assert len(set(places)) == len(places) <= self.count
        assert all(place is not None and 0 <= place < self.count for place in places)
        assert set(self.under_way) <= set(self.needed)


TestTurns = Turns.TestCase


@given(
    spare=st.integers(1, 2),
    needs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60),
)
def test_with_a_room_more_than_lanes_nobody_ever_waits(
    spare: int, needs: list[tuple[int, int]]
) -> None:
    """Nor does a lane give up the shard it used last: another one is free besides."""
    lanes = 4
    rooms, using, last = Rooms(lanes + spare), dict[int, int](), dict[int, int]()
    for lane, shard in needs:
        if lane in using:
            last[lane] = using.pop(lane)
            rooms.done(last[lane])
        given = rooms.need(shard)
        assert given.room is not None
        assert given.leaves is None or given.leaves != last.get(lane)
        using[lane] = shard


@given(
    count=st.integers(1, 3),
    wanted=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    picks=st.lists(st.integers(0, 100), min_size=12, max_size=12),
)
def test_every_need_is_served_once_units_end(
    count: int, wanted: list[int], picks: list[int]
) -> None:
    """All ask at once; whoever is turned away asks again after each unit that ends."""
    rooms, under_way, waiting = Rooms(count), list[int](), list(wanted)
    done = 0
    while waiting or under_way:
        refused = []
        for shard in waiting:
            (under_way if rooms.need(shard).room is not None else refused).append(shard)
        waiting = refused
        assert under_way, "somebody is always served"
        over = under_way.pop(picks[done % len(picks)] % len(under_way))
        rooms.done(over)
        done += 1
    assert done == len(wanted)
