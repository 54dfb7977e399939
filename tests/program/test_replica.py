"""The local loop against an obvious one, against PyTorch's optimisers, and bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.domain.work import LocalRule, LocalSteps, Unit, UnitId
from crowdgrad.errors import ComputeError, ProgramRefused
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import BLOCK, Vector
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.replica import Replicas, held_bytes, stepping

SIZES = {"first": 100, "middle": BLOCK, "last": 333}
"""The middle one lies in two blocks."""
SIZE = sum(SIZES.values())
RATE = 0.1
RANDOM = np.random.default_rng(5)
START = RANDOM.normal(size=SIZE).astype(np.float32)
START[::7] = 0.0  # where the sign is 0
CURVES = RANDOM.uniform(0.2, 2.0, (8, SIZE)).astype(np.float32)
CENTRES = RANDOM.normal(size=(8, SIZE)).astype(np.float32)


def spec(*frozen: str) -> ProgramSpec:
    tensors = (TensorSpec(name=n, dtype="float32", shape=(e,)) for n, e in SIZES.items())
    return ProgramSpec(
        parameters=tuple(tensors),
        buffers=(),
        inputs=(TensorSpec(name="x", dtype="float32", shape=()),),
        noise=(),
        metrics=(),
        outputs=1,
        work_per_sample=1.0,
        opset=20,
        frozen=frozen,
    )


def gradient(batch: Batch, weights_D: Vector, out_D: Vector) -> float:
    """Of ½ Σ curve·(w − centre)², each batch with curves and centres of its own."""
    np.subtract(weights_D, CENTRES[batch.number], out=out_D)
    np.multiply(out_D, CURVES[batch.number], out=out_D)
    return float(batch.number)


def obvious_gradient(number: int, weights: Any) -> Any:
    return CURVES[number].astype(weights.dtype) * (weights - CENTRES[number])


def work(first: int, count: int, *, push: int | None = None, **how: Any) -> UnitWork:
    """`how`: fields of UnitWork, others of LocalSteps."""
    outer = {k: how.pop(k) for k in ("fresh", "add", "lane", "rate") if k in how}
    unit = Unit(id=UnitId(first), kind="train", epoch=0, shard=0, first_batch=first, batches=count)
    return UnitWork(
        unit=unit,
        local=LocalSteps(batch_size=1, batches_per_unit=push or count, **how),
        seed=1,
        batches=[batch(number) for number in range(first, first + count)],
        **{"rate": RATE, **outer},
    )


def batch(number: int) -> Batch:
    return Batch(number=number, fields=(np.zeros(1, np.float32),))


def train(replicas: Replicas, unit: UnitWork, parameters: Vector = START) -> Vector:
    update = np.full(SIZE, np.nan, np.float32)
    replicas.train(unit, parameters, update, gradient)
    return update


def in_torch(
    optimiser: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
    batches: int,
    *,
    clip: float = 0.0,
    l1: float = 0.0,
    l2: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """The weights after so many batches, and the sum of what the optimiser was given."""
    w = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    steps, total = optimiser([w]), torch.zeros(SIZE, dtype=torch.float64)
    for number in range(batches):
        w.grad = torch.from_numpy(obvious_gradient(number, w.detach().numpy()))
        if clip:
            torch.nn.utils.clip_grad_norm_([w], clip)
        w.grad = w.grad + l1 * w.detach().sign()
        total += w.grad + l2 * w.detach()
        steps.step()
    return w.detach().numpy(), total.numpy()


def close(got: Vector, wanted: np.ndarray) -> bool:
    return float(np.abs(got - wanted).max()) < 2e-5 * float(np.abs(wanted).max())


RULES: dict[str, tuple[LocalRule, Callable[[list[torch.Tensor]], torch.optim.Optimizer]]] = {
    "sgd": (LocalRule(), lambda p: torch.optim.SGD(p, RATE)),
    "momentum": (
        LocalRule(name="momentum", settings={"momentum": 0.8}),
        lambda p: torch.optim.SGD(p, RATE, momentum=0.8),
    ),
    "adam": (
        LocalRule(name="adam", settings={"beta1": 0.8, "beta2": 0.95}),
        lambda p: torch.optim.Adam(p, RATE, betas=(0.8, 0.95)),
    ),
    "adamw": (
        LocalRule(name="adamw", settings={"decay": 0.3}),
        lambda p: torch.optim.AdamW(p, RATE, weight_decay=0.3),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_the_replica_steps_between_batches_as_torch_would(name: str) -> None:
    rule, optimiser = RULES[name]
    weights, gradients = in_torch(optimiser, 5)
    assert close(train(Replicas(spec()), work(0, 5, rule=rule)), gradients)
    returned = train(Replicas(spec()), work(0, 5, rule=rule, returns="weights"))
    assert close(returned, weights), "the last batch's step counts too"


def test_plain_sgd_is_the_same_to_the_last_bit() -> None:
    weights, total = START.copy(), np.zeros(SIZE, np.float32)
    for number in range(4):
        one = obvious_gradient(number, weights)
        total = one if number == 0 else total + one
        weights = weights - one * np.float32(RATE)
    assert np.array_equal(train(Replicas(spec()), work(0, 4)), total)
    assert np.array_equal(train(Replicas(spec()), work(0, 4, returns="weights")), weights)


@pytest.mark.parametrize(
    ("clip", "l1", "l2"),
    [(3.0, 0, 0), (1e6, 0, 0), (0, 0.2, 0), (0, 0, 0.3), (0, 0.2, 0.3), (3.0, 0.2, 0.3)],
    ids=["clip", "a clip that does nothing", "l1", "l2", "elastic net", "all"],
)
@pytest.mark.parametrize("batches", [1, 4])
def test_clip_and_penalties_are_torchs(clip: float, l1: float, l2: float, batches: int) -> None:
    how = {"clip": clip, "l1": l1, "l2": l2}
    weights, gradients = in_torch(
        lambda p: torch.optim.SGD(p, RATE, momentum=0.9, weight_decay=l2), batches, **how
    )
    rule = LocalRule(name="momentum")
    assert close(train(Replicas(spec()), work(0, batches, rule=rule, **how)), gradients)
    back = work(0, batches, rule=rule, returns="weights", **how)
    assert close(train(Replicas(spec()), back), weights)


def test_a_gradient_too_long_to_square_in_float32_is_clipped_all_the_same() -> None:
    long = replace(work(0, 1, clip=2.0), batches=[batch(1)])
    update = np.empty(SIZE, np.float32)

    def huge(batch: Batch, weights_D: Vector, out_D: Vector) -> float:
        out_D.fill(-1e30)
        return 0.0

    Replicas(spec()).train(long, START, update, huge)
    assert update == pytest.approx(np.full(SIZE, -2.0 / np.sqrt(SIZE)), rel=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_not_hidden_by_clipping(bad: float) -> None:
    def broken(batch: Batch, weights_D: Vector, out_D: Vector) -> float:
        out_D.fill(1.0)
        out_D[3] = bad
        return 0.0

    update = np.zeros(SIZE, np.float32)
    Replicas(spec()).train(work(0, 2, clip=1.0, l1=1.0, l2=1.0), START, update, broken)
    assert not np.isfinite(update[3])


@pytest.mark.parametrize("frozen", [("middle",), ("first", "last"), tuple(SIZES)])
def test_what_is_frozen_stays(frozen: tuple[str, ...]) -> None:
    still = np.repeat([name in frozen for name in SIZES], list(SIZES.values()))

    def partly(batch: Batch, weights_D: Vector, out_D: Vector) -> float:
        loss = gradient(batch, weights_D, out_D)
        out_D[still] = 0.0
        return loss

    replicas, update = Replicas(spec(*frozen)), np.empty(SIZE, np.float32)
    how = {"rule": RULES["adamw"][0], "l1": 0.1, "l2": 0.1}
    replicas.train(work(0, 3, **how), START, update, partly)
    assert not update[still].any()
    assert (update[~still] != 0).all()
    replicas.train(work(0, 3, returns="weights", **how), START, update, partly)
    assert np.array_equal(update[still], START[still])
    assert (update[~still] != START[~still]).all()


@pytest.mark.parametrize("name", RULES)
def test_a_chain_of_units_is_one_long_unit(name: str) -> None:
    rule = RULES[name][0]
    long = train(Replicas(spec()), work(0, 6, rule=rule))
    replicas = Replicas(spec())
    parts = [
        train(
            replicas,
            work(first, count, push=2, fetch_every=6, rule=rule, fresh=first == 0),
            START if first == 0 else np.full(SIZE, np.nan, np.float32),  # nothing came with it
        )
        for first, count in ((0, 2), (2, 1), (3, 2), (5, 1))
    ]
    assert close(sum(parts[1:], start=parts[0]), long)
    alone = train(Replicas(spec()), work(2, 1, rule=rule))
    assert not close(parts[1], alone), "the replica has moved on"


def test_a_fresh_start_forgets_replica_and_memory() -> None:
    replicas = Replicas(spec())
    chain = work(0, 2, push=2, fetch_every=8, rule=RULES["adam"][0])
    first = train(replicas, chain)
    assert not np.array_equal(train(replicas, replace(chain, fresh=False)), first)
    assert np.array_equal(train(replicas, chain), first)


def test_the_rate_is_the_units() -> None:
    slow, fast = (
        train(Replicas(spec()), work(0, 1, returns="weights", rate=rate)) for rate in (0.1, 0.2)
    )
    assert fast - START == pytest.approx(2 * (slow - START), abs=1e-5)


def test_stretches_add_up_each_from_the_parameters_fetched_for_it() -> None:
    replicas, newer = Replicas(spec()), START + np.float32(0.5)
    update = train(replicas, work(0, 2, push=4, fetch_every=2))
    replicas.train(work(2, 2, push=4, fetch_every=2, add=True), newer, update, gradient)
    alone = Replicas(spec())
    assert np.array_equal(update, _added(train(alone, work(0, 2)), alone, work(2, 2), newer)), (
        "batch after batch"
    )
    one = train(replicas, work(4, 1, push=4, fetch_every=1))
    replicas.train(work(5, 1, push=4, fetch_every=1, add=True), newer, one, gradient)
    assert np.array_equal(one, obvious_gradient(4, START) + obvious_gradient(5, newer))


def _added(update: Vector, alone: Replicas, unit: UnitWork, parameters: Vector) -> Vector:
    """The stretch's gradients, one by one, on top of what is there."""
    first = train(alone, replace(unit, batches=unit.batches[:1]), parameters)
    both = train(alone, unit, parameters)
    stepped = parameters - first * np.float32(RATE)
    second = obvious_gradient(unit.batches[1].number, stepped)
    assert np.array_equal(first + second, both)
    return (update + first) + second


def test_a_single_gradient_is_taken_in_place_and_nothing_is_kept() -> None:
    replicas, update = Replicas(spec()), np.empty(SIZE, np.float32)
    seen: list[tuple[Vector, Vector]] = []

    def watched(batch: Batch, weights_D: Vector, out_D: Vector) -> float:
        seen.append((weights_D, out_D))
        return gradient(batch, weights_D, out_D)

    assert replicas.train(work(3, 1, clip=1.0, l2=0.1), START, update, watched) == [3.0]
    assert seen[0][0] is START
    assert seen[0][1] is update
    assert not replicas._lanes
    assert replicas.train(work(3, 3), START, update, watched) == [3.0, 4.0, 5.0]
    assert all(weights is not START and out is not update for weights, out in seen[1:])
    replicas.train(work(3, 2), START, update, watched)
    assert {(id(weights), id(out)) for weights, out in seen[1:]} == {
        (id(seen[1][0]), id(seen[1][1]))
    }, "an engine is bound to where they lie"


def test_parameters_are_only_read() -> None:
    parameters = START.copy()
    parameters.flags.writeable = False
    for returns in ("gradients", "weights"):
        how = {"returns": returns, "clip": 0.1, "l1": 0.1, "l2": 0.1, "rule": RULES["adamw"][0]}
        for count in (1, 2):
            train(Replicas(spec()), work(0, count, **how), parameters)


def test_two_lanes_do_not_disturb_each_other() -> None:
    def chain(lane: int, link: int) -> UnitWork:
        first = 4 * lane + 2 * link
        how = {"push": 2, "fetch_every": 4, "rule": RULES["momentum"][0]}
        return work(first, 2, lane=lane, fresh=link == 0, **how)

    both, elsewhere = Replicas(spec()), START - 1
    mixed = {}
    for link in (0, 1):
        for lane, start in ((0, START), (1, elsewhere)):
            mixed[lane, link] = train(both, chain(lane, link), start)
    for lane, start in ((0, START), (1, elsewhere)):
        alone = Replicas(spec())
        for link in (0, 1):
            assert np.array_equal(train(alone, chain(lane, link), start), mixed[lane, link])


def test_whoever_has_no_replica_to_go_on_with_says_so() -> None:
    how: dict[str, Any] = {"push": 2, "fetch_every": 8}
    goes_on = work(2, 2, fresh=False, **how)
    replicas = Replicas(spec())
    with pytest.raises(ComputeError, match=r"Unit 2 .* lane 0 has no replica"):
        train(replicas, goes_on)  # nothing has happened yet
    train(replicas, work(0, 2))
    with pytest.raises(ComputeError, match="no replica"):
        train(replicas, goes_on)  # that unit was no link of a chain
    train(replicas, work(0, 2, **how))
    with pytest.raises(ComputeError, match="lane 1"):
        train(replicas, replace(goes_on, lane=1))
    train(replicas, goes_on)
    train(replicas, goes_on)
    with pytest.raises(ComputeError, match="no replica"):
        train(replicas, work(2, 2, fresh=False, rule=LocalRule(name="adam"), **how))


def test_a_unit_that_failed_halfway_is_nothing_to_go_on_from() -> None:
    replicas, chain = Replicas(spec()), work(0, 2, push=2, fetch_every=8)
    expected = train(replicas, chain)

    def fails(batch: Batch, weights_D: Vector, out_D: Vector) -> float:
        if batch.number == 1:
            raise RuntimeError("no")
        return gradient(batch, weights_D, out_D)

    with pytest.raises(RuntimeError, match="no"):
        replicas.train(replace(chain, fresh=False), START, np.empty_like(START), fails)
    with pytest.raises(ComputeError, match="no replica"):
        train(replicas, replace(chain, fresh=False))
    assert np.array_equal(train(replicas, chain), expected)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (LocalRule(name="hope"), "no rule 'hope'"),
        (LocalRule(name="momentum", settings={"momentum": 1.5}), "momentum 1.5"),
        (LocalRule(name="sgd", settings={"lr": 1.0}), "no setting 'lr'"),
        (LocalRule(name="dc_constant"), "for hosts"),
        (LocalRule(name="averaging"), "for hosts"),
    ],
)
def test_a_strangers_rule_that_makes_no_sense_is_refused(rule: LocalRule, why: str) -> None:
    with pytest.raises(ProgramRefused, match=why):
        stepping(rule)
    with pytest.raises(ProgramRefused, match=why):
        train(Replicas(spec()), work(0, 2, rule=rule))


def test_the_memory_replicas_take_is_known_beforehand() -> None:
    def local(**how: Any) -> LocalSteps:
        return LocalSteps(batch_size=1, overlap=1, **how)

    adam = LocalRule(name="adam")
    assert held_bytes(local(rule=adam), spec()) == 0
    assert held_bytes(local(batches_per_unit=2), spec()) == 4 * SIZE * 3
    assert held_bytes(local(returns="weights"), spec()) == 4 * SIZE * 3
    assert held_bytes(local(fetch_every=2, rule=adam), spec()) == 4 * SIZE * 7


# -- buffers ----------------------------------------------------------------------------------

WITH_BUFFERS = replace(
    spec(),
    buffers=(
        TensorSpec(name="mean", dtype="float32", shape=(2,)),
        TensorSpec(name="count", dtype="int64", shape=()),
    ),
    fixed=(TensorSpec(name="mask", dtype="bool", shape=(3,)),),
)
PLACES = StateLayout(WITH_BUFFERS)


def normalising(batch: Batch, state_S: Vector, out_U: Vector) -> float:
    """A gradient, and buffers as batch normalisation keeps them."""
    gradient(batch, state_S[:SIZE], out_U[:SIZE])
    (_, mean), (_, count) = PLACES.buffers(state_S)
    (_, new_mean), (_, new_count) = PLACES.buffers(out_U)
    new_mean[:], new_count[...] = 0.9 * mean + 0.1 * batch.number, count + 1
    return float(batch.number)


def state(count: int = 1 << 33) -> Vector:
    found = np.zeros(PLACES.words, np.float32)
    found[:SIZE] = START
    (_, mean), (_, counts) = PLACES.buffers(found)
    mean[:], counts[...] = 10.0, count
    return found


def returned(update_U: Vector) -> tuple[list[float], int]:
    (_, mean), (_, count) = PLACES.buffers(update_U)
    return mean.tolist(), int(count)


def expected_mean(start: float, *numbers: int) -> Any:
    for number in numbers:
        start = 0.9 * start + 0.1 * number
    return pytest.approx([start] * 2, rel=1e-5)


@pytest.mark.parametrize("returns", ["gradients", "weights"])
@pytest.mark.parametrize("count", [1, 3])
def test_buffers_go_from_batch_to_batch_and_counters_return_their_growth(
    returns: Any, count: int
) -> None:
    given, update_U = state(), np.full(PLACES.update_words, np.nan, np.float32)
    unit = work(1, count, push=count, returns=returns, rate=RATE)
    Replicas(WITH_BUFFERS).train(unit, given, update_U, normalising)
    assert returned(update_U) == (expected_mean(10.0, *range(1, 1 + count)), count)
    assert np.array_equal(given.view(np.uint8), state().view(np.uint8))
    plain = np.empty(SIZE, np.float32)
    Replicas(spec()).train(unit, START, plain, gradient)
    assert np.array_equal(update_U[:SIZE], plain)


def test_a_chain_carries_its_buffers_on() -> None:
    replicas, update_U = Replicas(WITH_BUFFERS), np.empty(PLACES.update_words, np.float32)
    how: dict[str, Any] = {"push": 2, "fetch_every": 4, "rate": RATE}
    replicas.train(work(0, 2, **how), state(), update_U, normalising)
    assert returned(update_U) == (expected_mean(10.0, 0, 1), 2)
    replicas.train(work(2, 2, fresh=False, **how), state(0), update_U, normalising)
    assert returned(update_U) == (expected_mean(10.0, 0, 1, 2, 3), 2)


def test_after_a_fetch_in_mid_unit_counts_add_up() -> None:
    replicas, update_U = Replicas(WITH_BUFFERS), np.empty(PLACES.update_words, np.float32)
    replicas.train(work(0, 2, push=4, rate=RATE), state(), update_U, normalising)
    fetched = state(count=7)
    replicas.train(work(2, 2, push=4, rate=RATE, add=True), fetched, update_U, normalising)
    assert returned(update_U) == (expected_mean(10.0, 2, 3), 4)
