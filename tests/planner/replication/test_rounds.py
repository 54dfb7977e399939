"""Every plan brings everybody what it needs, in as many rounds as it should, whoever goes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.planner.replication.plans import HOST, Plan
from crowdgrad.planner.replication.rounds import (
    Rounds,
    bound,
    one_to_all,
    pipelined_tree,
    whole_tree,
)
from crowdgrad.planner.replication.swarm import Swarm
from crowdgrad.planner.replication.tree import Tree, steps
from tests.planner.replication.spreading_worlds import (
    PLANS,
    Life,
    Moment,
    World,
    carried,
    check,
    live,
    worlds,
)

quick = settings(max_examples=60, deadline=None)
thorough = settings(max_examples=600, deadline=None)
every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)


def full(plan: Plan, receivers: int, chunks: int, seed: int = 0) -> Life:
    return live(World(plan=plan, receivers=receivers, chunks=chunks, segments=False, seed=seed))


# -- everybody gets what it needs -----------------------------------------------------------------


def check_still(world: World) -> None:
    life = live(world)
    check(life)
    useful = carried(world)
    for sent in life.rounds.sent:
        assert sent.chunk in useful[sent.receiver], "neither it nor anybody below needs it"


@quick
@given(worlds())
def test_everybody_gets_what_it_needs_and_nobody_sends_what_it_has_not(world: World) -> None:
    check_still(world)


@pytest.mark.slow
@pytest.mark.timeout(900)
@thorough
@given(worlds(most=40))
def test_everybody_gets_what_it_needs_in_many_worlds(world: World) -> None:
    check_still(world)


@quick
@given(worlds(churn=True))
def test_whoever_comes_and_goes_the_rest_get_what_they_need(world: World) -> None:
    check(live(world))


@pytest.mark.slow
@pytest.mark.timeout(900)
@thorough
@given(worlds(churn=True, most=30))
def test_whoever_comes_and_goes_in_many_worlds(world: World) -> None:
    check(live(world))


@every_plan
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("at", [0, 5, 30, 60])
def test_a_fifth_goes_at_once_and_others_come(plan: Plan, segments: bool, at: int) -> None:
    """By fifths: the host's own children, inner nodes and leaves of the trees."""
    for fifth in (0, 1, 3):
        going = tuple(range(fifth, 20, 5))
        world = World(
            plan=plan, receivers=20, chunks=32, segments=segments,
            moments=(Moment(rounds=at, going=going, coming=2),
                     Moment(rounds=7, going=going[:3])),
        )  # fmt: skip
        check(live(world))


@every_plan
@pytest.mark.parametrize("segments", [False, True])
def test_where_nobody_can_be_dialled_the_host_serves_all(plan: Plan, segments: bool) -> None:
    world = World(
        plan=plan, receivers=9, chunks=12, segments=segments, undialled=frozenset(range(99)),
        moments=(Moment(rounds=20, going=(3,), coming=2),),
    )  # fmt: skip
    life = live(world)
    check(life)
    assert {sent.sender for sent in life.rounds.sent} == {HOST}
    still = live(replace(world, moments=()))
    needed = sum(len(world.needs(node)) for node in range(1, 10))
    assert still.rounds.round == needed, "each chunk once to each, and never a round wasted"


@pytest.mark.parametrize("dialled", [1, 3, 6])
def test_the_fewer_can_be_dialled_the_more_the_host_sends_and_trees_more_still(
    dialled: int,
) -> None:
    copies = {}
    for plan in PLANS:
        undialled = frozenset(range(dialled + 1, 99))
        world = World(plan=plan, receivers=12, chunks=48, segments=False, undialled=undialled)
        life = live(world)
        check(life)
        assert life.rounds.round < one_to_all(12, 48), "the others help"
        copies[plan.name] = life.host_copies
    assert copies["swarm"] < min(copies["tree"], copies["pipelined"])
    assert (copies["swarm"] <= 1.1) == (dialled > 1), "one uplink does not feed eleven"


# -- in how many rounds ---------------------------------------------------------------------------


@quick
@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 9))
def test_a_tree_takes_exactly_its_rounds(receivers: int, chunks: int, seed: int) -> None:
    whole = full(Tree(), receivers, chunks, seed)
    assert whole.rounds.round == whole_tree(receivers, chunks) == steps(receivers + 1) * chunks
    pipelined = full(Tree(pipelined=True), receivers, chunks, seed)
    assert pipelined.rounds.round == pipelined_tree(receivers, chunks)
    for life in (whole, pipelined):
        assert len(life.rounds.sent) == receivers * chunks
        assert life.host_copies == steps(receivers + 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("receivers", [*range(1, 70), 100, 127, 128, 129])
def test_a_tree_takes_exactly_its_rounds_whatever_the_number(receivers: int) -> None:
    for chunks in (1, 2, 3, 17):
        assert full(Tree(), receivers, chunks).rounds.round == whole_tree(receivers, chunks)
        pipelined = full(Tree(pipelined=True), receivers, chunks).rounds.round
        assert pipelined == pipelined_tree(receivers, chunks)


def test_with_whole_copies_a_step_is_a_copy() -> None:
    """What the paper draws: in step s nodes 2^s to 2^(s+1) - 1 are sent to, and nobody else."""
    life = full(Tree(), 7, 10)
    steps_of = {(s.sender, s.receiver): s.round // 10 for s in life.rounds.sent}
    assert steps_of == {
        (0, 1): 0,
        (0, 2): 1, (1, 3): 1,
        (0, 4): 2, (1, 5): 2, (2, 6): 2, (3, 7): 2,
    }  # fmt: skip


def check_swift(receivers: int, chunks: int, seed: int) -> None:
    life = full(Swarm(), receivers, chunks, seed)
    check(life)
    least, took = bound(receivers, chunks), life.rounds.round
    doublings = math.ceil(math.log2(receivers + 1))  # rounds are whole
    assert least <= took <= 1.1 * least + 2 * doublings
    assert life.host_copies <= 1.1
    twice = len(life.rounds.sent) - receivers * chunks
    assert 0 <= twice <= 0.05 * receivers * chunks, "the end-game costs little"


@pytest.mark.parametrize(
    ("receivers", "chunks"),
    [(3, 64), (4, 64), (6, 100), (7, 64), (8, 64), (9, 64), (12, 64), (15, 64), (15, 160),
     (16, 64), (23, 64), (31, 64), (32, 80), (47, 64), (63, 64)],
)  # fmt: skip
def test_a_swarm_comes_near_the_bound_and_costs_the_host_one_copy(
    receivers: int, chunks: int
) -> None:
    check_swift(receivers, chunks, seed=receivers)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("receivers", range(3, 64))
def test_a_swarm_comes_near_the_bound_whatever_the_number(receivers: int) -> None:
    for chunks, seed in ((64, 0), (64, 1), (150, 2)):
        check_swift(receivers, chunks, seed)


@every_plan
@pytest.mark.parametrize("receivers", [1, 2, 5, 11])
@pytest.mark.parametrize("chunks", [1, 2, 7])
def test_nothing_is_faster_than_the_bound(plan: Plan, receivers: int, chunks: int) -> None:
    took = full(plan, receivers, chunks).rounds.round
    assert bound(receivers, chunks) <= took <= one_to_all(receivers, chunks)


def test_losing_a_fifth_half_way_costs_a_swarm_little() -> None:
    life = live(
        World(
            plan=Swarm(), receivers=30, chunks=96, segments=False,
            moments=(Moment(rounds=50, going=tuple(range(0, 30, 5))),),
        )
    )  # fmt: skip
    check(life)
    assert life.rounds.round <= 1.25 * bound(30, 96)
    assert life.host_copies <= 1.1


def test_a_segment_costs_a_swarms_members_their_part_only() -> None:
    world = World(plan=Swarm(), receivers=16, chunks=64, segments=True)
    life = live(world)
    check(life)
    assert len(life.rounds.sent) <= 1.05 * sum(len(world.needs(n)) for n in range(1, 17))
    assert life.host_copies <= 1.5, "what two share comes from the other, mostly"


def test_what_cannot_be_is_said() -> None:
    rounds = Rounds(Swarm(), chunks=8, needs={1: range(8), 2: range(8)})
    with pytest.raises(ValueError, match="after 3 rounds there is missing"):
        rounds.finish(3)
    assert rounds.finish(99) == bound(2, 8)
