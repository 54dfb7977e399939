"""Buffers on the host: merged beside the rule, published with the parameters, gone back to."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.domain.work import Version
from crowdgrad.host.parameters import Parameters
from crowdgrad.host.training import Training
from crowdgrad.numerics.buffers import MAX_INCREMENT
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import Vector
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.synchronous import Synchronous
from tests.host import small
from tests.host.people import asynchronous, leased, updated

SPEC: ProgramSpec = replace(
    small.spec(),
    buffers=(
        TensorSpec(name="mean", dtype="float32", shape=(2,)),
        TensorSpec(name="count", dtype="int64", shape=()),
    ),
    fixed=(TensorSpec(name="mask", dtype="bool", shape=(3,)),),
)
LAYOUT = StateLayout(SPEC)
START = LAYOUT.pack(
    {
        "w": np.zeros(small.SIZE, np.float32),
        "mean": np.zeros(2, np.float32),
        "count": np.array(1 << 40),
        "mask": np.array([True, False, True]),
    }
)


def update(gradient: float = 1.0, mean: float = 2.0, count: int = 1) -> Vector:
    sent = np.zeros(LAYOUT.update_words, np.float32)
    sent[: LAYOUT.size] = gradient
    (_, means), (_, counts) = LAYOUT.buffers(sent)
    means[:], counts[...] = mean, count
    return sent


def found(state: Vector) -> tuple[list[float], list[float], int, list[bool]]:
    w, mean, count, mask = (view.tolist() for _, view in LAYOUT.tensors(state))
    return w, mean, count, mask


def parameters(recipe: AsyncSGD | DCASGD | Synchronous) -> Parameters:
    return Parameters(START.copy(), recipe.server_rule(), small_version(0), recipe.serving(), SPEC)


def small_version(count: int) -> Version:
    return Version(incarnation=0, count=count)


@asynchronous
async def test_the_rule_changes_parameters_and_buffers_are_taken_over() -> None:
    ours = parameters(AsyncSGD(lr=0.5))
    assert (ours.state_bytes, ours.update_bytes) == (4 * len(START), 4 * len(update()))
    await ours.apply(update(), small_version(0), rate=0.5)
    state, _ = await ours.copy()
    assert found(state) == ([-0.5] * 3, [2.0, 2.0], (1 << 40) + 1, [True, False, True])


@asynchronous
async def test_stale_buffers_are_averaged_and_stale_counts_counted() -> None:
    ours = parameters(AsyncSGD(lr=0.5))
    await ours.apply(update(mean=4.0), small_version(0), rate=0.5)
    await ours.apply(update(mean=0.0, count=5), small_version(0), rate=0.5)
    state, _ = await ours.copy()
    assert found(state)[1:3] == ([2.0, 2.0], (1 << 40) + 6)


@asynchronous
async def test_a_round_s_buffers_are_the_mean_by_samples() -> None:
    ours = parameters(Synchronous(lr=0.5))
    base = small_version(0)
    await ours.merge(update(gradient=1.0, mean=1.0), base, samples=10, batches=1)
    await ours.merge(update(gradient=4.0, mean=4.0), base, samples=20, batches=1)
    await ours.apply_merged(rate=1.0)
    state, _ = await ours.copy()
    w, mean, count, _ = found(state)
    assert (w, mean, count) == (pytest.approx([-3.0] * 3), [3.0, 3.0], (1 << 40) + 2)


@asynchronous
async def test_a_round_of_large_buffers_does_not_overflow() -> None:
    ours = parameters(Synchronous(lr=0.5))
    for samples in (10, 20, 5):
        await ours.merge(update(mean=3e38), small_version(0), samples=samples, batches=1)
    await ours.apply_merged(rate=1.0)
    state, _ = await ours.copy()
    assert found(state)[1] == [np.float32(3e38)] * 2


@asynchronous
async def test_a_rule_that_needs_its_base_remembers_parameters_only() -> None:
    ours = parameters(DCASGD(lr=0.5))
    async with ours.published() as snapshot:
        await ours.hold(snapshot)
    await ours.apply(update(), small_version(0), rate=0.5)
    await ours.apply(update(), small_version(0), rate=0.5)
    state, version = await ours.copy()
    assert version.count == 2
    assert np.isfinite(state[: LAYOUT.size]).all()


@asynchronous
async def test_what_is_published_and_gone_back_to_has_buffers() -> None:
    ours = parameters(AsyncSGD(lr=0.5))
    saved, _ = await ours.save(lambda: None)
    await ours.apply(update(), small_version(0), rate=0.5)
    async with ours.published() as snapshot:
        assert len(snapshot.payload) == ours.state_bytes
        assert found(snapshot.vector)[1] == [2.0, 2.0]
    await ours.go_back(saved, Version(incarnation=1, count=0))
    state, _ = await ours.copy()
    assert np.array_equal(state.view(np.uint8), START.view(np.uint8))
    assert await ours.finite(saved.vector)  # its counter is larger than any unit's


def training() -> Training:
    recipe = AsyncSGD(lr=0.5, batch_size=10, overlap=0)
    return Training(
        job=small.job(recipe=recipe),
        spec=SPEC,
        manifest=small.manifest()[0],
        initial=START.copy(),
        recipe=recipe,
        lease_s=20.0,
    )


@pytest.mark.parametrize(
    "bad", [update(mean=math.nan), update(mean=math.inf), update(count=MAX_INCREMENT + 1)]
)
def test_a_stranger_s_odd_buffers_are_refused(bad: Vector) -> None:
    @asynchronous
    async def refused() -> None:
        ours = training()
        stranger = ours.join(0.0, small.volunteer("stranger"), own=False)
        unit, base = leased(ours, stranger)
        assert await ours.take(1.0, stranger, updated(unit, base), bad.copy()) == "not_finite"
        unit, base = leased(ours, stranger, 60.0)
        assert await ours.take(61.0, stranger, updated(unit, base), update()) == "accepted"

    refused()


@asynchronous
async def test_words_that_are_no_numbers_do_not_spoil_the_result() -> None:
    """A mask of infinities, and a counter whose bytes would be a nan as float32."""
    mask = TensorSpec(name="mask", dtype="float32", shape=(2,))
    spec = replace(SPEC, fixed=(mask,))
    start = StateLayout(spec).pack(
        {
            "w": np.zeros(small.SIZE, np.float32),
            "mean": np.zeros(2, np.float32),
            "count": np.array(0x7FC00000),
            "mask": np.array([-math.inf, 0.0], np.float32),
        }
    )
    recipe = AsyncSGD(lr=0.5, batch_size=10, overlap=0)
    data, _ = small.manifest(validation=False, test=False)
    ours = Training(
        job=small.job(recipe=recipe, of=data), spec=spec, manifest=data, initial=start,
        recipe=recipe, lease_s=20.0,
    )  # fmt: skip
    ada = ours.join(0.0, small.volunteer("ada"), own=False)
    unit, base = leased(ours, ada)
    assert await ours.take(1.0, ada, updated(unit, base), update()) == "accepted"
    ours.stop("enough")
    result = await ours.result()
    assert result[: LAYOUT.size].any(), "the last parameters, not the first"
    ours.parameters._vector[0] = math.nan
    assert not (await ours.result())[: LAYOUT.size].any()
