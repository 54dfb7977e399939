"""What a host knows of its members: what they say, whom it believes, who may be joined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from crowdgrad.domain.spreading import Flow, set_bytes
from crowdgrad.planner.replication import crowd as crowds
from crowdgrad.planner.replication.crowd import ACCUSERS, Crowd, Place
from crowdgrad.planner.replication.masks import numbers_of
from crowdgrad.planner.replication.plans import HOST, Fed, Links, Node, Plan
from crowdgrad.planner.replication.swarm import Swarm
from crowdgrad.planner.replication.tree import Tree

OPEN = Place(dialled=True, listens=True)
SHUT = Place()


def crowd(members: int, *, chunks: int = 6, plan: Plan | None = None, whole: bool = True) -> Crowd:
    made = Crowd(plan or Swarm(), np.linspace(0, 1, chunks), whole=whole)
    for node in range(1, members + 1):
        made.enter(node, OPEN, 0.0)
    made.arrange()
    return made


def accuse(made: Crowd, accused: Node, *accusers: Node) -> None:
    for node in accusers:
        assert made.flow(node, [Flow(position=accused, bad=1)]) == [accused]


# -- what members say -----------------------------------------------------------------------------


def test_what_is_held_is_said_whole_or_by_what_changed() -> None:
    made = crowd(2)
    made.hold(1, 1.0, whole=set_bytes((0, 5, 77)))
    made.hold(1, 2.0, chunks=(1, 400), lost=(5, 600))
    assert numbers_of(made.members[1].holds) == [0, 1]
    assert made.copies().tolist() == [1, 1, 0, 0, 0, 0]
    assert made.members[1].moved_at == 2.0
    made.hold(1, 3.0, lost=(0,))
    assert made.members[1].moved_at == 2.0, "who loses something does not get on"
    made.hold(1, 4.0, whole=b"")
    assert not made.copies().any()


def test_what_was_said_of_data_to_come_counts_when_it_has_come() -> None:
    made = crowd(2, chunks=3)
    made.hold(1, 0.0, chunks=(2, 4, 99))
    made.hold(2, 0.0, whole=set_bytes((4, 5)))
    made.want(2, 0.0, until=1, wants=set_bytes((0, 1, 2)), urgent=(1, 9))
    made.grow(np.linspace(0, 1, 6))
    assert made.chunks == 6
    assert made.copies().tolist() == [0, 0, 1, 0, 2, 1]
    assert numbers_of(made.members[2].wants) == [0, 1, 2]
    made.grow(np.linspace(0, 1, 12))
    assert numbers_of(made.members[2].wants) == [0, 1, 2, 9], "a unit waits for it"
    made.want(2, 0.0, until=1, wants=set_bytes(range(6)))
    assert made.next(0.0)[0] is not None


def test_wants_and_urgent_chunks_beyond_the_data_are_passed_over() -> None:
    made = crowd(1, chunks=2)
    made.want(1, 0.0, until=9, wants=set_bytes((1, 50)), urgent=(0, 50, 4_000_000))
    assert numbers_of(made.members[1].wants) == [0, 1], "what a unit waits for is wanted"
    fed = [made.next(0.0)[0]]
    assert fed == [Fed(1, 0)], "and comes first"
    made.fed(Fed(1, 0), 0.0)
    made.fed(Fed(1, 1), 0.0)
    assert made.next(9.0)[0] is None


def test_only_a_new_wish_starts_the_clock_again() -> None:
    made = crowd(1)
    made.want(1, 1.0, until=1, wants=b"\1")
    made.want(1, 2.0, until=2)
    assert made.members[1].moved_at == 1.0
    made.want(1, 3.0, until=2, urgent=(3,))
    made.want(1, 4.0, until=3, urgent=(3,))
    assert made.members[1].moved_at == 3.0


def test_what_the_host_sends_is_held_unless_it_did_not_come_to_that() -> None:
    made = crowd(2)
    made.want(1, 0.0, until=1, wants=b"\1")
    made.fed(Fed(1, 0), 1.0)
    assert (made.copies()[0], made.given[0], made.members[1].fed) == (1, 1, 1)
    assert made.next(9.0)[0] is None, "no room"
    made.hold(1, 2.0, chunks=(0,))
    assert made.members[1].moved_at == 0.0, "what the host sends is no sign of the others"
    made.not_fed(Fed(1, 0))
    assert (made.copies()[0], made.given[0], made.members[1].fed) == (0, 0, 0)
    assert made.next(9.0)[0] == Fed(1, 0)
    made.fed(Fed(1, 0), 9.0)
    made.leave(1)
    made.not_fed(Fed(1, 0))
    assert made.given[0] == 0


def test_who_has_gone_counts_no_more_and_begins_anew() -> None:
    made = crowd(3)
    made.hold(2, 0.0, chunks=(0, 1))
    made.leave(2)
    made.leave(2)
    assert not made.copies().any()
    assert made.next(0.0)[0] is None
    assert set(made.arrange()) == {1, 3}
    assert made.links == {1: Links(neighbours=(3,)), 3: Links(neighbours=(1,))}
    made.enter(2, OPEN, 5.0)
    assert not made.members[2].holds.any()


def test_arranging_says_whose_links_have_changed() -> None:
    made = crowd(3)
    assert made.arrange() == []
    made.enter(4, OPEN, 0.0)
    assert sorted(made.arrange()) == [1, 2, 3, 4]


# -- whom it believes -----------------------------------------------------------------------------


def test_two_accusers_are_enough() -> None:
    made = crowd(5)
    made.hold(1, 0.0, chunks=(0, 1))
    made.hold(2, 0.0, chunks=(1,))
    accuse(made, 1, 3)
    accuse(made, 1, 3)
    assert made.trusted(1), "the same one twice is one"
    assert made.copies().tolist()[:2] == [1, 2]
    accuse(made, 1, 4)
    assert ACCUSERS == made.accusers(1) == 2
    assert not made.trusted(1)
    assert made.copies().tolist()[:2] == [0, 1]
    made.hold(1, 1.0, chunks=(2,))
    made.fed(Fed(1, 3), 1.0)
    assert made.copies().tolist() == [0, 1, 0, 0, 0, 0], "whatever it says, or is sent"
    made.arrange()
    assert made.links[1].neighbours == ()
    assert all(1 not in links.neighbours for links in made.links.values())
    assert made.received(4) == (0, 0, 1)


def test_who_was_sent_wrong_bytes_is_not_joined_with_the_sender_again() -> None:
    made = crowd(4)
    accuse(made, 1, 3)
    made.arrange()
    assert made.links[1].neighbours == (2, 4)
    assert made.links[3].neighbours == (2, 4)
    made.leave(1)
    made.enter(1, OPEN, 1.0)
    made.arrange()
    assert 3 not in made.links[1].neighbours, "also when it comes back"
    made.hold(1, 1.0, chunks=(0,))
    made.want(3, 1.0, until=0, wants=b"\1", urgent=(0,))
    assert made.bring_together(3) == []


@pytest.mark.parametrize("tree", [Tree(), Tree(pipelined=True)])
def test_in_a_tree_who_accuses_its_source_is_the_hosts(tree: Tree) -> None:
    made = crowd(7, plan=tree)
    assert made.links[3].source == 1
    accuse(made, 1, 3)
    made.arrange()
    assert (made.links[3].source, made.links[5].source) == (HOST, 1)
    accuse(made, 1, 5)
    made.arrange()
    assert made.links[5].source == HOST
    assert made.links[1].below == ()


def test_nobody_accuses_itself_the_host_or_who_never_was_here() -> None:
    made = crowd(2)
    assert made.flow(1, [Flow(position=at, bad=3) for at in (HOST, 1, 9, 1 << 60)]) == []
    assert made.trusted(1)
    assert [made.accusers(node) for node in (HOST, 1, 9)] == [0, 0, 0]
    made.leave(2)
    accuse(made, 2, 1)


def test_what_came_from_whom_is_added_up_and_bounded() -> None:
    made = crowd(2)
    for _ in range(2):
        made.flow(1, [Flow(position=HOST, received=10), Flow(position=2, received=5, wasted=1)])
    assert made.flows == {(HOST, 1): 20, (2, 1): 10}
    assert made.received(1) == (30, 2, 0)
    for at in range(3):
        many = range(at * 4096, (at + 1) * 4096)
        made.flow(2, [Flow(position=n, received=1) for n in many])
    assert len(made.flows) <= 2 * crowds.MOST_FLOWS
    assert made.flows[HOST, 1] == 20, "the busiest are kept"


def test_who_gives_nothing_just_now_does_not_count() -> None:
    made = crowd(2)
    made.hold(1, 0.0, chunks=(0,))
    made.enter(1, Place(dialled=True, gives=False), 0.0)
    assert not made.trusted(1)
    assert not made.copies().any()
    assert made.passes(2, 1)
    assert not made.passes(1, 2)
    made.enter(1, OPEN, 0.0)
    assert made.copies()[0] == 1
    assert not made.trusted(9)


# -- who may be joined ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "first_dials", "second_dials"),
    [
        (OPEN, OPEN, True, True),
        (OPEN, SHUT, False, True),
        (SHUT, SHUT, False, False),
        (Place(network="a"), Place(network="a", listens=True), True, False),
        (Place(network="a"), Place(network="a"), False, False),
        (Place(network="a", listens=True), Place(network="b", listens=True), False, False),
        (Place(listens=True), Place(listens=True), False, False),  # nobody knows where they are
    ],
)
def test_one_of_two_must_be_able_to_dial(
    one: Place, other: Place, first_dials: bool, second_dials: bool
) -> None:
    made = crowd(0)
    made.enter(1, one, 0.0)
    made.enter(2, other, 0.0)
    assert made.can_dial(1, 2) == first_dials
    assert made.can_dial(2, 1) == second_dials
    assert made.feasible(1, 2) == made.feasible(2, 1) == (first_dials or second_dials)
    assert made.place(1) == one


def test_two_that_give_nothing_are_not_joined() -> None:
    made = crowd(0)
    for node in (1, 2, 3):
        made.enter(node, Place(dialled=True, gives=node == 3), 0.0)
    made.arrange()
    assert {node: links.neighbours for node, links in made.links.items()} == {
        1: (3,), 2: (3,), 3: (1, 2),
    }  # fmt: skip


def test_who_waits_for_a_chunk_is_brought_together_with_one_who_has_it() -> None:
    made = crowd(4, whole=False)
    made.links = {node: Links(neighbours=()) for node in range(1, 5)}
    made.hold(3, 0.0, chunks=(2,))
    made.want(1, 0.0, until=0, urgent=(0, 2, 99))
    assert sorted(made.bring_together(1)) == [1, 3]
    assert made.links[1].neighbours == (3,)
    assert made.links[3].neighbours == (1,)
    assert made.bring_together(1) == [], "once is enough"
    made.hold(1, 1.0, chunks=(2,))
    made.links = {node: Links(neighbours=()) for node in range(1, 5)}
    assert made.bring_together(1) == [], "it has it"
    made.arrange()
    made.enter(9, OPEN, 0.0)
    assert made.bring_together(9) == [], "it has no place yet"


def test_in_a_tree_nobody_is_brought_together() -> None:
    made = crowd(4, plan=Tree())
    made.hold(3, 0.0, chunks=(2,))
    made.want(4, 0.0, until=0, urgent=(2,))
    assert made.bring_together(4) == []


# -- what passes through whom ---------------------------------------------------------------------


def test_in_a_tree_what_those_below_need_passes_through() -> None:
    made = crowd(7, chunks=8, plan=Tree(), whole=False)
    for node in range(1, 8):
        made.need(node, set_bytes((node,)))
        made.want(node, 0.0, until=9, wants=set_bytes((node,)))
    made.arrange()
    carried = {node: guest.carries for node, guest in made.members.items()}
    assert numbers_of(carried[1]) == [3, 5, 7]
    assert numbers_of(carried[3]) == [7]
    assert numbers_of(carried[2]) == [6]
    assert [carried[node] for node in (4, 5, 6, 7)] == [None] * 4


def test_what_somebody_carried_once_is_not_carried_for_it_for_ever() -> None:
    """It says that it wants all it was told to have; what it needs itself is known."""
    made = crowd(7, chunks=8, plan=Tree(), whole=False)
    for node in range(1, 8):
        made.need(node, set_bytes((node,)))
    made.arrange()
    made.want(3, 0.0, until=9, wants=set_bytes((3, 7)))
    made.leave(7)
    made.arrange()
    assert numbers_of(made.members[1].carries) == [3, 5]


def test_what_is_carried_grows_with_the_data() -> None:
    made = crowd(3, chunks=2, plan=Tree())
    for node in range(1, 4):
        made.want(node, 0.0, until=9, wants=b"\3")
    made.arrange()
    made.grow(np.linspace(0, 1, 5))
    assert numbers_of(made.members[1].carries) == [0, 1]
    assert made.next(0.0)[0] == Fed(1, 0)


# -- whatever is said -----------------------------------------------------------------------------

nodes = st.integers(1, 5)
numbers = st.integers(0, 9) | st.sampled_from([15, 99])
sets = st.frozensets(numbers, max_size=6)


class Sayings(RuleBasedStateMachine):
    """Members say anything; our own count of it beside the crowd's."""

    @initialize(plan=st.sampled_from([Swarm(), Tree(), Tree(pipelined=True)]), whole=st.booleans())
    def begin(self, plan: Plan, whole: bool) -> None:
        self.made = Crowd(plan, np.linspace(0, 1, 5), whole=whole)
        self.said: dict[Node, set[int]] = {}
        self.given: dict[Node, bool] = {}
        self.accusers: dict[Node, set[Node]] = {}
        self.known: set[Node] = set()
        self.now = 0.0

    @rule(node=nodes, dialled=st.booleans(), gives=st.booleans())
    def enter(self, node: Node, dialled: bool, gives: bool) -> None:
        self.made.enter(node, Place(dialled=dialled, listens=dialled, gives=gives), self.now)
        self.said.setdefault(node, set())
        self.given[node] = gives
        self.known.add(node)

    @rule(node=nodes)
    def leave(self, node: Node) -> None:
        self.made.leave(node)
        self.said.pop(node, None)

    @rule(node=nodes, chunks=sets, lost=sets, whole=st.none() | sets)
    def hold(
        self, node: Node, chunks: frozenset[int], lost: frozenset[int], whole: frozenset[int] | None
    ) -> None:
        if node in self.said:
            bits = None if whole is None else set_bytes(whole)
            self.made.hold(node, self.now, chunks=chunks, lost=lost, whole=bits)
            before = self.said[node] if whole is None else set(whole)
            self.said[node] = (before | chunks) - lost

    @rule(node=nodes, until=st.integers(0, 9), wants=st.none() | sets, urgent=sets)
    def want(
        self, node: Node, until: int, wants: frozenset[int] | None, urgent: frozenset[int]
    ) -> None:
        if node in self.said:
            bits = None if wants is None else set_bytes(wants)
            self.made.want(node, self.now, until=until, wants=bits, urgent=urgent)

    @rule(node=nodes, about=st.integers(0, 9))
    def accuse(self, node: Node, about: Node) -> None:
        if node in self.said:
            heard = self.made.flow(node, [Flow(position=about, bad=1)])
            assert heard == ([about] if about in self.known - {node} else [])
            if heard:
                self.accusers.setdefault(about, set()).add(node)

    @rule(more=st.integers(0, 4))
    def grow(self, more: int) -> None:
        self.made.grow(np.linspace(0, 1, min(14, self.made.chunks + more)))

    @rule()
    def arrange(self) -> None:
        self.made.arrange()
        for node, links in self.made.links.items():
            for other in links.neighbours:
                assert node in self.made.links[other].neighbours
                assert self.made.feasible(node, other)

    @rule(node=nodes)
    def bring_together(self, node: Node) -> None:
        if node in self.said:
            for changed in self.made.bring_together(node):
                assert changed in self.made.links

    @rule(later=st.sampled_from([0.0, 2.0, 20.0]), came=st.booleans())
    def feed(self, later: float, came: bool) -> None:
        self.now += later
        fed, why = self.made.next(self.now)
        assert why
        if fed is None:
            return
        guest = self.made.members[fed.node]
        assert not guest.holds[fed.chunk], "it has it already"
        carried = guest.carries is not None and guest.carries[fed.chunk]
        assert guest.wants[fed.chunk] or carried, "nobody asked for it"
        assert guest.fed < guest.until, "it has no room"
        self.made.fed(fed, self.now)
        if came:
            self.said[fed.node].add(fed.chunk)
        else:
            self.made.not_fed(fed)

    @invariant()
    def counts_are_right(self) -> None:
        made = self.made
        assert set(made.members) == set(self.said)
        believed = []
        for node, said in self.said.items():
            here = {n for n in said if n < made.chunks}
            assert set(numbers_of(made.members[node].holds)) == here
            few = len(self.accusers.get(node, ())) < ACCUSERS
            assert made.trusted(node) == (few and self.given[node])
            believed += [here] if made.trusted(node) else []
        copies = [sum(n in here for here in believed) for n in range(made.chunks)]
        assert made.copies().tolist() == copies


TestSayings = Sayings.TestCase
TestSayings.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestManySayings(Sayings.TestCase):
    settings = settings(max_examples=1500, stateful_step_count=50, deadline=None)
