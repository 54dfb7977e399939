"""How volunteers learn together: one recipe a file, and the list of them.

A recipe is a composition: local steps × codec × server rule × merging × barrier. Adding one means a
file and a line in `RECIPES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import get_type_hints

from crowdgrad.domain.job import Value
from crowdgrad.errors import RecipeError
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe

RECIPES: dict[str, type[Recipe]] = {"async_sgd": AsyncSGD}
DEFAULT = "async_sgd"


def from_table(name: str, table: Mapping[str, object]) -> Recipe:
    """The recipe a job file describes. Raises RecipeError naming what is wrong."""
    kind = RECIPES.get(name)
    if kind is None:
        raise RecipeError(
            f"There is no recipe {name!r}.", advice=f"Choose one of: {', '.join(RECIPES)}."
        )
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(table) - known)
    if unknown:
        raise RecipeError(
            f"Recipe {name} has no field {', '.join(map(repr, unknown))}.",
            advice=f"It has: {', '.join(sorted(known))}.",
        )
    hints = get_type_hints(kind)
    return kind(**{key: _convert(name, key, value, hints[key]) for key, value in table.items()})


def _convert(recipe: str, key: str, value: object, wanted: type) -> Value:
    if wanted is float and type(value) is int and abs(value) < 1 << 63:
        return float(value)
    if isinstance(value, bool | int | float | str) and type(value) is wanted:
        return value
    raise RecipeError(
        f"{key} of recipe {recipe} is {value!r}.", advice=f"Give a {wanted.__name__}."
    )
