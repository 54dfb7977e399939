"""A picture of how data spreads, taken of crowds in which it did."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.spreading import Flow
from crowdgrad.host.telling.swarm_status import (
    BEHIND_CELLS,
    MOST_BEHIND,
    SwarmMember,
    SwarmOthers,
    SwarmStatus,
    resampled,
    summarise,
    swarm_as_json,
)
from crowdgrad.host.telling.swarm_taking import MOST_CELLS, MOST_FLOWS, MOST_MEMBERS, take_swarm
from crowdgrad.planner.replication.crowd import Crowd, Place
from crowdgrad.planner.replication.plans import HOST
from crowdgrad.planner.replication.swarm import STALLED_S, Swarm
from crowdgrad.replication import PLANS
from tests.host.swarms import CHUNK_BYTES, Played, names, play


def taken(played: Played, now: float | None = None) -> SwarmStatus:
    return take_swarm(played, names(300), played.now if now is None else now)


def member(swarm: SwarmStatus, position: int) -> SwarmMember:
    (found,) = (m for m in swarm.members if m.position == position)
    return found


def test_when_all_have_all_the_host_has_sent_it_about_once() -> None:
    swarm = taken(play(6, 40))
    assert (swarm.plan, swarm.share, swarm.chunks) == ("swarm", "full", 40)
    assert (swarm.bytes, swarm.wanted_bytes) == (40 * CHUNK_BYTES, 40 * CHUNK_BYTES)
    assert (swarm.progress, swarm.here, swarm.complete, swarm.rarest) == (1.0, 6, 6, 6)
    assert 1.0 <= swarm.host_copies < 1.5
    assert swarm.host_copies == swarm.host_sent_bytes / swarm.wanted_bytes
    assert [m.state for m in swarm.members] == ["has all it wants"] * 6
    assert all(m.map == [1.0] * 40 for m in swarm.members)
    assert summarise(swarm).behind == []


def test_on_the_way_it_says_how_far_everybody_is() -> None:
    played = play(6, 40, 20)
    swarm = taken(played)
    assert 0 < swarm.progress < 1
    assert swarm.progress == pytest.approx(sum(m.progress for m in swarm.members) / 6)
    for m in swarm.members:
        assert (m.progress, m.wanted_chunks) == (m.held_chunks / 40, 40)
        assert sum(m.map) == m.held_chunks
        assert m.received_bytes == m.held_chunks * CHUNK_BYTES
        assert 0 < m.from_host_bytes < m.received_bytes
        assert m.neighbours == [n for n in range(1, 7) if n != m.position]
        assert (m.name, m.state, m.source) == (names(6)[m.position], "gets data", None)
    assert sum(m.passed_on_bytes + m.from_host_bytes for m in swarm.members) == sum(
        m.received_bytes for m in swarm.members
    )
    late = taken(played, played.now + 60).members[0].state
    assert late.startswith("has got nothing for 6")


def test_flows_are_who_sent_what_to_whom() -> None:
    played = play(6, 40, 20)
    swarm = taken(played)
    found = {(flow.sender, flow.receiver): flow.bytes for flow in swarm.flows}
    assert found == {pair: sent for pair, sent in played.crowd.flows.items() if sent}
    assert [f.bytes for f in swarm.flows] == sorted((f.bytes for f in swarm.flows), reverse=True)


def test_who_wants_a_part_is_done_when_it_has_that_part() -> None:
    swarm = taken(play(chunks=40, needs={1: range(10), 2: range(5, 20), 3: ()}))
    assert (swarm.progress, swarm.complete, swarm.share) == (1.0, 3, "needed")
    assert swarm.wanted_bytes == 20 * CHUNK_BYTES
    assert 1.0 <= swarm.host_copies <= 1.25
    assert [m.held_chunks for m in swarm.members] == [10, 15, 0]
    assert member(swarm, 1).map == [1.0] * 10 + [0.0] * 30
    assert (member(swarm, 3).progress, member(swarm, 3).state) == (1.0, "wants nothing yet")


def test_who_has_gone_is_known_by_what_it_did() -> None:
    before = taken(play(6, 40, 20))
    after = taken(play(6, 40, 20, leaves=[2]))
    gone = member(after, 2)
    assert (gone.here, gone.state, gone.map, gone.name) == (False, "has gone", [], "ben")
    was = member(before, 2)
    assert (gone.received_bytes, gone.passed_on_bytes) == (was.received_bytes, was.passed_on_bytes)
    assert (after.here, after.complete) == (5, 0)
    assert after.flows == before.flows
    assert [one.position for one in summarise(after).behind] == [1, 3, 4, 5, 6]


def test_what_came_before_it_came_back_still_counts() -> None:
    played = play(6, 40, 20)
    before = member(taken(played), 2)
    played.crowd.leave(2)
    played.crowd.enter(2, Place(dialled=True, listens=True), played.now)
    after = member(taken(played), 2)
    assert (after.here, after.held_chunks) == (True, 0)
    assert after.received_bytes == before.received_bytes


def test_wrong_bytes_are_told_and_who_sent_them_is_not_believed() -> None:
    played = play(4, 40, 20)
    for node in (1, 3):
        played.crowd.flow(node, [Flow(position=2, wasted=70, bad=2)])
    swarm = taken(played)
    assert (member(swarm, 1).wasted_bytes, member(swarm, 1).bad_chunks) == (70, 2)
    assert [m.trusted for m in swarm.members] == [True, False, True, True]
    assert member(swarm, 2).state == "2 others had wrong bytes of it: it is believed by nobody"


def test_in_a_tree_everybody_has_a_source() -> None:
    swarm = taken(play(5, 40, 10, plan=PLANS["pipelined"]))
    sources = {m.position: m.source for m in swarm.members}
    assert HOST in sources.values()
    for m in swarm.members:
        whose = "the host" if m.source == HOST else names(5).get(m.source or 0)
        assert m.state in (f"gets data from {whose}", "has all it wants")


def test_before_anybody_comes_there_is_nothing_to_tell() -> None:
    crowd = Crowd(Swarm(), np.zeros(0), whole=False)
    empty = Played(crowd=crowd, sizes=np.zeros(0, np.int64), sent_bytes=0, share="needed")
    swarm = taken(empty)
    assert (swarm.progress, swarm.host_copies, swarm.rarest, swarm.members) == (1.0, 0.0, 0, [])
    crowd.enter(1, Place(), 0.0)
    assert member(taken(empty), 1).map == []
    assert summarise(taken(empty)).complete == 1


def test_a_crowd_is_bounded_and_everybody_counts() -> None:
    played = play(230, 300, 14, leaves=[1])
    swarm = taken(played)
    assert (len(swarm.members), swarm.here) == (MOST_MEMBERS, 229)
    assert len(swarm.flows) == MOST_FLOWS
    assert any(flow.sender == HOST for flow in swarm.flows), "the host is seen in any crowd"
    assert {len(m.map) for m in swarm.members} == {MOST_CELLS}
    assert (swarm.others.members, swarm.others.here) == (130, 129)
    received = sum(m.received_bytes for m in swarm.members) + swarm.others.received_bytes
    assert received == sum(played.crowd.flows.values())
    summary = summarise(swarm)
    assert (summary.members, len(summary.behind)) == (229, MOST_BEHIND)
    assert {len(one.map) for one in summary.behind} == {BEHIND_CELLS}


def test_a_cell_that_is_not_full_never_looks_it() -> None:
    played = play(1, 100_000, 0)
    played.crowd.hold(1, 0.0, chunks=(n for n in range(100_000) if n != 99_999))
    assert member(taken(played), 1).map == [1.0] * (MOST_CELLS - 1) + [0.99]


def test_it_survives_json() -> None:
    swarm = taken(play(6, 40, 20, leaves=[2]))
    assert msgspec.json.decode(swarm_as_json(swarm), type=SwarmStatus) == swarm
    assert swarm.others == SwarmOthers()
    assert replace(swarm, reason="") != swarm


def test_patience_is_the_plans() -> None:
    played = play(2, 40, 5)
    guest = played.crowd.members[1]
    assert member(taken(played, guest.moved_at + 0.9 * STALLED_S), 1).state == "gets data"
    assert "nothing" in member(taken(played, guest.moved_at + STALLED_S), 1).state


@given(st.lists(st.floats(0, 1), max_size=64), st.integers(1, 64))
def test_a_strip_of_any_width_keeps_what_is_full_and_what_is_empty(
    cells: list[float], width: int
) -> None:
    strip = resampled(cells, width)
    assert len(strip) == (width if cells else 0)
    assert all(min(cells) - 1e-9 <= cell <= max(cells) + 1e-9 for cell in strip)
