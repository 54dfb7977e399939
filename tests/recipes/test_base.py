"""What makes a recipe of what a caller wrote: every field converted, the whole checked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest

from crowdgrad.domain.work import LocalSteps
from crowdgrad.errors import RecipeError
from crowdgrad.numerics.rules import (
    OPTIMISERS,
    RULES,
    Adam,
    AdaptiveDelayCompensated,
    Momentum,
    Rule,
)
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.recipes import RECIPES
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.averaging import WeightAveraging
from crowdgrad.recipes.base import Growth, Penalty, Recipe, Serving, check
from crowdgrad.recipes.crowd import Crowd
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous

# -- what a caller may write ------------------------------------------------------------------


def test_rules_and_parts_can_be_tables() -> None:
    written: dict[str, Any] = {
        "rule": {"name": "adam", "beta2": 0.99},
        "local_rule": {"name": "momentum", "momentum": 0},
        "schedule": {"shape": "cosine", "warmup_epochs": 1},
        "penalty": {"clip": 5},
        "growth": {"factor": 2, "every": 3},
    }
    assert Downpour(**written) == Downpour(
        rule=Adam(beta2=0.99),
        local_rule=Momentum(momentum=0.0),
        schedule=Schedule(shape="cosine", warmup_epochs=1.0),
        penalty=Penalty(clip=5.0),
        growth=Growth(factor=2.0, every=3),
    )
    assert type(Crowd(schedule={"shape": "cosine"}).schedule) is Schedule  # type: ignore[arg-type]


def test_whole_numbers_become_numbers() -> None:
    recipe = Downpour(lr=1, local_lr=2, patience=3)
    assert [type(v) for v in (recipe.lr, recipe.local_lr, recipe.patience)] == [float] * 3


# -- what is refused --------------------------------------------------------------------------

WHOLE, NUMBER, EITHER = "Give a whole number.", "Give a number.", "Give true or false."
RULE = f"Choose one of: {', '.join(OPTIMISERS)}."


@pytest.mark.parametrize(
    ("changes", "message", "advice"),
    [
        ({"lr": "x"}, "lr of recipe dc_asgd is 'x'.", NUMBER),
        ({"lr": None}, "lr of recipe dc_asgd is None.", NUMBER),
        ({"lr": True}, "lr of recipe dc_asgd is True.", NUMBER),
        ({"batch_size": 32.5}, "batch_size of recipe dc_asgd is 32.5.", WHOLE),
        ({"batch_size": 32.0}, "batch_size of recipe dc_asgd is 32.0.", WHOLE),
        ({"batch_size": True}, "batch_size of recipe dc_asgd is True.", WHOLE),
        ({"half_backups": 1}, "half_backups of recipe dc_asgd is 1.", EITHER),
        ({"mode": 1}, "mode of recipe dc_asgd is 1.", "Choose one of: adaptive, constant."),
        ({"mode": ["adaptive"]}, "mode of recipe dc_asgd is ['adaptive'].",
         "Choose one of: adaptive, constant."),
        ({"schedule": "cosine"}, "schedule of recipe dc_asgd is 'cosine'.",
         "Make it a table [recipe.schedule]."),
        ({"schedule": {"shape": "x"}}, "shape of [schedule] of recipe dc_asgd is 'x'.",
         "Choose one of: constant, step, cosine."),
        ({"schedule": {"floor": 2}}, "[schedule] of recipe dc_asgd: step_factor 0.1 and floor 2.0 "
         "are shares.", "Change that value."),
        ({"penalty": 0.1}, "penalty of recipe dc_asgd is 0.1.",
         "Make it a table [recipe.penalty]."),
        ({"growth": {"every": "x"}}, "every of [growth] of recipe dc_asgd is 'x'.", WHOLE),
        ({"growth": {"size": 2}}, "[growth] of recipe dc_asgd has no field 'size'.",
         "It has: every, factor, largest."),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(
    changes: dict[str, Any], message: str, advice: str
) -> None:
    with pytest.raises(RecipeError) as refused:
        DCASGD(**changes)
    assert (refused.value.message, refused.value.advice) == (message, advice)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"growth": Growth(every=2.5)}, "every of [growth] of recipe crowd is 2.5."),  # type: ignore[arg-type]
        ({"growth": Growth(every=1 << 40)}, "every of [growth] of recipe crowd is 1099511627776."),
        ({"schedule": Schedule(scale_with_volunteers=1)},  # type: ignore[arg-type]
         "scale_with_volunteers of [schedule] of recipe crowd is 1."),
        ({"rule": Momentum(momentum=False)}, "momentum of rule momentum is False."),
        ({"lr": 10**5000}, "lr of recipe crowd is a number of thousands of digits."),
        ({"growth": {1: 2, "a": 3}}, "[growth] of recipe crowd has no field 1, 'a'."),
    ],
)  # fmt: skip
def test_what_objects_hold_is_looked_at_too(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as refused:
        Crowd(**changes)
    assert refused.value.message == message


def test_one_part_is_not_another() -> None:
    with pytest.raises(RecipeError, match="penalty of recipe crowd is Growth"):
        Crowd(penalty=Growth())  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [3, None, Adam, ["adam"], {"beta1": 0.9}, {"name": 3}])
def test_what_is_no_rule_at_all_is_refused(rule: Any) -> None:
    with pytest.raises(RecipeError, match="rule of recipe crowd is ") as refused:
        Crowd(rule=rule)
    assert refused.value.advice == RULE


@pytest.mark.parametrize("kind", RECIPES.values(), ids=RECIPES)
def test_numbers_beyond_all_sense_are_refused(kind: type[Recipe]) -> None:
    for field in fields(kind):
        if type(field.default) not in (int, float):
            continue
        for value in (1 + (1 << 31), -1 - (1 << 31), 10**400):
            with pytest.raises(RecipeError, match=f"{field.name} of recipe {kind.name} is ") as no:
                kind(**{field.name: value})
            assert no.value.advice == "Give a number up to 2147483648."


def test_the_largest_number_still_does() -> None:
    assert Crowd(max_staleness=1 << 31).max_staleness == 1 << 31


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lr", "x" * 10_000), ("lr", [1] * 10_000), ("lr", {str(i): i for i in range(999)}),
        ("batch_size", 10**1000), ("assignment", "y" * 10_000), ("schedule", "z" * 10_000),
        ("rule", "adam" * 10_000), ("rule", {"name": "adam" * 10_000}),
    ],
)  # fmt: skip
def test_a_message_stays_short_whatever_was_given(key: str, value: Any) -> None:
    with pytest.raises(RecipeError, match=f"{key} of recipe crowd is ") as refused:
        Crowd(**{key: value})
    assert len(refused.value.message) < 150
    assert "..." in refused.value.message


@pytest.mark.parametrize("name", sorted(set(RULES) - set(OPTIMISERS)))
def test_what_is_no_optimiser_is_refused_as_an_object_too(name: str) -> None:
    rule = RULES[name]()
    for kind in (Crowd, AsyncSGD, Downpour, Synchronous):
        with pytest.raises(RecipeError, match=f"rule of recipe {kind.name} is ") as refused:
            kind(rule=rule)
        assert all(known in refused.value.advice for known in OPTIMISERS)
    for other in (Downpour, WeightAveraging):
        with pytest.raises(RecipeError, match=f"local_rule of recipe {other.name} is "):
            other(local_rule=rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chained:
    """A recipe somebody might write one day: delay compensation, units in chains."""

    name: ClassVar[str] = "chained"
    sentence: ClassVar[str] = "Chains."
    when: ClassVar[str] = "Never."

    fetch_every: int = 8

    def __post_init__(self) -> None:
        check(self)

    def local(self) -> LocalSteps:
        return LocalSteps(batch_size=1, batches_per_unit=4, fetch_every=self.fetch_every)

    def server_rule(self) -> Rule:
        return AdaptiveDelayCompensated()

    def serving(self) -> Serving:
        return Serving(rate=0.1, local_rate=0.1)


def test_a_rule_that_needs_the_base_needs_a_fetch_with_every_unit() -> None:
    told = "Recipe chained: dc_adaptive needs a fetch with every unit"
    with pytest.raises(RecipeError, match=told):
        Chained()
    assert Chained(fetch_every=2).server_rule().needs_base
