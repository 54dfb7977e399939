"""Every recipe trains: real volunteers, real sockets, real data."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

import crowdgrad as cg
from crowdgrad.capture.models import mnist_mlp
from crowdgrad.domain.job import StoppingRule
from crowdgrad.host.job import JobPlan, Prepared, prepare
from crowdgrad.host.options import Outcome
from crowdgrad.recipes import RECIPES
from crowdgrad.recipes.base import Recipe, hyperparameters
from crowdgrad.settings import Settings
from tests.integration.conftest import Stage, job_with

VOLUNTEERS = 4


def with_recipe(prepared: Prepared, recipe: Recipe, stop: StoppingRule) -> Prepared:
    """The same program and data, learned from in another way."""
    changed = job_with(
        prepared,
        recipe=recipe.name,
        hyperparameters=hyperparameters(recipe),
        local=recipe.local(),
        stop=stop,
    )
    return replace(changed, recipe=recipe)


def trained(prepared: Prepared, settings: Settings, folder: Path, helpers: int) -> Outcome:
    async def scenario() -> Outcome:
        async with Stage(prepared, settings, folder, helpers=helpers) as stage:
            return await stage.outcome()

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(
            cg.Downpour(
                lr=0.05, batch_size=50, push_every=2, fetch_every=4, rule=cg.rules.Adagrad()
            ),
            marks=pytest.mark.slow,
        ),
        cg.DCASGD(lr=0.05, batch_size=50, half_backups=True, publish_every=2),
        cg.Synchronous(lr=0.2, batch_size=50, quorum=0.75, grace_s=0.01),
    ],
    ids=lambda recipe: recipe.name,
)
def test_it_learns_the_digits(
    recipe: Recipe, digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    job = with_recipe(digits, recipe, StoppingRule(epochs=400, target=0.96, minutes=0.5))
    job = replace(job, start="all", minimum=3)  # a busy machine starts them one after the other
    outcome = trained(job, settings, tmp_path, helpers=3)
    status = outcome.status
    assert (status.state, status.setbacks) == ("finished", 0), status.reason
    assert status.test is not None
    assert status.test.metrics["accuracy"] >= 0.9
    assert sum(member.units > 0 for member in status.members) == 4, "everybody helped"
    assert sum(member.refused for member in status.members) == 0


def test_fetches_in_the_middle_of_a_unit(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    """Downpour that fetches twice as often as it pushes."""
    recipe = cg.Downpour(lr=0.05, batch_size=50, push_every=4, fetch_every=2)
    job = with_recipe(digits, recipe, StoppingRule(epochs=100, target=0.95, minutes=0.5))
    outcome = trained(job, settings, tmp_path, helpers=1)
    assert outcome.status.test is not None
    assert outcome.status.test.metrics["accuracy"] >= 0.9
    assert outcome.status.refused == 0


def test_neighbours_overlap_when_data_is_assigned_by_segments(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    """Three workers, two segments each of four: the epoch is half as long again."""
    recipe = cg.AsyncSGD(lr=0.05, batch_size=50, assignment="segments")
    job = replace(with_recipe(digits, recipe, StoppingRule(epochs=20)), minimum=2, start="all")
    outcome = trained(job, settings, tmp_path, helpers=2)
    records = job.manifest.records("train")
    assert outcome.status.test is not None
    assert outcome.status.test.metrics["accuracy"] >= 0.9
    assert outcome.status.samples == pytest.approx(20 * records * 1.5, rel=0.05)
    shares = [member.samples / outcome.status.samples for member in outcome.status.members]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.02)


MNIST_RECIPES: dict[str, Recipe] = {
    "crowd": cg.Crowd(lr=0.2),
    "async_sgd": cg.AsyncSGD(lr=0.05),
    "downpour": cg.Downpour(push_every=2, fetch_every=4, warm_start_batches=100),
    "dc_asgd": cg.DCASGD(lr=0.05),
    "averaging": cg.WeightAveraging(lr=0.2),
    "synchronous": cg.Synchronous(lr=0.3),
}


@pytest.fixture(scope="module")
def mnist() -> Prepared:
    return prepare(JobPlan(task=mnist_mlp(), data=cg.load_data("mnist")))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_reaches_97_percent_on_mnist(
    name: str, mnist: Prepared, settings: Settings, tmp_path: Path
) -> None:
    stop = StoppingRule(epochs=200, target=0.974, minutes=5)
    job = with_recipe(mnist, MNIST_RECIPES[name], stop)
    outcome = trained(job, settings, tmp_path, helpers=VOLUNTEERS)
    status = outcome.status
    assert status.test is not None
    assert status.test.metrics["accuracy"] >= 0.97
    assert status.setbacks == 0
    assert sum(member.units > 0 for member in status.members) == VOLUNTEERS + 1
