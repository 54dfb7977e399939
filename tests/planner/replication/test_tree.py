"""The paper's tree: who sends to whom, and what a host and a member do in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.planner.replication.crowd import Crowd, Place
from crowdgrad.planner.replication.masks import mask_of, to_bytes
from crowdgrad.planner.replication.plans import HOST, Asked, Fed, Links, Node, Queue
from crowdgrad.planner.replication.tree import (
    STALLED_S,
    Tree,
    below,
    children,
    parent,
    step_of,
    steps,
)

TREES = [Tree(), Tree(pipelined=True)]


def test_the_papers_mapping() -> None:
    """Figures 13 and 14: in step s every node i below 2^s sends to i + 2^s."""
    sends = {(i, i + (1 << step)): step for step in range(3) for i in range(1 << step)}
    assert sends == {
        (0, 1): 0,
        (0, 2): 1, (1, 3): 1,
        (0, 4): 2, (1, 5): 2, (2, 6): 2, (3, 7): 2,
    }  # fmt: skip
    assert {(parent(n), n): step_of(n) for n in range(1, 8)} == sends
    assert children(0, 8) == (1, 2, 4)
    assert children(1, 8) == (3, 5)
    assert children(2, 8) == (6,)
    assert children(3, 8) == (7,)
    assert [children(n, 8) for n in range(4, 8)] == [()] * 4


def test_parents_children_and_steps_agree_whatever_the_number() -> None:
    for nodes in range(1, 301):
        told = [(node, child) for node in range(nodes) for child in children(node, nodes)]
        assert sorted(child for _, child in told) == list(range(1, nodes)), "one parent each"
        assert all(parent(child) == node for node, child in told)
        # Whoever sends has it by then, and sends to one in each step.
        assert all(node == 0 or step_of(node) < step_of(child) for node, child in told)
        assert len({(node, step_of(child)) for node, child in told}) == len(told)
        assert steps(nodes) == max((step_of(child) + 1 for _, child in told), default=0)
        assert 2 ** steps(nodes) >= nodes > 2 ** steps(nodes) // 2, "⌈log2(N+1)⌉"
        assert sorted(below(0, nodes)) == list(range(1, nodes))


@pytest.mark.parametrize("nodes", [1, 2, 7, 8, 64, 100, 300])
def test_below_are_those_who_come_up_through_it(nodes: int) -> None:
    def above(node: int) -> set[int]:
        return {parent(node)} | above(parent(node)) if node else set()

    for node in range(nodes):
        found = below(node, nodes)
        assert len(set(found)) == len(found)
        assert set(found) == {other for other in range(nodes) if node in above(other)}


# -- who with whom ------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 500), unique=True, max_size=40).map(sorted),
    st.sets(st.integers(1, 500), max_size=25),
    st.sampled_from(TREES),
)
def test_the_roster_is_the_tree_and_who_cannot_be_reached_is_the_hosts(
    nodes: list[Node], deaf: set[Node], tree: Tree
) -> None:
    feasible: Callable[[Node, Node], bool] = lambda giver, taker: giver not in deaf  # noqa: E731
    found = tree.arrange(nodes, feasible, {})
    assert list(found) == nodes
    listed = [HOST, *nodes]
    for place, node in enumerate(nodes, 1):
        above, mine = listed[parent(place)], found[node]
        assert mine.source == (HOST if above in deaf else above)
        up = () if mine.source == HOST else (mine.source,)
        assert mine.neighbours == (*up, *mine.order)
        assert mine.order == tuple(
            listed[n] for n in children(place, len(listed)) if found[listed[n]].source == node
        )
        assert set(mine.below) == {n for n in nodes if node in _sources(n, found)}


def _sources(node: Node, found: dict[Node, Links]) -> set[Node]:
    source = found[node].source
    return set() if source in {None, HOST} else {source} | _sources(source, found)


# -- the host -----------------------------------------------------------------------------------


def crowd(tree: Tree, members: int, chunks: int = 4, gives: bool = True) -> Crowd:
    made = Crowd(tree, mask_of((), chunks).astype(float), whole=True)
    for node in range(1, members + 1):
        made.enter(node, Place(dialled=True, listens=True, gives=gives), 0.0)
        made.want(node, 0.0, until=2, wants=to_bytes(mask_of(range(chunks), chunks)))
    made.arrange()
    return made


def feed(made: Crowd, now: float, most: int = 99) -> list[Fed]:
    fed = []
    while len(fed) < most and (one := made.next(now)[0]) is not None:
        made.fed(one, now)
        fed.append(one)
    return fed


def test_the_host_sends_a_whole_copy_and_then_the_next() -> None:
    made = crowd(Tree(), 3)
    assert feed(made, 0.0) == [Fed(1, 0), Fed(1, 1)], "no more than it has room for"
    made.want(1, 0.1, until=4)
    assert feed(made, 0.1) == [Fed(1, 2), Fed(1, 3), Fed(2, 0), Fed(2, 1)]
    made.want(2, 0.1, until=9)
    made.want(3, 0.1, until=9)
    assert feed(made, 0.2) == [Fed(2, 2), Fed(2, 3)], "3 is served by 1"


def test_chunk_by_chunk_the_children_take_turns() -> None:
    made = crowd(Tree(pipelined=True), 3)
    assert feed(made, 0.0) == [Fed(1, 0), Fed(2, 0), Fed(1, 1), Fed(2, 1)]


def test_who_takes_nothing_does_not_hold_up_the_others() -> None:
    made = crowd(Tree(), 3)
    made.want(1, 0.0, until=0)
    assert feed(made, STALLED_S / 2) == []
    assert feed(made, STALLED_S) == [
        Fed(2, 0), Fed(2, 1),
        Fed(3, 0), Fed(3, 1),  # whose source will never have it
    ]  # fmt: skip


@pytest.mark.parametrize("tree", TREES)
def test_the_host_helps_out_where_a_source_does_not_send(tree: Tree) -> None:
    made = crowd(tree, 3)
    for node in (1, 2):
        made.hold(node, 0.0, chunks=range(4))
    assert feed(made, STALLED_S - 1) == []
    assert feed(made, STALLED_S, 1) == [Fed(3, 0)]
    made.hold(3, STALLED_S, chunks=(0,))
    assert feed(made, STALLED_S, 1) == [Fed(3, 1)], (
        "and goes on: what it sends is no sign of others"
    )
    made.want(3, STALLED_S, until=9)
    made.hold(3, STALLED_S, chunks=(2,))
    assert feed(made, STALLED_S + 1) == [], "its source sends after all"


def test_a_copy_that_is_not_whole_is_waited_for() -> None:
    whole, pipelined = (crowd(tree, 3) for tree in TREES)
    for made in (whole, pipelined):
        made.hold(1, 0.0, chunks=(0,))
        made.hold(2, 0.0, chunks=range(4))
        made.want(1, 0.0, until=0)
        made.want(1, STALLED_S, until=0, urgent=(1,))  # it has just got on
    assert feed(whole, STALLED_S) == []
    assert feed(pipelined, STALLED_S) == [Fed(3, 0)]


@pytest.mark.parametrize("tree", TREES)
def test_who_gives_nothing_is_nobodys_source(tree: Tree) -> None:
    made = crowd(tree, 7)
    made.enter(1, Place(dialled=True, listens=True, gives=False), 0.0)
    made.arrange()
    assert made.links[1].order == ()
    assert made.links[1].below == ()
    assert {made.links[n].source for n in (3, 5)} == {HOST}
    assert made.links[7].source == 3


# -- a member -----------------------------------------------------------------------------------


def queue(asks: list[Asked], complete: bool, served: dict[Node, int] | None = None) -> Queue:
    return Queue(
        asks=asks, order=(3, 5, 9), given={}, served=served or {}, complete=complete,
        copies=mask_of((), 8).astype(int),
    )  # fmt: skip


ASKS = [Asked(9, 0, 0.0), Asked(5, 2, 0.0), Asked(3, 4, 1.0), Asked(3, 1, 2.0), Asked(77, 0, 0.0)]


def test_whole_copies_are_passed_on_when_they_are_whole_one_after_the_other() -> None:
    assert Tree().serve(queue(ASKS, complete=False), 3.0)[0] is None
    assert Tree().serve(queue(ASKS, complete=True), 3.0)[0] == Asked(3, 1, 2.0)
    assert Tree().serve(queue(ASKS, complete=True, served={3: 99}), 3.0)[0] == Asked(3, 1, 2.0)


def test_chunk_by_chunk_whoever_has_had_least_is_next() -> None:
    tree = Tree(pipelined=True)
    assert tree.serve(queue(ASKS, complete=False), 3.0)[0] == Asked(3, 1, 2.0)
    assert tree.serve(queue(ASKS, False, {3: 1}), 3.0)[0] == Asked(5, 2, 0.0)
    assert tree.serve(queue(ASKS, False, {3: 1, 5: 1}), 3.0)[0] == Asked(9, 0, 0.0)


@pytest.mark.parametrize("tree", TREES)
def test_who_is_not_below_is_not_served(tree: Tree) -> None:
    assert tree.serve(queue([Asked(77, 0, 0.0)], complete=True), 1.0)[0] is None


@pytest.mark.parametrize("tree", TREES)
def test_a_tree_says_what_it_is(tree: Tree) -> None:
    assert tree.name == ("pipelined" if tree.pipelined else "tree")
    assert tree.sentence.startswith("the paper's tree")
