"""Numbers that are not finite, not wanted or cannot be applied: what is gone back to, what stays.

What members do to one another is in `test_misfortunes.py`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from crowdgrad.domain.program import TensorSpec
from crowdgrad.domain.work import Version
from crowdgrad.errors import RecipeError
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.setbacks import MAX_TRIES
from crowdgrad.host.training import Training
from crowdgrad.numerics.rules import SGD, Adam, AdamW, Momentum
from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.numerics.vectors import Vector, all_finite
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.averaging import WeightAveraging
from crowdgrad.recipes.base import Penalty, Recipe
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous
from tests.host import small
from tests.host.people import (
    ONES,
    D,
    Person,
    asynchronous,
    evaluate,
    gradient_of,
    leased,
    run,
    stage,
    train_one,
    updated,
    weights,
)

NAN = np.full(D, np.nan, np.float32)


async def diverge(training: Training, own: Contribution, now: float) -> str:
    """Our own worker finds that the loss is not finite."""
    unit, base = leased(training, own, now)
    return await training.take(now, own, updated(unit, base, loss=math.nan), ONES.copy())


def with_own(
    recipe: Recipe | None = None, *, validation: bool = True
) -> tuple[Training, Contribution, Contribution]:
    data, _ = small.manifest(validation=validation, test=False)
    job = small.job(epochs=99, recipe=recipe, of=data)
    training = small.training(recipe=recipe, data=data, the_job=job)
    own = training.join(0.0, small.volunteer("own"), own=True)
    return training, own, training.join(0.0, small.volunteer("ada"), own=False)


async def as_far_as_they_come(*work: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Begin these one after the other; each runs until it has to wait."""
    tasks = []
    for coroutine in work:
        tasks.append(asyncio.create_task(coroutine))
        await asyncio.sleep(0)
    return tasks


# -- what a unit started from -----------------------------------------------------------------


@pytest.mark.parametrize("half", [False, True])
def test_a_version_leased_again_while_an_update_from_it_waits_is_kept(half: bool) -> None:
    async def scenario() -> None:
        recipe = DCASGD(
            lr=0.1, batch_size=10, mode="constant", strength=0.5, overlap=0, publish_every=3,
            half_backups=half,
        )  # fmt: skip
        training, (ada, ben, cy) = stage(recipe, 3)
        await ada.ask()
        await ben.ask()
        gate, at_once = asyncio.Event(), training.parameters._do

        async def when_open(work: Any) -> None:
            await gate.wait()
            await at_once(work)

        training.parameters._do = when_open  # type: ignore[method-assign]
        # Ada's is being applied; cy asks for the same version; ben's is done, but has to wait.
        tasks = await as_far_as_they_come(ada.push(), cy.ask(), ben.push())
        gate.set()
        await asyncio.gather(*tasks)
        assert cy.granted is not None
        assert cy.granted.base.count == 0
        before = await weights(training)
        g = gradient_of(cy.granted.unit.first_batch, np.zeros(D))
        assert await cy.push() == "accepted"
        expected = before - 0.1 * (g + 0.5 * g * g * before)
        np.testing.assert_allclose(await weights(training), expected, rtol=1e-5)
        assert not training.parameters._held, "let go of in the end"
        assert Version(incarnation=0, count=0) not in training.parameters._backups  # type: ignore[operator]

    run(scenario)


# -- what is left of what diverged ------------------------------------------------------------


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("diverged", [np.inf, 1e30])
def test_nothing_of_what_diverged_is_left_in_the_backups(half: bool, diverged: float) -> None:
    async def scenario() -> None:
        recipe = DCASGD(
            lr=0.1, batch_size=10, mode="constant", strength=0.5, overlap=0, half_backups=half
        )
        training, (ada, ben) = stage(recipe, 2)
        empty = training.parameters.backup_bytes
        own = Person(training, training.join(0.0, small.volunteer("own"), own=True))
        training.parameters._vector[:] = diverged
        await ada.ask()
        granted = await own.ask()
        assert granted is not None
        nan = updated(granted.unit, granted.base, samples=10, loss=math.nan)
        assert await training.take(1.0, own.account, nan, ONES.copy()) == "other_incarnation"
        assert training.state.setbacks == 1
        assert training.parameters.backup_bytes == empty
        for person in (ada, ben):
            await person.ask(2.0)
        assert ada.granted is not None
        first = gradient_of(ada.granted.unit.first_batch, np.zeros(D))
        assert await ada.push(2.0) == "accepted"
        np.testing.assert_allclose(await weights(training), -0.05 * first, rtol=1e-6)
        assert ben.granted is not None
        second = gradient_of(ben.granted.unit.first_batch, np.zeros(D))
        before = await weights(training)
        assert await ben.push(2.0) == "accepted"
        expected = before - 0.05 * (second + 0.5 * second * second * before)
        np.testing.assert_allclose(await weights(training), expected, rtol=1e-5)

    run(scenario)


@asynchronous
async def test_what_was_held_is_let_go_of_when_we_go_back() -> None:
    training, _ = stage(DCASGD(batch_size=10), 1)
    parameters = training.parameters
    saved = parameters.begin(np.zeros(small.SIZE, np.float32))
    async with parameters.published() as snapshot:
        await parameters.hold(snapshot)
    await parameters.go_back(saved, Version(incarnation=1, count=0))
    assert (snapshot.users, parameters.backup_bytes) == (0, 0)


# -- several at once --------------------------------------------------------------------------


@pytest.mark.parametrize("is_own", [False, True])
def test_who_is_judged_after_we_went_back_is_not_to_blame(is_own: bool) -> None:
    """The update was being looked at when another one made us go back."""

    async def scenario() -> None:
        training = small.training(the_job=small.job(epochs=9, overlap=1))
        own = training.join(0.0, small.volunteer("own"), own=True)
        ada = own if is_own else training.join(0.0, small.volunteer("ada"), own=False)
        unit, base = leased(training, ada)
        training.parameters._vector[:] = np.nan
        looked = asyncio.Event()

        async def finite(vector: Vector) -> bool:
            await looked.wait()
            return all_finite(vector)

        training.parameters.finite = finite  # type: ignore[method-assign,assignment]
        judged = asyncio.create_task(training.take(1.0, ada, updated(unit, base), NAN.copy()))
        await asyncio.sleep(0)
        assert await diverge(training, own, 1.0) == "other_incarnation"
        looked.set()
        assert await judged == "other_incarnation"
        assert training.state.setbacks == 1
        assert (ada.failures, ada.refused, ada.paused_until) == (0, {}, 0.0)

    run(scenario)


@pytest.mark.parametrize("is_own", [False, True])
def test_who_is_judged_while_we_go_back_is_not_to_blame(is_own: bool) -> None:
    """The parameters are just being put back."""

    async def scenario() -> None:
        training = small.training(the_job=small.job(epochs=9, overlap=1))
        own = training.join(0.0, small.volunteer("own"), own=True)
        ada = own if is_own else training.join(0.0, small.volunteer("ada"), own=False)
        unit, base = leased(training, ada)
        training.parameters._vector[:] = np.nan
        gate = asyncio.Event()

        async def when_open(work: Callable[[], None]) -> None:
            await gate.wait()
            work()

        training.parameters._do = when_open  # type: ignore[method-assign]
        going = asyncio.create_task(diverge(training, own, 1.0))
        await asyncio.sleep(0)
        judged = asyncio.create_task(training.take(1.0, ada, updated(unit, base), NAN.copy()))
        await asyncio.sleep(0)
        gate.set()
        assert set(await asyncio.gather(going, judged)) == {"other_incarnation"}
        assert training.state.setbacks == 1
        assert (ada.failures, ada.refused) == (0, {})

    run(scenario)


# -- which checkpoint is good -----------------------------------------------------------------


def spoil_parameters(training: Training) -> None:
    training.parameters._vector[0] = np.inf


def spoil_memory(training: Training) -> None:
    training.parameters._memory.vectors["squares"][0] = np.inf


@pytest.mark.parametrize("spoil", [spoil_parameters, spoil_memory])
@pytest.mark.parametrize("validation", [True, False])
def test_nobody_goes_back_to_infinite_numbers(
    spoil: Callable[[Training], None], validation: bool
) -> None:
    """They may hide behind a flat activation: loss and metric are finite all the same."""

    async def scenario() -> None:
        recipe = AsyncSGD(lr=0.5, batch_size=10, overlap=0, rule=Adam())
        training, own, ada = with_own(recipe, validation=validation)

        async def look(now: float) -> None:
            if validation:
                await evaluate(training, own, 0.5, now)
            else:
                await training.tick(now)

        await train_one(training, ada, 1.0)
        await look(10.0)
        good = await weights(training)
        await train_one(training, ada, 11.0)
        spoil(training)
        await look(20.0)
        await diverge(training, own, 21.0)
        assert (await weights(training)).tolist() == good.tolist()
        assert training.parameters.version == Version(incarnation=1, count=1)
        assert np.isfinite(training.parameters._memory.vectors["squares"]).all()

    run(scenario)


@asynchronous
async def test_nobody_goes_back_to_an_exploding_loss() -> None:
    training, own, ada = with_own()
    for now, loss in ((1.0, 1.0), (10.0, 1e9)):
        await train_one(training, ada, now)
        await evaluate(training, own, 0.5, now + 1.0, loss=loss)
    await diverge(training, own, 20.0)
    assert training.parameters.version == Version(incarnation=1, count=1)


@asynchronous
async def test_a_resumed_host_goes_back_to_where_it_resumed() -> None:
    training, own, ada = with_own()
    await diverge(training, own, 1.0)
    for _ in range(3):
        await train_one(training, ada, 2.0)
    kept = await training.checkpoint(0.0)
    there = await weights(training)

    later, own, ada = with_own()
    await later.resume(0.0, kept, incarnation=2)
    assert later.state.rate == 0.25
    await train_one(later, ada, 3.0)
    await diverge(later, own, 4.0)
    assert later.parameters.version == Version(incarnation=3, count=3)
    assert (await weights(later)).tolist() == there.tolist()
    assert later.book.done_units == 3
    assert (later.state.setbacks, later.state.rate) == (2, 0.125)


@asynchronous
async def test_a_newer_good_checkpoint_starts_the_count_anew() -> None:
    training, own, ada = with_own()
    for begin in (0.0, 100.0):
        await train_one(training, ada, begin + 1.0)
        await evaluate(training, own, 0.5, begin + 2.0)
        for _ in range(MAX_TRIES):
            await diverge(training, own, begin + 3.0)
            assert training.course.ending is None
    assert training.state.setbacks == 2 * MAX_TRIES
    await diverge(training, own, 104.0)
    assert training.course.ending is not None
    assert training.course.ending.state == "failed"


# -- what breaks ------------------------------------------------------------------------------


class Breaking:
    """A rule that cannot be applied."""

    name: ClassVar[str] = "breaking"
    sentence: ClassVar[str] = "It breaks."
    vectors: ClassVar[tuple[str, ...]] = ()
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    __dataclass_fields__: ClassVar[dict[str, Any]] = {}

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        raise ArithmeticError("the abacus broke")


@pytest.mark.parametrize("recipe", [AsyncSGD(batch_size=10, overlap=0), Synchronous(batch_size=10)])
def test_what_cannot_be_applied_ends_the_job(recipe: Recipe) -> None:
    async def scenario() -> None:
        training = small.training(rule=Breaking(), recipe=recipe)
        ada = training.join(0.0, small.volunteer("ada"), own=False)
        unit, base = leased(training, ada)
        with pytest.raises(ArithmeticError, match="abacus"):
            await training.take(1.0, ada, updated(unit, base), ONES.copy())
        assert training.course.phase == "over"
        assert training.course.ending is not None
        assert training.course.ending.state == "failed"
        assert "the abacus broke" in training.course.ending.reason
        assert (await training.result()).tolist() == [0.0] * D

    run(scenario)


# -- what recipes ask of the numbers ----------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "settings", "why"),
    [
        (WeightAveraging, {"schedule": Schedule(scale_with_volunteers=True)}, "volunteers"),
        (AsyncSGD, {"rule": AdamW(), "penalty": Penalty(decay=0.01)}, "decays by itself"),
        (Downpour, {"push_every": 1, "fetch_every": 8, "max_staleness": 7}, "pushes between"),
    ],
)
def test_what_contradicts_itself_is_refused(
    recipe: Any, settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(RecipeError, match=why):
        recipe(**settings)


def test_what_comes_close_to_that_is_not() -> None:
    assert Downpour(push_every=1, fetch_every=8, max_staleness=8).serving().max_staleness == 8
    assert AsyncSGD(rule=AdamW(decay=0.01)).serving().decay == 0.0
    assert AsyncSGD(rule=Adam(), penalty=Penalty(decay=0.01)).serving().decay == 0.01


def test_decay_by_more_than_everything_ends_at_zero() -> None:
    async def scenario() -> None:
        training, _ = stage(AsyncSGD(lr=1.0, batch_size=10, penalty=Penalty(decay=3.0)), 1)
        training.parameters._vector[:] = [1.0, -2.0, 0.5]
        await training.parameters.apply(
            np.zeros(D, np.float32), training.parameters.version, rate=1.0
        )
        assert (await weights(training)).tolist() == [0.0, 0.0, 0.0]

    run(scenario)


@pytest.mark.parametrize(
    "recipe",
    [
        AsyncSGD(lr=0.5, batch_size=10, rule=SGD()),
        AsyncSGD(lr=0.5, batch_size=10, rule=Momentum()),
        AsyncSGD(lr=0.5, batch_size=10, rule=Adam(), penalty=Penalty(decay=0.1)),
        WeightAveraging(batch_size=10, batches_per_unit=1),
        Synchronous(lr=0.5, batch_size=10),
    ],
)
def test_what_is_frozen_stays_whatever_an_update_holds_for_it(recipe: Recipe) -> None:
    async def scenario() -> None:
        data, _ = small.manifest()
        tensors = [
            TensorSpec(name=name, dtype="float32", shape=(1,)) for name in ("first", "w", "last")
        ]
        spec = replace(small.spec(), parameters=tuple(tensors), frozen=("first", "last"))
        training = Training(
            job=small.job(recipe=recipe), spec=spec, manifest=data, recipe=recipe,
            lease_s=small.LEASE_S, initial=np.array([1.5, 2.0, -3.5], np.float32),
        )  # fmt: skip
        ada = training.join(0.0, small.volunteer("ada"), own=False)
        for _ in range(3):
            unit, base = leased(training, ada)
            sevens = np.full(D, 7.0, np.float32)
            assert await training.take(1.0, ada, updated(unit, base), sevens) == "accepted"
        first, learned, last = await weights(training)
        assert (first, last) == (1.5, -3.5)
        assert learned != 2.0

    run(scenario)


@asynchronous
async def test_a_first_evaluation_that_was_not_finite_does_not_make_all_others_implausible() -> (
    None
):
    training, own, ada = with_own()
    await train_one(training, ada, 1.0)
    await evaluate(training, own, 0.5, 2.0, loss=math.nan)
    assert training.state.setbacks == 1
    for _ in range(2):
        await train_one(training, ada, 10.0)
    await evaluate(training, own, 0.5, 20.0)
    await diverge(training, own, 21.0)
    assert training.parameters.version == Version(incarnation=2, count=2)


@asynchronous
async def test_what_is_sent_for_frozen_parameters_spoils_no_checkpoint() -> None:
    recipe = AsyncSGD(lr=0.5, batch_size=10, overlap=0, rule=Adam())
    tensors = [TensorSpec(name=name, dtype="float32", shape=(1,)) for name in ("f", "v", "w")]
    data, _ = small.manifest()
    training = Training(
        job=small.job(recipe=recipe, epochs=99), manifest=data, recipe=recipe,
        lease_s=small.LEASE_S,
        spec=replace(small.spec(), parameters=tuple(tensors), frozen=("f",)),
        initial=np.zeros(D, np.float32),
    )  # fmt: skip
    own = training.join(0.0, small.volunteer("own"), own=True)
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    unit, base = leased(training, eve)
    huge = np.array([3e38, 1.0, 1.0], np.float32)
    assert await training.take(1.0, eve, updated(unit, base), huge) == "accepted"
    await evaluate(training, own, 0.5, 2.0)
    await diverge(training, own, 3.0)
    assert training.parameters.version == Version(incarnation=1, count=1)


def test_adamw_decays_to_zero_at_most() -> None:
    async def scenario() -> None:
        training, _ = stage(AsyncSGD(lr=0.5, batch_size=10, rule=AdamW(decay=10.0)), 1)
        training.parameters._vector[:] = 1.0
        nothing = np.zeros(D, np.float32)
        await training.parameters.apply(nothing, training.parameters.version, rate=0.5)
        assert (await weights(training)).tolist() == [0.0] * D

    run(scenario)


@asynchronous
async def test_a_failed_run_keeps_the_last_good_parameters_not_the_exploded_ones() -> None:
    data, _ = small.manifest(validation=False, test=False)
    training = small.training(data=data, the_job=small.job(epochs=9, of=data))
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    unit, base = leased(training, ada)
    huge = np.full(D, 1e30, np.float32)
    assert await training.take(1.0, ada, updated(unit, base), huge) == "accepted"
    training.fail("it diverged")
    assert (await training.result()).tolist() == [0.0] * D


@asynchronous
async def test_a_loss_that_explodes_in_finite_numbers_is_warned_of_until_it_is_over() -> None:
    training, own, _ = with_own()
    for now, loss, warned in ((2.0, 1.0, False), (9.0, 1e6, True), (16.0, 1.0, False)):
        await train_one(training, own, now)
        await evaluate(training, own, 0.5, now, loss=loss)
        assert ("smaller learning rate" in training.state.warning) == warned


@asynchronous
async def test_nothing_is_decided_while_it_goes_back() -> None:
    """The last unit is done while the disk takes its time to claim an incarnation."""
    claimed = asyncio.Event()

    async def claim() -> int:
        await claimed.wait()
        return 7

    training = small.training(the_job=small.job(epochs=1), claim=claim)
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    going_back = asyncio.create_task(training._setbacks.go_back("the loss is nan"))
    await asyncio.sleep(0)
    while not training.book.finished:
        await train_one(training, ada, 1.0)
    await training.tick(2.0)
    assert training.course.phase == "training"
    claimed.set()
    await going_back
    await training.tick(3.0)
    assert training.course.phase == "training"
    assert training.parameters.version == Version(incarnation=7, count=0)
    assert training.book.done_units == 0


@asynchronous
async def test_where_the_checkpoint_was_bad_already_the_best_is_the_refuge() -> None:
    bad = small.training()
    ada = bad.join(0.0, small.volunteer("ada"), own=False)
    await train_one(bad, ada, 0.0)
    kept = await bad.checkpoint(1.0)
    training = small.training()
    best = np.full(small.SIZE, 0.25, np.float32)
    await training.resume(2.0, kept, 1, best)
    for _ in range(MAX_TRIES):
        await training._setbacks.go_back("the loss is nan")
        assert (await weights(training)).tolist() == kept.saved.vector.tolist()
    await training._setbacks.go_back("the loss is nan")
    assert (await weights(training)).tolist() == best.tolist()
    assert training.course.ending is None
    for _ in range(MAX_TRIES):
        await training._setbacks.go_back("the loss is nan")
    assert training.course.ending is not None
    assert training.course.ending.state == "failed"
