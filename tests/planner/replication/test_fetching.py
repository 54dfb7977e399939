"""What a member asks for, whatever it is told in whatever order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from crowdgrad.domain.spreading import set_bytes
from crowdgrad.planner.replication.fetching import (
    ASKS_ALONE,
    DEAD_S,
    MOST_ASKS,
    MOST_BAD,
    MOST_TWICE,
    SLOW_S,
    Arrival,
    Ask,
    Fetching,
)
from crowdgrad.planner.replication.masks import mask_of, numbers_of
from crowdgrad.planner.replication.plans import HOST, Node, Order


def fetching(chunks: int, *neighbours: Node, order: Order = "rarest") -> Fetching:
    made = Fetching(np.linspace(0.1, 0.9, chunks), order=order)
    made.wanted[:] = True
    for node in neighbours:
        made.meet(node)
    return made


def pairs(asks: list[Ask]) -> list[tuple[Node, int]]:
    return [(ask.node, ask.chunk) for ask in asks]


# -- by hand --------------------------------------------------------------------------------------


def test_the_rarest_is_asked_for_first_and_a_unit_before_it() -> None:
    made = fetching(4, 1, 2, 3, 4)
    for node, chunks in ((1, (0, 1, 2)), (2, (0, 1)), (3, (0,))):
        made.hear(node, chunks=chunks)
    made.urgent = frozenset({1, 99})
    assert pairs(made.decide(0.0)) == [(1, 1), (2, 0)], "3 has nothing else, 4 nothing at all"
    made.urgent = frozenset()
    made.came(1, 1)
    assert made.decide(1.0) == [Ask(1, 2, "the rarest it has")]


def test_in_a_tree_the_next_one_is_asked_of_the_source_alone() -> None:
    made = fetching(9, 1, 2, order="first")
    made.turn_to(1)
    for node in (1, 2):
        made.hear(node, chunks=range(9))
    asks = made.decide(0.0)
    assert pairs(asks) == [(1, chunk) for chunk in range(ASKS_ALONE)]
    assert {ask.reason for ask in asks} == {"the next one"}
    made.turn_to(3)
    assert made.decide(0.0) == [], "who is not here is not asked"


def test_a_new_source_is_asked_for_what_the_old_one_has_not_begun() -> None:
    made = fetching(3, 1, 2, order="first")
    made.hear(1, chunks=range(3))
    made.hear(2, chunks=range(3))
    made.turn_to(1)
    made.decide(0.0)
    made.began(1, 0, 0.0)
    assert made.turn_to(1) == []
    assert made.turn_to(2) == [(1, 1), (1, 2)]
    assert pairs(made.decide(0.0)) == [(2, 1), (2, 2)], "what is under way comes"
    assert made.turn_to(None) == []


def test_what_is_slow_is_asked_for_once_more_and_the_second_is_told_not_to_send_it() -> None:
    made = fetching(1, 1, 2, 3)
    for node in (1, 2, 3):
        made.hear(node, chunks=(0,))
    assert pairs(made.decide(0.0)) == [(1, 0)]
    assert made.decide(SLOW_S - 0.1) == []
    assert made.decide(SLOW_S) == [Ask(2, 0, "another is slow with it")]
    assert made.decide(DEAD_S * 2) == [], "two are enough"
    assert made.came(1, 0) == Arrival(True, (2,))
    made.ungot(2, 0)
    assert made.came(2, 0) == Arrival(False, ()), "it was on its way already"
    assert made.complete


def test_what_has_begun_has_longer() -> None:
    made = fetching(1, 1, 2)
    made.hear(1, chunks=(0,))
    made.hear(2, chunks=(0,))
    made.decide(0.0)
    assert made.began(1, 0, 0.1)
    assert not made.began(2, 0, 0.1), "it was not asked"
    assert made.decide(DEAD_S) == []
    assert pairs(made.decide(DEAD_S + 0.1)) == [(2, 0)]
    assert made.came(2, 0) == Arrival(True, ()), "what is under way is not called back"


@pytest.mark.parametrize("source", [None, 1])
def test_who_sends_wrong_bytes_is_not_asked_again_even_when_it_comes_back(
    source: Node | None,
) -> None:
    made = fetching(9, 1)
    made.turn_to(source)
    for time in range(1, MOST_BAD + 1):
        made.hear(1, chunks=range(9))
        asks = made.decide(0.0)
        assert asks
        assert made.was_bad(1, asks[0].chunk) == (time == MOST_BAD)
        made.meet(1)
    made.hear(1, chunks=range(9))
    assert made.decide(0.0) == []


def test_only_so_much_is_under_way_at_once() -> None:
    made = fetching(2 * MOST_ASKS, *range(1, 2 * MOST_ASKS))
    for node in range(1, 2 * MOST_ASKS):
        made.hear(node, chunks=range(2 * MOST_ASKS))
    assert len(made.decide(0.0)) == MOST_ASKS
    assert made.decide(0.1) == []


def test_what_the_host_sends_is_asked_of_nobody() -> None:
    made = fetching(2, HOST, 1)
    made.hear(1, chunks=(0, 1))
    made.coming(HOST, 0, 0.0)
    assert pairs(made.decide(0.0)) == [(1, 1)]
    made.coming(HOST, 1, 0.0)
    assert made.came(HOST, 1) == Arrival(True, (1,)), "it need not"


def test_meeting_again_asks_again() -> None:
    made = fetching(1, 1)
    for _ in range(4):
        made.meet(1)
        made.hear(1, chunks=(0,))
        assert pairs(made.decide(0.0)) == [(1, 0)]


def test_what_a_neighbour_said_of_data_to_come_counts_when_it_has_come() -> None:
    made = fetching(2, 1)
    made.hear(1, chunks=(5,))
    made.hear(1, whole=set_bytes((1, 4, 700)))
    made.grow(np.linspace(0, 1, 6))
    assert numbers_of(made.held_by(1)) == [1, 4]
    assert made.copies.tolist() == [0, 1, 0, 0, 1, 0]
    made.wanted[4] = True
    assert sorted(pairs(made.decide(0.0))) == [(1, 1), (1, 4)]


# -- whatever is said -----------------------------------------------------------------------------

STRANGER = 9
nodes = st.integers(1, 5)
anybody = nodes | st.just(STRANGER)
known = st.integers(0, 11)
numbers = known | st.sampled_from([12, 13, 31, 400])
sets = st.frozensets(numbers, max_size=8)
FULL = frozenset(range(12))
hows = st.sampled_from(["began", "came", "lacks", "bad", "bad", "ungot"])


class Neighbourhood(RuleBasedStateMachine):
    """Neighbours come, go, say anything, send anything; our own count of it beside Fetching's."""

    @initialize(order=st.sampled_from(["rarest", "first"]), size=st.integers(1, 12))
    def begin(self, order: Order, size: int) -> None:
        self.size = size
        self.made = Fetching(np.random.default_rng(size).random(size), order=order)
        self.now = 0.0
        self.said: dict[Node, set[int]] = {}
        self.open: dict[tuple[Node, int], bool] = {}
        """Asks that have not ended, and whether they have begun."""
        self.bad: dict[Node, int] = {}
        self.held: set[int] = set()
        self.want(FULL, frozenset())
        self.made.meet(HOST)
        self.said[HOST] = set()
        for node in (1, 2, 3):
            self.meet(node, FULL)

    def end(self, node: Node, chunk: int | None = None) -> None:
        for one in [o for o in self.open if o[0] == node and chunk in {None, o[1]}]:
            del self.open[one]

    # -- what happens ---------------------------------------------------------------------------

    @rule(node=nodes, chunks=st.just(FULL) | sets)
    def meet(self, node: Node, chunks: frozenset[int]) -> None:
        self.made.meet(node)
        self.end(node)
        self.said[node] = set()
        self.hear(node, chunks, frozenset(), None)

    @rule(node=anybody)
    def part(self, node: Node) -> None:
        self.made.part(node)
        self.end(node)
        self.said.pop(node, None)

    @rule(node=anybody, chunks=sets, lost=sets, whole=st.none() | sets)
    def hear(
        self, node: Node, chunks: frozenset[int], lost: frozenset[int], whole: frozenset[int] | None
    ) -> None:
        bits = None if whole is None else set_bytes(whole)
        self.made.hear(node, chunks=chunks, lost=lost, whole=bits)
        if node in self.said:
            before = self.said[node] if whole is None else set(whole)
            self.said[node] = (before | chunks) - lost

    @rule(wanted=st.just(FULL) | sets, urgent=sets)
    def want(self, wanted: frozenset[int], urgent: frozenset[int]) -> None:
        self.wanted = {n for n in wanted if n < self.size}
        self.made.wanted, self.made.urgent = mask_of(self.wanted, self.size), urgent

    @rule(chunk=numbers)
    def hold(self, chunk: int) -> None:
        self.made.hold((chunk,))
        self.held |= {chunk} & set(range(self.size))

    @rule(chunks=st.just(FULL) | sets)
    def lose(self, chunks: frozenset[int]) -> None:
        self.made.lose(chunks)
        self.held -= chunks

    @rule(more=st.integers(0, 4))
    def grow(self, more: int) -> None:
        self.size = min(14, self.size + more)
        self.made.grow(np.random.default_rng(self.size).random(self.size))

    @rule(source=st.sampled_from([None, None, None, 1, 2, HOST, STRANGER]))
    def turn_to(self, source: Node | None) -> None:
        gone = [o for o, begun in self.open.items() if not begun and source not in {None, o[0]}]
        assert sorted(self.made.turn_to(source)) == sorted(gone)
        for one in gone:
            del self.open[one]

    # -- asks and how they end --------------------------------------------------------------------

    @rule(later=st.sampled_from([0.0, SLOW_S, SLOW_S, DEAD_S]))
    def decide(self, later: float) -> None:
        self.now += later
        for ask in self.made.decide(self.now):
            assert ask.chunk in self.wanted - self.held
            assert ask.chunk in self.said[ask.node], "it has it, and it is a neighbour"
            assert ask.node != HOST, "it gives what it chooses"
            assert self.bad.get(ask.node, 0) < MOST_BAD
            assert self.made.source in {None, ask.node}
            assert (ask.node, ask.chunk) not in self.open, "it was asked already"
            assert ask.reason
            self.open[ask.node, ask.chunk] = False
            assert self.times_asked(ask.chunk) <= MOST_TWICE, "of one more than two"
        for node in self.said:
            assert sum(o[0] == node and not b for o, b in self.open.items()) <= ASKS_ALONE
        self.check_nobody_idles()

    def times_asked(self, chunk: int) -> int:
        return sum(asked == chunk for _, asked in self.open)

    def check_nobody_idles(self) -> None:
        asked = {chunk for _, chunk in self.open}
        busy = {node for (node, _), begun in self.open.items() if not begun}
        for node in self.said.keys() - busy:
            if self.bad.get(node, 0) < MOST_BAD and self.made.source in {None, node} - {HOST}:
                assert not (self.wanted - self.held - asked) & self.said[node]

    def some_ask(self, place: int) -> tuple[Node, int]:
        return sorted(self.open)[place % len(self.open)]

    @precondition(lambda self: self.open)
    @rule(place=st.integers(0, 99), how=hows)
    def answer(self, place: int, how: str) -> None:
        node, chunk = self.some_ask(place)
        self.happen(node, chunk, how)

    @precondition(lambda self: self.open)
    @rule(place=st.integers(0, 99), node=nodes)
    def answer_and_go_on(self, place: int, node: Node) -> None:
        """What comes of many days: it is sent, or another one sends it, and more is asked for."""
        asked, chunk = self.some_ask(place)
        self.happen(asked, chunk, "began")
        self.decide(DEAD_S)
        self.happen(node, chunk, "came")
        self.decide(0.0)

    @rule(node=nodes, times=st.integers(1, MOST_BAD), again=st.booleans())
    def spoil(self, node: Node, times: int, again: bool) -> None:
        """It sends wrong bytes, and says that it has everything; perhaps it comes anew."""
        for chunk in range(times):
            self.happen(node, chunk, "bad")
        if again:
            self.meet(node, FULL)
        self.hear(node, FULL, frozenset(), None)
        self.decide(SLOW_S)

    @precondition(lambda self: self.open)
    @rule(place=st.integers(0, 99))
    def send_before_it_is_begun(self, place: int) -> None:
        self.coming(*self.some_ask(place))

    @rule(node=anybody | st.just(HOST), chunk=numbers)
    def coming(self, node: Node, chunk: int) -> None:
        self.made.coming(node, chunk, self.now)
        if node in self.said and chunk < self.size:
            self.open[node, chunk] = True

    @rule(
        node=anybody | st.just(HOST),
        chunk=numbers,
        how=hows,
    )
    def happen(self, node: Node, chunk: int, how: str) -> None:
        if how == "began":
            assert self.made.began(node, chunk, self.now) == (self.open.get((node, chunk)) is False)
            if (node, chunk) in self.open:
                self.open[node, chunk] = True
            return
        self.end(node, chunk)
        if how == "came":
            arrival = self.made.came(node, chunk)
            assert arrival.new == (chunk < self.size and chunk not in self.held)
            others = {n for (n, asked), begun in self.open.items() if asked == chunk and not begun}
            assert set(arrival.unget) == others
            self.held |= {chunk} & set(range(self.size))
        elif how == "ungot":
            self.made.ungot(node, chunk)
        else:
            if how == "bad":
                self.bad[node] = self.bad.get(node, 0) + 1
                assert self.made.was_bad(node, chunk) == (self.bad[node] >= MOST_BAD)
            else:
                self.made.lacks(node, chunk)
            self.said.get(node, set()).discard(chunk)

    # -- what holds at any time -------------------------------------------------------------------

    @invariant()
    def counts_are_right(self) -> None:
        made = self.made
        assert set(made.neighbours) == set(self.said)
        asked = {(node, chunk) for node in made.neighbours for chunk in made.asked_of(node)}
        assert asked == set(self.open)
        expected = [self.times_asked(chunk) for chunk in range(self.size)]
        assert made._asked.tolist() == expected
        assert max(expected) <= MOST_TWICE + len(self.said), "who sends unasked comes on top"
        copies = [sum(n in said for said in self.said.values()) for n in range(self.size)]
        assert made.copies.tolist() == copies
        assert set(numbers_of(made.held)) == self.held
        assert set(numbers_of(made.lacking)) == self.wanted - self.held
        assert made.complete == (not self.wanted - self.held)

    def teardown(self) -> None:
        if hasattr(self, "made"):
            for node in tuple(self.made.neighbours):
                self.made.part(node)
            assert not self.made._asked.any(), "every ask has ended"


TestNeighbourhood = Neighbourhood.TestCase
TestNeighbourhood.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestManyNeighbourhoods(Neighbourhood.TestCase):
    settings = settings(max_examples=1500, stateful_step_count=60, deadline=None)
