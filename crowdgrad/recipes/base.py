"""What every recipe says of itself, the parts it is made of, and how one is checked.

A recipe is a composition of local steps, a server rule, and how the host serves: schedule, what is
published, how staleness counts, barrier, assignment of the data.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, ClassVar, Literal, Protocol, get_type_hints

from crowdgrad.domain.job import Value
from crowdgrad.domain.work import LocalRule, LocalSteps
from crowdgrad.errors import RecipeError
from crowdgrad.numerics.rules import Rule
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.planner.rounds import Barrier
from crowdgrad.recipes.table import convert

Assignment = Literal["leases", "segments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalty:
    """What keeps weights and gradients small. L1 and L2 together are the elastic net."""

    l1: float = 0.0
    """Adds l1·sign(w) to every batch's gradient."""
    l2: float = 0.0
    """Adds l2·w to every batch's gradient, as `weight_decay` of most PyTorch optimisers does."""
    decay: float = 0.0
    """Decoupled weight decay: w ← w − η·decay·w beside the rule's step (AdamW's way)."""
    clip: float = 0.0
    """The longest a batch's gradient may be (L2 norm over all parameters); 0: any length."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 <= getattr(self, field.name) < math.inf:
                raise ValueError(f"{field.name} {getattr(self, field.name)} is not from 0 on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A batch that grows with the epochs (Smith et al. 2017, arXiv 1711.00489)."""

    factor: float = 1.0
    """What the batch size is multiplied with."""
    every: int = 1
    """Epochs between two growths."""
    largest: int = 0
    """The largest it may become; 0: 2^16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What the host does around its rule."""

    rate: float
    """η before schedule and staleness."""
    local_rate: float
    """η of the local steps, before the schedule."""
    schedule: Schedule = Schedule()
    decay: float = 0.0
    patience: float = 0.0
    """Batches applied meanwhile (or under way) up to which an update counts in full;
    beyond, its rate falls as patience over staleness. 0: every update counts in full."""
    max_staleness: int = 0
    """Updates older than so many versions are not used; 0: all are."""
    publish_every: int = 1
    """Changes of the parameters from one published version to the next."""
    half_backups: bool = False
    """Keep what units in flight started from as half-precision differences."""
    warm_start_batches: int = 0
    """Batches that one volunteer trains alone before the others begin."""
    matched: bool = True
    """Who is as fast as most gets units of full size, others what they manage in the same time."""
    near_batches: int = 0
    """Batches of a unit for volunteers on this machine; 0: as many as for others."""
    assignment: Assignment = "leases"
    barrier: Barrier | None = None

    def __post_init__(self) -> None:
        for name in ("rate", "local_rate"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"learning rate {value} is not a positive number")
        if not 0 <= self.patience < math.inf:
            raise ValueError(f"patience {self.patience} is not a number from 0 on")
        for name in ("max_staleness", "warm_start_batches", "near_batches"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)} is below 0")
        if self.publish_every < 1:
            raise ValueError(f"publish_every {self.publish_every} is below 1")
        if self.assignment not in ("leases", "segments"):
            raise ValueError(f"data is assigned by leases or segments, not {self.assignment!r}")


class Recipe(Protocol):
    """A frozen dataclass with the hyperparameters as fields, checked where it is made."""

    name: ClassVar[str]
    sentence: ClassVar[str]
    when: ClassVar[str]
    """When to choose it."""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def local(self) -> LocalSteps:
        """What volunteers do inside a unit."""

    def server_rule(self) -> Rule:
        """What the host does with an update."""

    def serving(self) -> Serving:
        """What the host does around its rule."""


def check(recipe: Recipe) -> None:
    """Make every field what it should be. Raises RecipeError where it, or the whole, is nonsense.

    A rule may be given by its name, a part as a table.
    """
    where, hints = f"Recipe {recipe.name}", get_type_hints(type(recipe))
    for field in fields(recipe):
        value = convert(getattr(recipe, field.name), hints[field.name], field.name, where)
        object.__setattr__(recipe, field.name, value)
    try:
        local, rule = recipe.local(), recipe.server_rule()
        serving = recipe.serving()
        if rule.needs_base and local.units_per_fetch > 1:
            raise ValueError(f"{rule.name} needs a fetch with every unit")
        if rule.name == "adamw" and serving.decay:
            raise ValueError("adamw decays by itself: set rule = {decay = …} or penalty.decay")
        if 0 < serving.max_staleness < local.units_per_fetch:
            raise ValueError(
                f"max_staleness {serving.max_staleness} is below the {local.units_per_fetch} "
                "pushes between two fetches: a volunteer's own would make its next too old"
            )
    except ValueError as error:
        raise RecipeError(f"{where}: {error}.", advice="Change that hyperparameter.") from None


def local_steps(penalty: Penalty, growth: Growth, **steps: Any) -> LocalSteps:
    """Local steps with a recipe's penalty and growth in them."""
    return LocalSteps(
        clip=penalty.clip,
        l1=penalty.l1,
        l2=penalty.l2,
        growth=growth.factor,
        growth_every=growth.every,
        largest_batch=growth.largest,
        **steps,
    )


def local_rule(rule: Rule) -> LocalRule:
    """A rule as it travels to volunteers."""
    return LocalRule(name=rule.name, settings={k: float(v) for k, v in asdict(rule).items()})


def hyperparameters(recipe: Recipe) -> dict[str, Value]:
    """What every member of a job is told of its recipe; what was changed in a part, as part.field.

    A rule is told by its name.
    """
    told: dict[str, Value] = {}
    for field in fields(recipe):
        value: Any = getattr(recipe, field.name)
        if hasattr(value, "name"):
            told[field.name] = value.name
        elif not is_dataclass(value):
            told[field.name] = value
        for inner in fields(value) if is_dataclass(value) else ():
            if (changed := getattr(value, inner.name)) != inner.default:
                told[f"{field.name}.{inner.name}"] = changed
    return told
