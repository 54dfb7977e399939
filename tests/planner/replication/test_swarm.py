"""A swarm: who is joined with whom, what the host gives next, whom a member serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.planner.replication.crowd import Crowd, Place
from crowdgrad.planner.replication.masks import mask_of, to_bytes
from crowdgrad.planner.replication.plans import Asked, Fed, Links, Node, Queue
from crowdgrad.planner.replication.swarm import (
    FEW_NEIGHBOURS,
    FULL_NEIGHBOURS,
    MOST_NEIGHBOURS,
    STALLED_S,
    URGENT_PATIENCE_S,
    Swarm,
)

SWARM = Swarm()
Feasible = Callable[[Node, Node], bool]


def anybody(one: Node, other: Node) -> bool:
    return True


def check_links(
    found: Mapping[Node, Links],
    nodes: list[Node],
    feasible: Feasible,
    before: Mapping[Node, Links],
) -> None:
    assert list(found) == nodes
    for node, links in found.items():
        assert links == Links(neighbours=links.neighbours), "no source, no order"
        assert node not in links.neighbours
        assert len(set(links.neighbours)) == len(links.neighbours) <= MOST_NEIGHBOURS
        for other in links.neighbours:
            assert node in found[other].neighbours, "both know of it"
            assert feasible(node, other) or feasible(other, node)
        for other in before[node].neighbours if node in before else ():
            if other in found and (feasible(node, other) or feasible(other, node)):
                assert other in links.neighbours, "what is there stays"


def reached(found: Mapping[Node, Links]) -> set[Node]:
    seen: set[Node] = set()
    left = list(found)[:1]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left += found[node].neighbours
    return seen


def check_joined(found: Mapping[Node, Links]) -> None:
    assert reached(found) == set(found), "everybody, through others"
    for links in found.values():
        assert len(links.neighbours) >= min(FEW_NEIGHBOURS, len(found) - 1)


# -- who with whom ------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [0, 1, 2, 3, 5, 9, 10, 14, 30, 63, 150, 300])
def test_a_crowd_in_which_all_can_be_dialled_is_joined(members: int) -> None:
    nodes = list(range(1, members + 1))
    found = SWARM.arrange(nodes, anybody, {})
    check_links(found, nodes, anybody, {})
    check_joined(found)
    assert all(len(links.neighbours) <= FULL_NEIGHBOURS for links in found.values())
    assert SWARM.arrange(nodes, anybody, found) == found, "nothing changes without a reason"


crowds = st.lists(st.sets(st.integers(1, 300), max_size=60), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(crowds)
def test_a_crowd_that_comes_and_goes_stays_joined(times: list[set[Node]]) -> None:
    before: dict[Node, Links] = {}
    for present in times:
        nodes = sorted(present)
        found = SWARM.arrange(nodes, anybody, before)
        check_links(found, nodes, anybody, before)
        check_joined(found)
        before = found


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 60))
def test_whatever_was_there_before_a_crowd_is_joined(data: st.DataObject, members: int) -> None:
    """Also cliques, of which nobody looks for anybody else."""
    nodes = list(range(1, members + 1))
    size = data.draw(st.integers(1, FULL_NEIGHBOURS), label="of a clique")
    before = {
        node: Links(neighbours=tuple(n for n in nodes if n // size == node // size and n != node))
        for node in nodes
    }
    found = SWARM.arrange(nodes, anybody, before)
    check_links(found, nodes, anybody, before)
    check_joined(found)


@settings(max_examples=60, deadline=None)
@given(crowds, st.sets(st.integers(1, 300), max_size=40), st.sets(st.integers(1, 300)))
def test_only_who_can_are_joined(
    times: list[set[Node]], dialled: set[Node], selfish: set[Node]
) -> None:
    def feasible(giver: Node, taker: Node) -> bool:
        return giver not in selfish and (giver in dialled or taker in dialled)

    before: dict[Node, Links] = {}
    for present in times:
        nodes = sorted(present)
        found = SWARM.arrange(nodes, feasible, before)
        check_links(found, nodes, feasible, before)
        for node in nodes:  # who is alone could not be otherwise
            able = [n for n in nodes if n != node and (feasible(node, n) or feasible(n, node))]
            loaded = all(len(found[n].neighbours) >= MOST_NEIGHBOURS for n in able)
            assert found[node].neighbours or not able or loaded
        before = found


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=400, deadline=None)
@given(st.lists(st.sets(st.integers(1, 400), max_size=300), min_size=1, max_size=6))
def test_large_crowds_stay_joined(times: list[set[Node]]) -> None:
    before: dict[Node, Links] = {}
    for present in times:
        nodes = sorted(present)
        found = SWARM.arrange(nodes, anybody, before)
        check_links(found, nodes, anybody, before)
        check_joined(found)
        before = found


def test_two_are_joined_who_need_each_other() -> None:
    links = {n: Links(neighbours=()) for n in range(1, 4)}
    changed = SWARM.join(1, [2, 3], links)
    assert changed == {1: Links(neighbours=(2,)), 2: Links(neighbours=(1,))}
    assert SWARM.join(1, [2, 3], links | changed) == {}, "it has one to ask"
    assert SWARM.join(1, [], links) == {}
    assert SWARM.join(1, [9], links) == {}, "who has gone"
    crowded = {2: Links(neighbours=tuple(range(10, 10 + MOST_NEIGHBOURS)))}
    assert SWARM.join(1, [2], links | crowded) == {}


# -- what the host gives ------------------------------------------------------------------------


def crowd(members: int, *, chunks: int = 4, whole: bool = True, selfish: Node = 0) -> Crowd:
    made = Crowd(SWARM, np.linspace(0.9, 0.1, chunks), whole=whole)
    for node in range(1, members + 1):
        made.enter(node, Place(dialled=True, listens=True, gives=node != selfish), 0.0)
        made.want(node, 0.0, until=9, wants=to_bytes(mask_of(range(chunks), chunks)))
    made.arrange()
    return made


def feed(made: Crowd, now: float, most: int = 99) -> list[Fed]:
    fed = []
    while len(fed) < most and (one := made.next(now)[0]) is not None:
        made.fed(one, now)
        fed.append(one)
    return fed


def test_the_host_gives_every_chunk_once_then_waits() -> None:
    made = crowd(3)
    given_ = feed(made, 0.0)
    assert sorted(fed.chunk for fed in given_) == [0, 1, 2, 3]
    assert [fed.chunk for fed in given_] == [3, 2, 1, 0], "equals by their own numbers"
    assert len({fed.node for fed in given_}) == 3, "who has least that nobody else has"
    assert made.next(0.0) == (None, "every chunk is out: the members pass them on")


def test_nobody_is_given_more_than_it_has_room_for() -> None:
    made = crowd(2)
    made.want(1, 0.0, until=1)
    made.want(2, 0.0, until=0)
    assert len(feed(made, 0.0)) == 1


def test_who_passes_on_quickly_gets_more_to_pass_on() -> None:
    made = crowd(3, chunks=8)
    feed(made, 0.0, 3)
    of_one = [chunk for chunk in range(8) if made.members[1].holds[chunk]]
    made.hold(2, 0.1, chunks=of_one)
    assert feed(made, 0.1, 1)[0].node == 1


def test_who_gets_nowhere_is_helped() -> None:
    made = crowd(2, chunks=2)
    made.hold(1, 0.0, chunks=(0, 1))
    assert feed(made, STALLED_S - 0.1) == []
    assert feed(made, STALLED_S) == [Fed(2, 1), Fed(2, 0)], "at once, not one by one"


def test_what_a_unit_waits_for_comes_first_and_after_a_moment_from_the_host() -> None:
    made = crowd(2)
    made.want(2, 0.0, until=9, urgent=(2, 99))
    assert feed(made, 0.0, 1) == [Fed(2, 2)], "nobody has it"
    made.hold(1, 0.0, chunks=(0, 1, 3))
    made.want(2, 1.0, until=9, urgent=(0,))
    assert feed(made, 1.0) == [], "its neighbour has it"
    assert feed(made, 1.0 + URGENT_PATIENCE_S, 1) == [Fed(2, 0)]


def test_who_has_no_place_yet_is_fed_all_the_same() -> None:
    made = crowd(1, chunks=1)
    made.enter(2, Place(), 0.0)
    made.want(2, 0.0, until=1, wants=b"\1", urgent=(0,))
    assert feed(made, 0.0, 1) == [Fed(2, 0)]


def test_chunks_do_not_pass_through_who_gives_nothing() -> None:
    """1 - 2 - 3, and 2 keeps what it has: 3 is the host's to serve, at full speed."""
    made = crowd(3, chunks=2, selfish=2)
    made.links = {
        1: Links(neighbours=(2,)), 2: Links(neighbours=(1, 3)), 3: Links(neighbours=(2,))
    }  # fmt: skip
    made.hold(1, 0.0, chunks=(0, 1))
    assert sorted(feed(made, 0.0)) == [Fed(3, 0), Fed(3, 1)]


def test_only_what_neighbours_hold_is_near_where_all_hold_parts() -> None:
    made = crowd(3, chunks=2, whole=False)
    made.links = {
        1: Links(neighbours=(2,)), 2: Links(neighbours=(1, 3)), 3: Links(neighbours=(2,))
    }  # fmt: skip
    made.want(2, 0.0, until=9, wants=b"\1")
    made.hold(1, 0.0, chunks=(0, 1))
    assert feed(made, 0.0) == [Fed(3, 1), Fed(3, 0)], "2 has neither; what 1 has does not reach 3"


# -- whom a member serves -----------------------------------------------------------------------


def queue(asks: list[Asked], *, given: Mapping[Node, float] | None = None) -> Queue:
    copies = np.array([1, 1, 5, 5])
    return Queue(
        asks=asks, order=(), given=given or {}, served={}, complete=False, copies=copies
    )  # fmt: skip


def test_who_has_waited_longest_given_most_or_wants_the_rare_is_served() -> None:
    early, late = Asked(1, 0, 0.0), Asked(2, 0, 0.5)
    assert SWARM.serve(queue([late, early]), 1.0)[0] == early
    assert SWARM.serve(queue([early, late], given={2: 9e9}), 9.0)[0] == late
    assert SWARM.serve(queue([Asked(1, 2, 0.0), Asked(2, 1, 0.0)]), 1.0)[0] == Asked(2, 1, 0.0)
    assert SWARM.serve(queue([]), 1.0) == (None, "nobody has asked")


@given(st.floats(0, 1e12), st.integers(0, 3), st.integers(0, 3))
def test_nobody_waits_for_ever(given_: float, mine: int, others: int) -> None:
    """Whatever others have given, and however rare what they ask for."""
    patient = Asked(1, mine, 0.0)
    pushers = [Asked(2, others, 99.5), patient]
    assert SWARM.serve(queue(pushers, given={2: given_}), 100.0)[0] == patient
