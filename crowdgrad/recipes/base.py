"""What every recipe says of itself, and how one is checked."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar, Protocol

from crowdgrad.domain.job import Value
from crowdgrad.domain.work import LocalSteps
from crowdgrad.errors import RecipeError
from crowdgrad.numerics.rules.base import ServerRule


class Recipe(Protocol):
    """A frozen dataclass with the hyperparameters as fields, checked where it is made."""

    name: ClassVar[str]
    sentence: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def local(self) -> LocalSteps:
        """What volunteers do inside a unit."""

    def rule(self) -> ServerRule:
        """What the host does with an update; a new one for every run."""


def check(recipe: Recipe) -> None:
    """Raises RecipeError when the hyperparameters make no sense together."""
    try:
        recipe.local()
    except ValueError as error:
        raise RecipeError(
            f"Recipe {recipe.name}: {error}.", advice="Change that hyperparameter."
        ) from None


def hyperparameters(recipe: Recipe) -> dict[str, Value]:
    """What every member of a job is told of its recipe."""
    return asdict(recipe)
