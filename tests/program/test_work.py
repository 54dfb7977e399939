"""What a node is reckoned to cost, in operations."""

from __future__ import annotations

import pytest

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.shapes import infer, work
from tests.program import random_calls
from tests.program.random_calls import MAKERS, Feed, Use, listed
from tests.program.small_graphs import (
    IMAGE,
    SPREAD,
    F,
    of,
)

SEEDS = 12


def cost(use: Use, samples: int = 1) -> int:
    made = random_calls.graph(use)
    return work(made.nodes[0], infer(made), samples)


def test_products_count_multiplications_and_additions():
    assert cost(of("MatMul", F, Feed(1, (4, 5))), 7) == 2 * 7 * 3 * 4 * 5
    assert cost(of("Gemm", Feed(1, (4, "batch")), Feed(1, (4, 5)), transA=1), 7) == 2 * 7 * 4 * 5


def test_convolutions_count_what_each_place_takes():
    grouped = of("Conv", IMAGE, Feed(1, (6, 2, 3, 3)), group=2)
    assert cost(grouped, 5) == 2 * (5 * 6 * 6 * 6) * (2 * 3 * 3)
    spread = of("ConvTranspose", IMAGE, SPREAD, strides=(2, 2))
    assert cost(spread, 5) == 2 * (5 * 4 * 8 * 8) * (2 * 3 * 3)


def test_the_rest_counts_its_numbers():
    assert cost(of("Add", F, Feed(1, (1,))), 7) == 7 * 3 * 4
    assert cost(of("ReduceSum", F), 7) == 7 * 3 * 4
    assert cost(of("MaxPool", IMAGE, kernel_shape=(2, 2), strides=(2, 2))) == 4 * 4 * 4 * 4
    assert cost(of("Exp", F)) > cost(of("Relu", F)) > cost(of("Shape", F)) == 0
    assert cost(of("TopK", F, listed(1), outputs=2)) > 2 * 12


@pytest.mark.parametrize("op", sorted(MAKERS))
def test_more_samples_are_never_less_work(op: str):
    for seed in range(SEEDS):
        made = random_calls.graph(random_calls.make(op, seed))
        try:
            shapes = infer(made)
        except ProgramRefused:
            continue
        costs = [work(made.nodes[0], shapes, samples) for samples in (1, 2, 64)]
        assert costs == sorted(costs)
