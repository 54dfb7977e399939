"""Every recipe: what it makes volunteers and host do, what members are told, what is refused."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import msgspec
import pytest

import crowdgrad as cg
from crowdgrad.domain.job import JobId, Value
from crowdgrad.domain.matching import Offer
from crowdgrad.domain.work import LocalRule, LocalSteps
from crowdgrad.errors import RecipeError
from crowdgrad.numerics.rules import (
    OPTIMISERS,
    RULES,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    AdaptiveDelayCompensated,
    Averaging,
    DelayCompensated,
    Momentum,
    NAdam,
    RMSProp,
)
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.planner.rounds import Barrier
from crowdgrad.recipes import DEFAULT, RECIPES
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.averaging import WeightAveraging
from crowdgrad.recipes.base import Growth, Penalty, Recipe, Serving, hyperparameters
from crowdgrad.recipes.crowd import Crowd
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous

SCHEDULE = Schedule(
    shape="step", warmup_epochs=1.5, step_every=3.0, step_factor=0.5, floor=0.1,
    scale_with_volunteers=True,
)  # fmt: skip
UNSCALED = replace(SCHEDULE, scale_with_volunteers=False)
PENALTY = Penalty(l1=1e-5, l2=1e-4, decay=1e-3, clip=5.0)
GROWTH = Growth(factor=2.0, every=3, largest=256)
NADAM = NAdam(beta1=0.8, beta2=0.99, eps=1e-6, momentum_decay=0.01)
RMSPROP = RMSProp(alpha=0.9, eps=1e-6, momentum=0.5)
PARTS: dict[str, Any] = {"schedule": SCHEDULE, "penalty": PENALTY, "growth": GROWTH}
ASYNCHRONOUS: dict[str, Any] = PARTS | {
    "batch_size": 32, "overlap": 2, "max_staleness": 7, "publish_every": 3,
    "assignment": "segments", "codec": "bf16",
}  # fmt: skip

CHANGED: list[Recipe] = [
    Crowd(lr=0.2, batches_per_unit=6, near_batches=2, rule=NADAM, patience=3.0, **ASYNCHRONOUS),
    AsyncSGD(lr=0.2, batches_per_unit=6, rule=NADAM, patience=3.0, **ASYNCHRONOUS),
    Downpour(
        lr=0.2, push_every=3, fetch_every=12, warm_start_batches=50, rule=NADAM,
        local_rule=RMSPROP, local_lr=0.3, patience=3.0, **ASYNCHRONOUS,
    ),
    DCASGD(
        lr=0.2, batches_per_unit=6, mode="constant", strength=0.5, decay=0.9, half_backups=True,
        patience=3.0, **ASYNCHRONOUS,
    ),
    WeightAveraging(
        lr=0.2, batches_per_unit=6, share=0.25, local_rule=RMSPROP,
        **ASYNCHRONOUS | {"penalty": Penalty(l1=1e-5, l2=1e-4, clip=5.0), "schedule": UNSCALED},
    ),
    Synchronous(
        lr=0.2, batch_size=32, batches_per_unit=6, quorum=0.75, backup=1, grace_s=0.5, rule=NADAM,
        assignment="segments", codec="bf16", **PARTS,
    ),
]  # fmt: skip
"""Of every recipe one with nothing left at its default."""

LOCAL = LocalSteps(
    batch_size=32, overlap=2, clip=5.0, l1=1e-5, l2=1e-4, growth=2.0, growth_every=3,
    largest_batch=256, codec="bf16",
)  # fmt: skip
SERVING = Serving(
    rate=0.2, local_rate=0.2, schedule=SCHEDULE, decay=1e-3, patience=3.0, max_staleness=7,
    publish_every=3, assignment="segments",
)  # fmt: skip
LOCAL_RMSPROP = LocalRule(name="rmsprop", settings={"alpha": 0.9, "eps": 1e-6, "momentum": 0.5})


def unlike(thing: LocalSteps | Serving, **changes: Any) -> Any:
    values = {field.name: getattr(thing, field.name) for field in fields(thing)}
    return type(thing)(**values | changes)


EXPECTED: dict[str, tuple[LocalSteps, object, Serving]] = {
    "crowd": (
        unlike(LOCAL, batches_per_unit=6),
        NADAM,
        unlike(SERVING, near_batches=2),
    ),
    "async_sgd": (unlike(LOCAL, batches_per_unit=6), NADAM, SERVING),
    "downpour": (
        unlike(LOCAL, batches_per_unit=3, fetch_every=12, rule=LOCAL_RMSPROP),
        NADAM,
        unlike(SERVING, local_rate=0.3, warm_start_batches=50, matched=False),
    ),
    "dc_asgd": (
        unlike(LOCAL, batches_per_unit=6),
        DelayCompensated(strength=0.5),
        unlike(SERVING, half_backups=True),
    ),
    "averaging": (
        unlike(LOCAL, batches_per_unit=6, rule=LOCAL_RMSPROP, returns="weights"),
        Averaging(share=0.25),
        unlike(SERVING, decay=0.0, schedule=UNSCALED, patience=0.0),
    ),
    "synchronous": (
        unlike(LOCAL, batches_per_unit=6, overlap=0),
        NADAM,
        unlike(
            SERVING,
            patience=0.0,
            max_staleness=0,
            publish_every=1,
            barrier=Barrier(quorum=0.75, backup=1, grace_s=0.5),
        ),
    ),
}


def name_of(recipe: Recipe) -> str:
    return recipe.name


# -- what it is -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), RECIPES.items())
def test_every_recipe_says_what_it_is(name: str, kind: type[Recipe]) -> None:
    assert kind.name == name
    assert kind.sentence.endswith(".")
    assert kind.when.endswith(".")
    home = inspect.getmodule(kind)
    assert home is not None
    assert home.__name__ == f"crowdgrad.recipes.{name}"
    assert "local steps" in str(home.__doc__), "its composition stands at the top"
    assert getattr(cg, kind.__name__) is kind, "a public name"


def test_the_default_is_safe_for_a_crowd() -> None:
    assert RECIPES[DEFAULT] is Crowd
    serving = Crowd().serving()
    assert serving.patience > 0
    assert serving.max_staleness > 0
    assert serving.near_batches < Crowd().local().batches_per_unit, "fewer pushes over a network"


# -- what it makes volunteers and host do -----------------------------------------------------


def test_there_is_a_changed_one_of_every_recipe() -> None:
    assert {recipe.name for recipe in CHANGED} == RECIPES.keys() == EXPECTED.keys()


@pytest.mark.parametrize("recipe", CHANGED, ids=name_of)
def test_in_it_nothing_is_left_at_its_default(recipe: Recipe) -> None:
    refused = ["schedule.scale_with_volunteers", "penalty.decay"]
    left = refused if recipe.name == "averaging" else []
    assert list(unchanged(recipe)) == left, "a new field belongs into CHANGED and EXPECTED"


def unchanged(thing: Any, prefix: str = "") -> Iterator[str]:
    for field in fields(thing):
        value = getattr(thing, field.name)
        if value == field.default:
            yield f"{prefix}{field.name}"
        elif is_dataclass(value):
            yield from unchanged(value, f"{field.name}.")


@pytest.mark.parametrize("recipe", CHANGED, ids=name_of)
def test_every_field_does_what_it_says(recipe: Recipe) -> None:
    local, rule, serving = EXPECTED[recipe.name]
    assert recipe.local() == local
    assert recipe.server_rule() == rule
    assert recipe.serving() == serving


@pytest.mark.parametrize("kind", RECIPES.values(), ids=RECIPES)
def test_the_defaults_are_plain(kind: type[Recipe]) -> None:
    recipe = kind()
    local, serving = recipe.local(), recipe.serving()
    assert local.rule.name == "sgd"
    assert local.units_per_fetch == 1
    assert (local.clip, local.l1, local.l2, local.growth, serving.decay) == (0, 0, 0, 1, 0)
    assert serving.schedule.factor(epoch=3.0, epochs=5, volunteers=9) == 1.0
    assert serving.assignment == "leases"
    assert local.codec == "fp32"
    assert (serving.barrier is not None) == (recipe.name == "synchronous")
    assert (local.returns == "weights") == (recipe.name == "averaging")
    assert recipe.server_rule().needs_base == (recipe.name == "dc_asgd")


@pytest.mark.parametrize(
    ("recipe", "rule"),
    [
        (DCASGD(), AdaptiveDelayCompensated(strength=2.0, decay=0.95)),
        (DCASGD(mode="constant"), DelayCompensated(strength=0.04)),
        (DCASGD(strength=1.0, decay=0.5), AdaptiveDelayCompensated(strength=1.0, decay=0.5)),
    ],
)
def test_delay_compensation_is_as_strong_as_the_papers_unless_told(
    recipe: DCASGD, rule: object
) -> None:
    assert recipe.server_rule() == rule


def test_downpours_replicas_step_at_their_own_rate_or_at_the_hosts() -> None:
    assert Downpour(lr=0.2, local_lr=0.3).serving().local_rate == 0.3
    assert Downpour(lr=0.2, local_lr=0.0).serving().local_rate == 0.2
    assert Downpour(push_every=4, fetch_every=8).local().units_per_fetch == 2
    assert Downpour(push_every=4, fetch_every=2).local().units_per_fetch == 1


# -- rules by name ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_rule_can_be_given_by_its_name(name: str) -> None:
    for kind in (Crowd, AsyncSGD, Downpour, Synchronous):
        recipe = kind(rule=name)  # type: ignore[arg-type]
        assert recipe.rule == RULES[name]()
        assert recipe.server_rule() == RULES[name]()
        assert recipe == kind(rule=RULES[name]())
    for other in (Downpour, WeightAveraging):
        local = other(local_rule=name).local()  # type: ignore[arg-type]
        assert local.rule.name == name


@pytest.mark.parametrize("name", ["adams", "", "Adam", *sorted(set(RULES) - set(OPTIMISERS))])
def test_a_name_that_is_no_optimiser_is_answered_with_those_that_are(name: str) -> None:
    with pytest.raises(
        RecipeError, match=f"^.CG102. rule of recipe downpour is '{name}'"
    ) as refused:
        Downpour(rule=name)  # type: ignore[arg-type]
    assert all(known in refused.value.advice for known in OPTIMISERS)
    with pytest.raises(RecipeError, match=f"local_rule of recipe averaging is '{name}'"):
        WeightAveraging(local_rule=name)  # type: ignore[arg-type]


# -- what members are told --------------------------------------------------------------------


@pytest.mark.parametrize("kind", RECIPES.values(), ids=RECIPES)
def test_of_an_unchanged_recipe_only_its_own_fields_are_told(kind: type[Recipe]) -> None:
    told = hyperparameters(kind())
    plain = [f.name for f in fields(kind) if f.name not in PARTS]
    assert list(told) == plain
    assert all(told[rule] in OPTIMISERS for rule in ("rule", "local_rule") if rule in told)


def test_of_a_part_only_what_was_changed_is_told() -> None:
    plain = hyperparameters(Crowd())
    told = hyperparameters(
        Crowd(
            lr=0.3,
            rule=Momentum(momentum=0.5),
            schedule=Schedule(shape="cosine"),
            penalty=Penalty(l2=0.1),
            growth=Growth(factor=2.0, every=2),
        )
    )
    changed = {key: value for key, value in told.items() if plain.get(key) != value}
    assert changed == {
        "lr": 0.3,
        "rule": "momentum",
        "rule.momentum": 0.5,
        "schedule.shape": "cosine",
        "penalty.l2": 0.1,
        "growth.factor": 2.0,
        "growth.every": 2,
    }


@pytest.mark.parametrize("recipe", CHANGED, ids=name_of)
def test_even_with_everything_changed_it_fits_into_an_offer_and_a_message(recipe: Recipe) -> None:
    told = hyperparameters(recipe)
    assert "schedule.warmup_epochs" in told
    assert "growth.largest" in told
    offer = Offer(
        id=JobId("j-1"), title="t", cause="", address="127.0.0.1:1", key="", minimum=0, maximum=1,
        hyperparameters=told,
    )  # fmt: skip
    assert offer.hyperparameters == told
    body = msgspec.msgpack.encode(told)
    assert len(body) < 4096
    assert msgspec.msgpack.decode(body, type=dict[str, Value]) == told


# -- what is refused --------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
SENSELESS: dict[str, list[Any]] = {
    "lr": [0.0, -0.1, NAN, INF],
    "local_lr": [-0.1, NAN, INF],
    "batch_size": [0, -1, 1 << 30],
    "push_every": [0, -4, 3, 1 << 20],
    "fetch_every": [0, -1, 5, 1 << 20],
    "warm_start_batches": [-1],
    "overlap": [-1, 9],
    "patience": [-1.0, NAN, INF],
    "max_staleness": [-1],
    "publish_every": [0, -1],
    "near_batches": [-1, 0, 9, 1 << 20],
    "mode": ["fast"],
    "strength": [-1.0, NAN, INF],
    "decay": [1.0, -0.1, NAN],
    "share": [0.0, 1.1, NAN],
    "quorum": [0.0, 1.1, NAN],
    "backup": [-1],
    "grace_s": [-1.0, NAN, INF],
    "assignment": ["random", ""],
    "codec": ["fp8", ""],
    "growth": [
        Growth(factor=0.5), Growth(factor=NAN), Growth(factor=1e9), Growth(every=0),
        Growth(largest=-1), Growth(largest=1 << 30),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (kind, name, value)
        for kind in RECIPES.values()
        for name in (field.name for field in fields(kind))
        for value in SENSELESS.get(name, [])
    ],
)
def test_what_makes_no_sense_is_refused(kind: type[Recipe], name: str, value: Any) -> None:
    place = f"Recipe {kind.name}: .+|{name} of recipe {kind.name} is {value!r}."
    with pytest.raises(RecipeError, match=place) as refused:
        kind(**{name: value})
    assert (refused.value.code, bool(refused.value.advice)) == ("CG102", True)


def test_every_field_with_limits_is_tried() -> None:
    tried = {*SENSELESS, "batches_per_unit", "rule", "local_rule", "schedule", "penalty"}
    free = {"half_backups"}
    assert {field.name for kind in RECIPES.values() for field in fields(kind)} - tried == free


@pytest.mark.parametrize("kind", [Crowd, AsyncSGD, DCASGD, WeightAveraging, Synchronous])
@pytest.mark.parametrize("value", [0, -1, 1 << 20])
def test_a_unit_has_batches(kind: Any, value: int) -> None:
    with pytest.raises(RecipeError, match=f"{value} batches per unit|batches_per_unit {value}"):
        kind(batches_per_unit=value)


def test_units_nearby_are_no_larger_than_those_far_away() -> None:
    for near, far in ((3, 2), (9, 8), (0, 8), (1, 0), (0, 0), (-1, -1)):
        told = f"near_batches {near} is not between 1 and batches_per_unit {far}"
        with pytest.raises(RecipeError, match=f"Recipe crowd: {told}"):
            Crowd(near_batches=near, batches_per_unit=far)
    for near, far in ((1, 1), (8, 8), (1, 1 << 16)):
        recipe = Crowd(near_batches=near, batches_per_unit=far)
        assert recipe.serving().near_batches == near
        assert recipe.local().batches_per_unit == far


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        (Penalty, {"l1": -1.0}), (Penalty, {"l2": NAN}), (Penalty, {"decay": INF}),
        (Penalty, {"clip": -0.1}),
        (Schedule, {"shape": "zigzag"}), (Schedule, {"warmup_epochs": -1.0}),
        (Schedule, {"warmup_epochs": INF}), (Schedule, {"step_every": 0.0}),
        (Schedule, {"step_factor": 0.0}), (Schedule, {"step_factor": 1.5}),
        (Schedule, {"floor": -0.1}), (Schedule, {"floor": NAN}),
    ],
)  # fmt: skip
def test_a_part_that_makes_no_sense_cannot_be_made(part: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(changes.values())))):
        part(**changes)


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(RecipeError, match="a push every 4 and a fetch every 6 batches do not"):
        Downpour(push_every=4, fetch_every=6)
    with pytest.raises(RecipeError, match="use l2"):
        WeightAveraging(penalty=Penalty(decay=0.1))
    assert WeightAveraging(penalty=Penalty(l2=0.1)).local().l2 == 0.1


def test_recipes_are_compared_by_what_they_do() -> None:
    assert Crowd(rule=Adam()) == Crowd(rule=Adam(beta1=0.9)) != Crowd(rule=AdamW())
    assert Downpour(rule=Adagrad()) == Downpour() != Downpour(rule=SGD())
