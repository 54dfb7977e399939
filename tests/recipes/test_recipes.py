"""Recipes from job files: what they become, and what is refused by name."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from crowdgrad.domain.work import LocalSteps
from crowdgrad.errors import RecipeError
from crowdgrad.recipes import DEFAULT, RECIPES, from_table
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import hyperparameters


def test_a_table_becomes_a_recipe() -> None:
    assert from_table("async_sgd", {}) == AsyncSGD()
    recipe = from_table("async_sgd", {"lr": 1, "batch_size": 32, "overlap": 0})
    assert recipe == AsyncSGD(lr=1.0, batch_size=32, overlap=0)
    assert recipe.local() == LocalSteps(
        batch_size=32, learning_rate=1.0, batches_per_unit=1, overlap=0
    )
    assert hyperparameters(recipe) == {
        "lr": 1.0, "batch_size": 32, "batches_per_unit": 1, "overlap": 0
    }  # fmt: skip
    assert from_table("async_sgd", hyperparameters(recipe)) == recipe


def test_its_rule_steps_with_its_rate() -> None:
    recipe = AsyncSGD(lr=0.5)
    parameters = np.ones(3, np.float32)
    recipe.rule().apply(parameters, np.ones(3, np.float32), staleness=0)
    assert parameters.tolist() == [0.5] * 3
    assert recipe.rule() is not recipe.rule()


@pytest.mark.parametrize(("name", "kind"), RECIPES.items())
def test_every_recipe_says_what_it_is(name: str, kind: type[AsyncSGD]) -> None:
    assert kind.name == name
    assert kind.sentence.endswith(".")
    assert inspect.getmodule(kind).__name__ == f"crowdgrad.recipes.{name}"  # type: ignore[union-attr]
    assert kind().local()
    assert DEFAULT in RECIPES


def test_a_recipe_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(RecipeError, match="no recipe 'magic'") as refused:
        from_table("magic", {})
    assert "async_sgd" in refused.value.advice


def test_a_field_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(RecipeError, match="no field 'learning_rate', 'momentum'") as refused:
        from_table("async_sgd", {"momentum": 0.9, "learning_rate": 0.1})
    assert "lr" in refused.value.advice


@pytest.mark.parametrize(
    "table",
    [
        {"lr": "fast"},
        {"lr": True},
        {"lr": -0.1},
        {"lr": 0},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"lr": 10**400},
        {"lr": [0.1]},
        {"batch_size": True},
        {"batch_size": 32.0},
        {"batch_size": 0},
        {"batch_size": 1 << 30},
        {"batch_size": None},
        {"batches_per_unit": 0},
        {"overlap": -1},
        {"overlap": 9},
    ],
)
def test_a_hyperparameter_that_makes_no_sense(table: dict[str, object]) -> None:
    with pytest.raises(RecipeError) as refused:
        from_table("async_sgd", table)
    assert (refused.value.code, bool(refused.value.advice)) == ("CG102", True)
