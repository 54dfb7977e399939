"""How volunteers learn together: one recipe a file, and the list of them.

A recipe is a composition: local steps × codec × server rule × merging × barrier. Adding one means a
file and a line in `RECIPES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from crowdgrad.errors import RecipeError
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.averaging import WeightAveraging
from crowdgrad.recipes.base import Recipe
from crowdgrad.recipes.crowd import Crowd
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous
from crowdgrad.recipes.table import make

RECIPES: dict[str, type[Recipe]] = {
    kind.name: kind for kind in (Crowd, AsyncSGD, Downpour, DCASGD, WeightAveraging, Synchronous)
}
DEFAULT = Crowd.name


def from_table(name: str, table: Mapping[str, object]) -> Recipe:
    """The recipe a job file describes. Raises RecipeError naming what is wrong."""
    kind = RECIPES.get(name)
    if kind is None:
        raise RecipeError(
            f"There is no recipe {name!r}.", advice=f"Choose one of: {', '.join(RECIPES)}."
        )
    return make(kind, table, f"Recipe {name}")
