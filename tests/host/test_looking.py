"""Looks in a training: when, at which records, what is kept, and what ends them."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest

from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.sharding import cut
from crowdgrad.domain.data import Manifest
from crowdgrad.domain.job import StoppingRule
from crowdgrad.domain.program import TensorSpec
from crowdgrad.domain.work import MAX_METRICS, LocalSteps, Unit, Update
from crowdgrad.host.looking import RUN, SAMPLES, Look, Looking, draw, labels_of
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.training import Training
from crowdgrad.planner.batches import EpochPlans
from tests.host import small

LOCAL = LocalSteps(batch_size=10)


def big(records: int, shard_bytes: int = 1 << 20) -> Manifest:
    x = np.zeros((records, 4), np.uint8)
    return cut(from_arrays(x), seed=0, batch_size=10, shard_bytes=shard_bytes)[0]


def looking(manifest: Manifest | None = None, seed: int = 7, fixed: int = 0) -> Looking:
    spec = replace(small.spec(), fixed_batch=fixed)
    return Looking(manifest or small.manifest()[0], spec, LOCAL, seed=seed, classes=2)


def at_work(epochs: int = 4) -> tuple[Training, Contribution]:
    the_job = replace(small.job(), stop=StoppingRule(epochs=epochs))
    training = Training(
        job=the_job,
        spec=small.spec(),
        manifest=small.manifest()[0],
        initial=np.zeros(small.SIZE, np.float32),
        recipe=small.AsyncSGD(lr=0.5, batch_size=10, overlap=0),
        lease_s=small.LEASE_S,
        looking=looking(),
    )
    return training, training.join(0.0, small.volunteer("own"), own=True)


def losses(unit: Unit, high: int = 3) -> dict[str, float]:
    numbers = range(unit.first_batch, unit.first_batch + unit.batches)
    return {str(n): 5.0 if n == high else 0.1 for n in numbers}


async def answer(training: Training, account: Contribution, now: float) -> str | None:
    """One unit, done as well as can be: its kind, or None where there is none."""
    granted, _ = training.lease(now, account, (), training.parameters.version)
    if granted is None:
        return None
    unit, course = granted.unit, training.course
    metrics: dict[str, float] = {}
    if unit.kind == "look":
        metrics = losses(unit)
    elif unit.kind != "train":
        metrics = {"accuracy": 0.5}
    round_ = course.evaluation.round
    book = training.book if unit.kind == "train" or round_ is None else round_.book
    update = Update(
        unit=unit.id, base=granted.base, samples=book.samples(unit), loss=0.1, metrics=metrics,
        compute_s=0.01,
    )  # fmt: skip
    vector = np.ones(small.SIZE, np.float32) if unit.kind == "train" else None
    assert await training.take(now, account, update, vector) == "accepted"
    return unit.kind


async def to_the_end(training: Training, account: Contribution, now: float = 0.0) -> list[str]:
    kinds = []
    while training.course.phase != "over":
        now += 1.0
        await training.tick(now)
        if (kind := await answer(training, account, now)) is not None:
            kinds.append(kind)
        assert now < 1000
    return kinds


def test_a_sample_is_drawn_by_seed_and_never_grows() -> None:
    plan = EpochPlans.of_kind(big(5000, 4000), "look", LOCAL, small.spec()).at(0)
    runs = draw(plan, 1)
    assert runs == draw(plan, 1) != draw(plan, 2)
    numbers = [n for first, count in runs for n in range(first, first + count)]
    assert len(numbers) == len(set(numbers)) == SAMPLES
    for first, count in runs:
        assert {plan.shard_of(n) for n in (first, first + count - 1)} == {plan.shard_of(first)}
        assert count <= RUN <= MAX_METRICS


def test_all_there_is_where_that_is_little() -> None:
    assert sorted(looking().runs) == [(0, 25), (25, 20)]
    assert [piece.batches for piece in looking().pieces()] == [25, 20]


def test_a_batch_of_a_look_is_one_record_as_it_lies() -> None:
    plan = looking().plans.at(0)
    assert [plan.rows(n) for n in (0, 24, 25, 44)] == [(0, 1), (24, 25), (0, 1), (19, 20)]
    assert [plan.shard_of(n) for n in (0, 24, 25, 44)] == [0, 0, 1, 1]


def test_looks_are_spread_over_the_run_and_bounded_by_what_they_cost() -> None:
    looks = looking()
    assert not looks.due(0.0, 0.0, 0.0)
    assert looks.due(1.0, 1.0, 0.13)  # by progress
    assert looks.due(3.0, 3.0, 0.0)  # or by time
    looks.add(3.0, {}, at_s=3.0, progress=0.13, cost_s=0.1, last=False)
    assert not looks.due(4.0, 4.0, 0.5)  # a fiftieth of the time
    assert looks.due(8.0, 8.0, 0.25)
    assert not looks.due(8.5, 5.0, 0.2)
    looks.add(9.0, {}, at_s=9.0, progress=0.3, cost_s=0.0, last=True)
    assert not looks.due(99.0, 99.0, 1.0)


def test_a_run_is_looked_at_on_its_way_and_at_its_end_before_the_test() -> None:
    training, account = at_work()
    kinds = asyncio.run(to_the_end(training, account))
    assert kinds[-1] == "test"
    assert kinds[-3:-1] == ["look", "look"]  # two shards, with the best parameters
    assert kinds.count("look") >= 6
    assert kinds.count("train") == 4 * small.TRAIN_BATCHES
    assert training.course.looking is not None
    found = training.course.looking.noise
    assert (found.share, found.samples, found.looks) == (1 / 45, 45, 3)
    assert [(s.shard, s.row, s.loss) for s in found.suspects] == [(0, 3, 5.0)]


def test_a_look_goes_to_nobody_but_worker_zero() -> None:
    async def run() -> set[str]:
        training, account = at_work()
        guest = training.join(0.0, small.volunteer("guest"), own=False)
        kinds = set()
        for now in range(1, 200):
            await training.tick(float(now))
            granted, _ = training.lease(float(now), guest, (), training.parameters.version)
            if granted is not None:
                kinds.add(granted.unit.kind)
                training.give_back(float(now), guest, granted.unit.id, "no")
            await answer(training, account, float(now))
        return kinds

    assert asyncio.run(run()) == {"train"}


def test_a_record_that_cannot_be_looked_at_ends_the_looks_and_nothing_else() -> None:
    async def run() -> Training:
        training, account = at_work()
        now = 0.0
        while training.course.phase != "over":
            now += 1.0
            await training.tick(now)
            round_ = training.course.evaluation.round
            if round_ is not None and round_.kind == "look":
                granted, _ = training.lease(now, account, (), training.parameters.version)
                assert granted is not None
                training.give_back(now, account, granted.unit.id, "it is too small")
                continue
            await answer(training, account, now)
            assert now < 1000
        return training

    training = asyncio.run(run())
    assert training.course.tested is not None
    assert training.course.looking is not None
    noise = training.course.looking.noise
    assert (noise.share, noise.looks) == (None, 0)
    assert "could not be computed: it is too small" in noise.reason


def test_a_program_of_one_batch_size_is_not_looked_at() -> None:
    looks = looking(fixed=10)
    assert not looks.due(99.0, 99.0, 1.0)
    assert "batches of 10 alone" in looks.noise.reason
    assert looking(fixed=1).due(99.0, 99.0, 1.0)


def test_looks_go_on_where_another_host_stopped() -> None:
    async def run() -> tuple[Training, Training]:
        first, account = at_work(epochs=6)
        now = 0.0
        while first.course.looking is None or len(first.course.looking.looks) < 2:
            now += 1.0
            await first.tick(now)
            await answer(first, account, now)
        kept = await first.checkpoint(now)
        second, again = at_work(epochs=6)
        await second.resume(now, kept, 5, None)
        assert second.course.looking is not None
        assert second.course.looking.looks == first.course.looking.looks
        assert second.course.looking.noise == first.course.looking.noise
        await to_the_end(second, again, now)
        return first, second

    _, second = asyncio.run(run())
    assert second.course.looking is not None
    assert second.course.looking.noise.looks == 3


WRONG = {
    "too many": {"runs": ((0, 26), (25, 19))},
    "beyond the data": {"runs": ((30, 25), (0, 20))},
    "fewer losses": {"losses": (0.1,) * 44},
    "negative": {"runs": ((-25, 25), (25, 20))},
    "no time": {"at_s": math.nan},
    "no progress": {"progress": math.inf},
    "nothing": {"runs": (), "losses": ()},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_looks_of_other_data_are_forgotten(wrong: dict[str, object]) -> None:
    good = Look(runs=((0, 25), (25, 20)), losses=(0.1,) * 45, at_s=1.0, progress=0.5)
    looks = looking()
    looks.restore((good,))
    assert looks.noise.samples == 45
    looks = looking()
    looks.restore((replace(good, **wrong),))  # type: ignore[arg-type]
    assert (looks.looks, looks.noise.samples) == ([], 0)
    assert sorted(looks.runs) == [(0, 25), (25, 20)]


def test_labels_are_read_from_the_data_with_the_names_of_their_classes() -> None:
    x, y = np.arange(40, dtype=np.uint8), np.arange(40, dtype=np.int64) % 3
    data = from_arrays(x, y, classes=("cat", "dog", "2"))
    manifest, chunks = cut(data, seed=1, batch_size=4, shard_bytes=180)
    inputs = (
        TensorSpec(name="x", dtype="uint8", shape=()),
        TensorSpec(name="y", dtype="int64", shape=()),
    )
    spec = replace(small.spec(), inputs=inputs)
    label = labels_of(manifest, chunks, spec)
    found = {label(shard, row) for shard in (0, 1) for row in range(8)}
    assert found == {"0 (cat)", "1 (dog)", "2"}
    weights = TensorSpec(name="weights", dtype="float32", shape=())
    weighted = replace(spec, inputs=(*inputs, weights), weighted=True)
    assert labels_of(manifest, chunks, weighted)(1, 2) == label(1, 2)
    assert labels_of(big(20), {}, small.spec())(0, 0) == ""  # four numbers: no label
