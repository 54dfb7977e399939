"""Memory and work of a batch: small graphs whose bounds can be told by hand."""

from __future__ import annotations

import random

import pytest

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.bounds import (
    LIMITS,
    Bounds,
    Limits,
    execution_order,
    in_words,
    measure,
    refuse_beyond,
)
from crowdgrad.program.graph import Constant, Graph, Node, Port, parse
from crowdgrad.program.placement import GRAIN, Placement
from crowdgrad.program.shapes import infer

ROW = 64
"""A row of so many float32 takes one grain."""
SAMPLES = 4
TENSOR = SAMPLES * GRAIN


def port(name: str, *dims: int | str) -> Port:
    return Port(name=name, element=1, dims=dims or ("batch", ROW))


def node(op: str, inputs: str, outputs: str, **attributes: object) -> Node:
    return Node(op, tuple(inputs.split()), tuple(outputs.split()), attributes)


def whole(name: str, *numbers: int) -> Constant:
    data = b"".join(n.to_bytes(8, "little", signed=True) for n in numbers)
    return Constant(name=name, element=7, dims=(len(numbers),), data=data)


X, OUT = port("x"), port("out")


def bounds(nodes, inputs=(X,), outputs=(OUT,), constants=(), samples=SAMPLES):
    graph = Graph(
        ir_version=8,
        opset=18,
        nodes=tuple(nodes),
        constants=tuple(constants),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )
    return measure(graph, infer(graph), samples)


def test_a_chain_needs_what_goes_in_and_what_comes_out():
    chain = [node("Neg", "x", "a"), node("Neg", "a", "b"), node("Neg", "b", "c")]
    found = bounds([*chain, node("Neg", "c", "out")])
    assert found.peak_bytes == 2 * TENSOR  # x and out lie elsewhere
    assert found.total_bytes == 4 * TENSOR
    assert found.largest_bytes == TENSOR
    assert (found.kept_bytes, found.nodes, found.samples) == (0, 4, SAMPLES)
    assert found.work == 4 * SAMPLES * ROW


def test_what_is_needed_later_stays():
    nodes = [node("Neg", "x", f"a{i}") for i in range(3)]
    nodes += [node("Add", "a0 a1", "b"), node("Add", "b a2", "out")]
    assert bounds(nodes).peak_bytes == 4 * TENSOR


def test_a_view_takes_nothing_of_its_own():
    nodes = [node("Neg", "x", "a"), node("Reshape", "a shape", "v"), node("Neg", "v", "b")]
    nodes.append(node("Reshape", "b back", "out"))
    shapes = (whole("shape", ROW, -1), whole("back", -1, ROW))
    assert bounds(nodes, constants=shapes).peak_bytes == 2 * TENSOR


def test_a_result_that_nobody_binds_stays_to_the_end():
    nodes = [node("Neg", "x", "a"), node("Neg", "a", "b"), node("Neg", "b", "out")]
    nodes.append(node("Neg", "x", "y:0"))  # the last is made first
    assert bounds(nodes, outputs=(port("out"), port("y:0"))).peak_bytes == 3 * TENSOR


def test_a_result_that_nobody_reads_goes_at_once():
    nodes = [node("Neg", "x", "unread"), node("Neg", "x", "a"), node("Neg", "a", "out")]
    assert bounds(nodes).peak_bytes == TENSOR


def test_what_is_made_of_constants_is_kept():
    nodes = [node("Expand", "one wide", "table"), node("Cast", "table", "t", to=1)]
    nodes.append(node("Add", "x t", "out"))
    found = bounds(nodes, constants=(whole("one", 1), whole("wide", 1000, ROW)),
                   outputs=(port("out", 1000, ROW),), inputs=(port("x", 1000, ROW),))  # fmt: skip
    assert found.peak_bytes == 0
    assert found.kept_bytes == 1000 * ROW * (8 + 4) + 2 * GRAIN


def test_a_result_has_memory_of_its_own_though_it_is_only_a_view():
    """A thousand results could be views of one tensor; the runtime makes every one of them."""
    results = [port(f"y:{i}") for i in range(5)]
    of_an_input = [node("Identity", "x", f"y:{i}") for i in range(5)]
    assert bounds(of_an_input, outputs=results).peak_bytes == 5 * TENSOR
    of_another = [node("Neg", "x", "a"), *(node("Identity", "a", f"y:{i}") for i in range(5))]
    assert bounds(of_another, outputs=results).peak_bytes == 6 * TENSOR


def test_what_is_made_of_fixed_sizes_alone_is_kept_too():
    """The runtime folds the shape of an input, and all that follows from it, when it loads."""
    w = port("w", 1000, ROW)
    nodes = [node("Shape", "w", "s"), node("ConstantOfShape", "s", "big")]
    nodes.append(node("Add", "w big", "out"))
    found = bounds(nodes, outputs=(port("out", 1000, ROW),), inputs=(w,))
    assert found.kept_bytes == 1000 * ROW * 4 + GRAIN
    assert found.peak_bytes == 0
    with_batch = [node("Shape", "x", "s"), node("ConstantOfShape", "s", "big")]
    found = bounds([*with_batch, node("Add", "x big", "out")])
    assert (found.kept_bytes, found.peak_bytes) == (0, TENSOR + GRAIN)


def test_nodes_are_taken_backwards_from_what_is_last():
    """Worked out by hand: the last result first, of its sources the one that stands later."""
    nodes = [
        node("Neg", "x", "a"),
        node("Neg", "x", "b"),
        node("Neg", "a", "early"),
        node("Add", "a b", "late"),
    ]
    assert execution_order(nodes) == [1, 0, 3, 2]


def test_the_worse_of_two_orders_counts():
    pairs = [(node("Neg", "x", f"a{i}"), node("Neg", f"a{i}", f"o{i}")) for i in range(3)]
    results = [port(f"o{i}") for i in range(3)]
    assert bounds([one for pair in pairs for one in pair], outputs=results).peak_bytes == TENSOR
    by_step = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
    assert bounds(by_step, outputs=results).peak_bytes == 3 * TENSOR  # in the order of the file
    # The file reads each sum before the next; the runtime wants the last sum's sources first.
    nodes = [node("Neg", "x", "a"), node("Neg", "a", "b"), node("Neg", "x", "c")]
    nodes += [node("Neg", "c", "d"), node("Neg", "b", "o0"), node("Add", "d b", "o1")]
    assert execution_order(nodes) == [2, 3, 0, 1, 5, 4]
    assert bounds(nodes, outputs=results[:2]).peak_bytes == 3 * TENSOR


@pytest.mark.parametrize(
    ("made", "inputs", "room"),
    [
        (node("Where", "c x x", "out"), [Port(name="c", element=9, dims=("batch", ROW))], 2),
        (node("Softmax", "x", "out", axis=0), [], 2),
        (node("Softmax", "x", "out", axis=-1), [], 0),
        (node("Gelu", "x", "out"), [], 1),
    ],
)
def test_operators_take_room_while_they_run(made, inputs, room):
    assert bounds([made], inputs=(port("x"), *inputs)).peak_bytes == room * TENSOR


def test_a_convolution_lays_out_the_windows_of_one_image():
    conv = node("Conv", "x w", "out", kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    sizes = [
        bounds(
            [conv],
            inputs=(port("x", "batch", 8, side, side), port("w", 16, 8, 3, 3)),
            outputs=(port("out", "batch", 16, side, side),),
        ).peak_bytes
        for side in (16, 32)
    ]
    assert sizes[1] - sizes[0] == 4 * 8 * 9 * (32 * 32 - 16 * 16)


def test_bounds_grow_with_the_batch(captured):
    for data in (captured.program.gradient, captured.program.forward):
        graph = parse(data, "the graph")
        shapes = infer(graph)
        found = [measure(graph, shapes, samples) for samples in (1, 8, 64, 512, 4096)]
        for name in ("peak_bytes", "total_bytes", "largest_bytes", "work"):
            values = [getattr(one, name) for one in found]
            assert values == sorted(values)
            assert values[-1] > 100 * values[0]


SMALL = Bounds(
    samples=32, peak_bytes=10, kept_bytes=10, total_bytes=10, largest_bytes=10, work=10, nodes=1
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("largest_bytes", "3.1 GB of memory for a single tensor"),
        ("kept_bytes", "3.1 GB of memory for its constants"),
        ("peak_bytes", "3.1 GB of memory for what it keeps between its steps"),
        ("total_bytes", "3.1 GB of memory for all that its steps write"),
        ("work", "3.1e.09 operations for one batch, with batches of 32"),
    ],
)
def test_each_limit_refuses_in_plain_words(name, words):
    values = {field: getattr(SMALL, field) for field in SMALL.__slots__}
    large = Bounds(**{**values, name: 3_100_000_000})
    limits = Limits(**{**{n: 1 << 60 for n in LIMITS.__slots__}, name: 2_000_000_000})
    refuse_beyond(SMALL, limits, "the gradient graph")
    with pytest.raises(ProgramRefused, match=f"^.*the gradient graph would take {words}"):
        refuse_beyond(large, limits, "the gradient graph")


def test_beyond_the_limits_nobody_works_out_what_is_alive():
    chain = [node("Neg", "x", "a"), node("Neg", "a", "b"), node("Neg", "b", "out")]
    found = bounds(chain, samples=1 << 16, inputs=(port("x", "batch", 1 << 24),),
                   outputs=(port("out", "batch", 1 << 24),))  # fmt: skip
    assert found.peak_bytes == found.total_bytes == 3 << 42
    with pytest.raises(ProgramRefused, match=r"4\.4 TB of memory for a single tensor"):
        refuse_beyond(found, LIMITS, "it")


def test_sizes_in_words():
    assert [in_words(n) for n in (12, 1500, 2_000_000, 3_140_000_000)] == [
        "12 bytes", "1.5 kB", "2.0 MB", "3.1 GB",
    ]  # fmt: skip


def test_the_smallest_part_that_fits_is_taken_and_neighbours_grow_together():
    memory = Placement()
    large, wall, small, end = (memory.take(n * GRAIN) for n in (4, 1, 2, 1))
    memory.give(large)
    memory.give(small)
    assert memory.take(2 * GRAIN) == small
    assert memory.take(3 * GRAIN) == (large[0], 3 * GRAIN)
    assert memory.take(2 * GRAIN) == (8 * GRAIN, 2 * GRAIN)  # one grain is left, and useless
    assert memory.high == 10 * GRAIN
    memory.give((8 * GRAIN, 2 * GRAIN))
    memory.give(wall)
    assert memory.take(2 * GRAIN) == (3 * GRAIN, 2 * GRAIN)  # the grain that was left, and the wall
    assert end == (7 * GRAIN, GRAIN)


@pytest.mark.parametrize("seed", range(5))
def test_parts_never_overlap_and_all_come_back(seed):
    dice, memory, alive, most = random.Random(seed), Placement(), [], 0
    for _ in range(600):
        if alive and dice.random() < 0.48:
            memory.give(alive.pop(dice.randrange(len(alive))))
        else:
            alive.append(memory.take(dice.choice((0, 1, 300, 5000, 70_000)) * dice.randint(1, 9)))
        spans = sorted(part for part in alive if part[1])
        ends = [start + size for start, size in spans]
        assert all(end <= start for end, (start, _) in zip(ends, spans[1:], strict=False))
        most = max(most, sum(size for _, size in spans))
    assert most <= memory.high <= 2 * most
    high = memory.high
    for part in alive:
        memory.give(part)
    assert memory.take(high) == (0, high)
