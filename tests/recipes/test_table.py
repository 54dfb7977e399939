"""From a job file's table to a recipe: nested tables, rules, types, and mistakes named."""

from __future__ import annotations

import contextlib
import tomllib
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.matching import check_hyperparameters
from crowdgrad.errors import RecipeError
from crowdgrad.numerics.rules import OPTIMISERS, RULES, SGD, Adam, Momentum
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.recipes import RECIPES, from_table
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Growth, Penalty, Recipe, hyperparameters
from crowdgrad.recipes.crowd import Crowd
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.table import as_table, convert

PLAIN = {int: "a whole number", float: "a number", bool: "true or false"}


def again(recipe: Recipe) -> Recipe:
    return from_table(recipe.name, as_table(recipe))


# -- what becomes a recipe --------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_an_empty_table_is_the_default(name: str) -> None:
    assert from_table(name, {}) == RECIPES[name]()
    assert again(RECIPES[name]()) == RECIPES[name]()


def test_everything_a_job_file_may_say() -> None:
    table = tomllib.loads("""
        lr = 1
        batch_size = 32
        push_every = 2
        fetch_every = 4
        rule = {name = "adam", beta2 = 0.99, eps = 1}
        local_rule = "momentum"
        assignment = "segments"
        growth = {factor = 2, every = 3, largest = 256}

        [schedule]
        shape = "cosine"
        warmup_epochs = 1
        scale_with_volunteers = true

        [penalty]
        l2 = 1e-4
        clip = 5
    """)
    assert from_table("downpour", table) == Downpour(
        lr=1.0,
        batch_size=32,
        push_every=2,
        fetch_every=4,
        rule=Adam(beta2=0.99, eps=1.0),
        local_rule=Momentum(),
        assignment="segments",
        growth=Growth(factor=2.0, every=3, largest=256),
        schedule=Schedule(shape="cosine", warmup_epochs=1.0, scale_with_volunteers=True),
        penalty=Penalty(l2=1e-4, clip=5.0),
    )


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_rule_is_a_name_or_a_table_with_one(name: str) -> None:
    assert from_table("crowd", {"rule": name}) == Crowd(rule=RULES[name]())
    assert from_table("crowd", {"rule": {"name": name}}) == Crowd(rule=RULES[name]())
    for field in fields(RULES[name]):
        recipe = from_table("crowd", {"rule": {"name": name, field.name: 0.5}})
        assert isinstance(recipe, Crowd)
        assert getattr(recipe.rule, field.name) == 0.5


def test_whole_numbers_do_where_numbers_are_wanted() -> None:
    recipe = from_table("dc_asgd", {"lr": 1, "patience": 3, "penalty": {"clip": 2}})
    assert isinstance(recipe, DCASGD)
    assert [type(v) for v in (recipe.lr, recipe.patience, recipe.penalty.clip)] == [float] * 3
    assert recipe == DCASGD(lr=1.0, patience=3.0, penalty=Penalty(clip=2.0))


def test_the_table_itself_is_left_alone() -> None:
    rule = {"name": "adam", "beta1": 0.5}
    table: dict[str, object] = {"rule": rule, "schedule": {"shape": "step"}}
    from_table("crowd", table)
    assert table == {"rule": {"name": "adam", "beta1": 0.5}, "schedule": {"shape": "step"}}


# -- any sensible table -----------------------------------------------------------------------

numbers = st.one_of(st.floats(0.0, 10.0), st.integers(0, 10))
positive = st.floats(1e-6, 10.0)
shares = st.floats(1e-3, 1.0)
below_one = st.floats(0.0, 0.99)
RULE_FIELDS: dict[str, st.SearchStrategy[object]] = {
    **dict.fromkeys(("momentum", "dampening", "rho", "alpha", "beta1", "beta2"), below_one),
    "eps": st.floats(1e-12, 1.0),
    "decay": numbers,
    "momentum_decay": numbers,
}


@st.composite
def rules(draw: st.DrawFn) -> object:
    name = draw(st.sampled_from(OPTIMISERS))
    if draw(st.booleans()):
        return name
    known = {field.name: RULE_FIELDS[field.name] for field in fields(RULES[name])}
    return {"name": name} | draw(st.fixed_dictionaries({}, optional=known))


def part(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({}, optional=known)


PARTS = {
    "schedule": part(
        shape=st.sampled_from(["constant", "step", "cosine"]),
        warmup_epochs=numbers,
        step_every=positive,
        step_factor=shares,
        floor=st.floats(0.0, 1.0),
        scale_with_volunteers=st.booleans(),
    ),
    "penalty": part(l1=numbers, l2=numbers, clip=numbers),
    "growth": part(
        factor=st.one_of(st.floats(1.0, 1000.0), st.integers(1, 1000)),
        every=st.integers(1, 1000),
        largest=st.integers(0, 1 << 16),
    ),
}
FIELDS: dict[str, st.SearchStrategy[Any]] = PARTS | {
    "lr": positive,
    "local_lr": numbers,
    "batch_size": st.integers(1, 1 << 16),
    "batches_per_unit": st.integers(1, 1 << 16),
    "near_batches": st.integers(1, 1 << 16),
    "push_every": st.sampled_from([1, 2, 4, 8]),
    "fetch_every": st.sampled_from([1, 2, 4, 8, 16]),
    "warm_start_batches": st.integers(0, 10**6),
    "overlap": st.integers(0, 8),
    "rule": rules(),
    "local_rule": rules(),
    "patience": numbers,
    "max_staleness": st.integers(0, 10**6),
    "publish_every": st.integers(1, 100),
    "assignment": st.sampled_from(["leases", "segments"]),
    "mode": st.sampled_from(["adaptive", "constant"]),
    "strength": numbers,
    "decay": below_one,
    "half_backups": st.booleans(),
    "codec": st.sampled_from(["fp32", "fp16", "bf16"]),
    "share": shares,
    "quorum": shares,
    "backup": st.integers(0, 100),
    "grace_s": numbers,
}


def tables(name: str) -> st.SearchStrategy[dict[str, Any]]:
    known = {f.name: FIELDS[f.name] for f in fields(RECIPES[name])}
    return st.fixed_dictionaries({}, optional=known).map(lambda table: fitting(name, table))


def fitting(name: str, table: dict[str, Any]) -> dict[str, Any]:
    """Units nearby no larger than those far away, and nothing that excludes one another."""
    if name == "averaging":
        table.get("schedule", {}).pop("scale_with_volunteers", None)
    rule = table.get("rule")
    if "adamw" in (rule, rule.get("name") if isinstance(rule, dict) else None):
        table.get("penalty", {}).pop("decay", None)
    if name == "downpour":
        table.pop("max_staleness", None)
    if "near_batches" in table:
        most = table.get("batches_per_unit", Crowd().batches_per_unit)
        table["near_batches"] = min(table["near_batches"], most)
    return table


@settings(deadline=None)
@given(st.sampled_from(list(RECIPES)).flatmap(lambda name: st.tuples(st.just(name), tables(name))))
def test_any_sensible_table_becomes_a_recipe_that_says_the_same(
    told: tuple[str, dict[str, Any]],
) -> None:
    name, table = told
    recipe = from_table(name, table)
    assert type(recipe) is RECIPES[name]
    said = as_table(recipe)
    for key, value in table.items():
        wanted = {"name": value} if "rule" in key and isinstance(value, str) else value
        if isinstance(wanted, dict):
            assert wanted.items() <= said[key].items()  # type: ignore[attr-defined]
        else:
            assert said[key] == wanted
    assert again(recipe) == recipe
    check_hyperparameters(hyperparameters(recipe))


# -- what is refused --------------------------------------------------------------------------


def refusal(name: str, table: dict[str, object]) -> RecipeError:
    with pytest.raises(RecipeError) as refused:
        from_table(name, table)
    assert refused.value.code == "CG102"
    return refused.value


def test_a_recipe_that_does_not_exist_is_answered_with_those_that_do() -> None:
    error = refusal("magic", {})
    assert error.message == "There is no recipe 'magic'."
    assert all(name in error.advice for name in RECIPES)


def test_a_field_that_does_not_exist_is_answered_with_those_that_do() -> None:
    error = refusal("async_sgd", {"momentum": 0.9, "learning_rate": 0.1})
    assert error.message == "Recipe async_sgd has no field 'learning_rate', 'momentum'."
    assert all(field.name in error.advice for field in fields(AsyncSGD))
    assert "push_every" not in error.advice


@pytest.mark.parametrize(
    ("table", "message", "advice"),
    [
        ({"schedule": {"lr": 1}}, "[schedule] of recipe downpour has no field 'lr'.",
         "warmup_epochs"),
        ({"penalty": {"l3": 1}}, "[penalty] of recipe downpour has no field 'l3'.", "l1, l2"),
        ({"rule": {"name": "adam", "beta": 0.9}}, "Rule adam has no field 'beta'.", "beta1, beta2"),
        ({"rule": {"name": "sgd", "lr": 0.1}}, "Rule sgd has no field 'lr'.", "none"),
        ({"rule": "adams"}, "rule of recipe downpour is 'adams'.", "nadam"),
        ({"rule": {"beta1": 0.5}}, "rule of recipe downpour is {'beta1': 0.5}.", "sgd, momentum"),
        ({"local_rule": "dc_adaptive"}, "local_rule of recipe downpour is 'dc_adaptive'.", "sgd"),
        ({"rule": ["adam"]}, "rule of recipe downpour is ['adam'].", "adamw"),
        ({"rule": None}, "rule of recipe downpour is None.", "adamw"),
        ({"schedule": "cosine"}, "schedule of recipe downpour is 'cosine'.", "[recipe.schedule]"),
        ({"growth": 2}, "growth of recipe downpour is 2.", "[recipe.growth]"),
        ({"schedule": {"shape": "linear"}}, "shape of [schedule] of recipe downpour is 'linear'.",
         "constant, step, cosine"),
        ({"assignment": "random"}, "assignment of recipe downpour is 'random'.",
         "leases, segments"),
        ({"assignment": ["leases"]}, "assignment of recipe downpour is ['leases'].", "leases"),
        ({"penalty": {"l1": -1}}, "[penalty] of recipe downpour: l1 -1.0 is not from 0 on.",
         "Change"),
        ({"rule": {"name": "adam", "beta1": 2}},
         "Rule adam: beta1 2.0 is not from 0 to below 1.", "Change"),
        ({"warm_start_batches": 1 << 40}, "warm_start_batches of recipe downpour is 1099511627776.",
         "up to 2147483648"),
        ({"growth": {"every": -1 << 40}}, "every of [growth] of recipe downpour is -1099511627776.",
         "up to 2147483648"),
        ({"rule": {"name": "adam", "beta1": 10**10}}, "beta1 of rule adam is 10000000000.",
         "up to 2147483648"),
        ({"push_every": 3}, "Recipe downpour: a push every 3 and a fetch every 4 batches do not "
         "divide one another.", "Change"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_what_to_do(
    table: dict[str, object], message: str, advice: str
) -> None:
    error = refusal("downpour", table)
    assert error.message == message
    assert advice in error.advice


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({"lr": "fast"}, float), ({"lr": True}, float), ({"lr": [0.1]}, float),
        ({"lr": None}, float), ({"lr": {"start": 0.1}}, float),
        ({"patience": "2"}, float), ({"batch_size": True}, int), ({"batch_size": 32.0}, int),
        ({"batch_size": "32"}, int), ({"batch_size": None}, int), ({"half_backups": 1}, bool),
        ({"half_backups": "true"}, bool), ({"half_backups": 0.0}, bool),
        ({"schedule": {"scale_with_volunteers": 1}}, bool), ({"growth": {"every": 1.5}}, int),
        ({"penalty": {"clip": False}}, float),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_with_its_place(
    table: dict[str, Any], wanted: type
) -> None:
    error = refusal("dc_asgd", table)
    ((key, value),) = table.items()
    if isinstance(value, dict) and key != "lr":
        ((key, value),) = value.items()
    assert error.message.startswith(f"{key} of ")
    assert repr(value) in error.message
    assert error.advice == f"Give {PLAIN[wanted]}."


def test_a_text_is_called_a_text() -> None:
    with pytest.raises(RecipeError, match="x of thing is 3") as refused:
        convert(3, str, "x", "Thing")
    assert refused.value.advice == "Give a text."
    assert convert("3", str, "x", "Thing") == "3"


def test_a_long_value_is_told_in_short() -> None:
    tables: list[dict[str, object]] = [
        {"lr": "x" * 10_000}, {"lr": 10**400}, {"rule": ["x"] * 10_000},
    ]  # fmt: skip
    for table in tables:
        error = refusal("crowd", table)
        assert len(error.message) < 150
        assert "..." in error.message


@pytest.mark.parametrize(
    "table",
    [
        {"lr": -0.1}, {"lr": 0}, {"lr": float("nan")}, {"lr": float("inf")}, {"batch_size": 0},
        {"batch_size": 1 << 30}, {"batches_per_unit": 0}, {"overlap": -1}, {"overlap": 9},
        {"publish_every": 0}, {"growth": {"factor": 0.5}}, {"growth": {"every": 0}},
        {"schedule": {"step_every": 0}},
    ],
)  # fmt: skip
def test_a_hyperparameter_that_makes_no_sense(table: dict[str, object]) -> None:
    error = refusal("async_sgd", table)
    assert "ecipe async_sgd: " in error.message
    assert error.advice


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9))
inner = st.dictionaries(st.sampled_from(["name", "shape", "l1", "every", "beta1", "x"]), scalars)
keys = st.sampled_from([*FIELDS, "name", "learning_rate", ""])


@settings(deadline=None)
@given(
    st.sampled_from(list(RECIPES)),
    st.dictionaries(keys, st.one_of(scalars, inner, st.lists(scalars, max_size=2)), max_size=4),
)
def test_whatever_a_job_file_says_is_a_recipe_or_refused_by_name(
    name: str, table: dict[str, object]
) -> None:
    with contextlib.suppress(RecipeError):
        recipe = from_table(name, table)
        assert type(recipe) is RECIPES[name]
        assert recipe.local()
        assert recipe.serving()


def test_the_smallest_rule_needs_no_table() -> None:
    assert from_table("async_sgd", {"rule": "sgd"}) == AsyncSGD(rule=SGD())
