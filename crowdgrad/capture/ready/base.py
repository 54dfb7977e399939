"""What a ready-made model is to people, and what it is told of the data. Nothing here knows torch.

A kind has sliders: numbers between two ends, or a choice of words. Everything else (how many
classes, which shape, how many tokens) comes from the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from crowdgrad.capture.ready.reading import Goal, goal_of, is_whole
from crowdgrad.domain.data import Field, Moment
from crowdgrad.errors import JobFileError

Value = int | float | str
MAX_CLASSES = 4096
"""Whole numbers up to more than this are numbers to come close to, not classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """One hyperparameter: whole or not as its default is; with choices, one of those words."""

    name: str
    help: str
    default: Value
    least: float = 0
    most: float = 0
    step: float = 1
    """Of the slider; between the ends every number may be written."""
    choices: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        return isinstance(self.default, int)

    def check(self, value: object) -> Value:
        """The value as the model takes it. Raises ValueError saying what it may be."""
        if self.choices:
            if isinstance(value, str) and value in self.choices:
                return value
            raise ValueError(f"Choose one of: {', '.join(self.choices)}.")
        kind = "a whole number" if self.whole else "a number"
        allowed = f"Give {kind} from {self.least:g} to {self.most:g}."
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(allowed)
        if not math.isfinite(value) or not self.least <= value <= self.most:
            raise ValueError(allowed)
        if self.whole and not float(value).is_integer():
            raise ValueError(allowed)
        return int(value) if self.whole else float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A kind of ready-made model."""

    kind: str
    title: str
    sentence: str
    sliders: tuple[Slider, ...]
    fits: Callable[[Sequence[Field]], str]
    """Empty where it can learn from such fields; else why not, in words."""
    check: Callable[[Mapping[str, Value]], str] = lambda values: ""
    """Empty where the values go together; else what to change, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A kind with a value for each of its sliders."""

    kind: str
    values: Mapping[str, Value]

    def table(self) -> dict[str, Value]:
        """As a job file has it."""
        return {"kind": self.kind, **self.values}

    def whole(self, name: str) -> int:
        return int(self.values[name])

    def number(self, name: str) -> float:
        return float(self.values[name])

    def word(self, name: str) -> str:
        return str(self.values[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What is known of a field's values."""

    field: Field
    least: int = 0
    """Of whole numbers."""
    most: int = 0
    mean: Moment = 0.0
    """Of what the model reads: measured where the field does not say its own, 0 and 1 where it
    does, as the program has subtracted and divided by then."""
    std: Moment = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a model is told of the data."""

    columns: tuple[Column, ...]
    """Inputs, then the target."""
    classes: int = 0
    """How many the target tells apart, where it is known from its names."""
    vocabulary: int = 0
    """How many tokens there are, where they are listed."""

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(column.field for column in self.columns)

    @property
    def inputs(self) -> tuple[Column, ...]:
        return self.columns[:-1]

    @property
    def target(self) -> Column:
        return self.columns[-1]

    @property
    def goal(self) -> Goal:
        """Raises JobFileError where there is none."""
        goal = goal_of(self.fields)
        if goal is None:
            raise JobFileError(
                f"No ready-made model learns {self.target.field.name}.",
                advice="Write a task of your own: docs/models.md.",
            )
        if goal == "class" and (self.target.least < 0 or self._classes > MAX_CLASSES):
            return "number"
        return goal

    @property
    def _classes(self) -> int:
        return max(2, self.classes, self.target.most + 1)

    @property
    def outputs(self) -> int:
        """How many numbers a model answers with: for a record, or for each token of one."""
        if self.goal == "next":
            return self.tokens
        return self._classes if self.goal == "class" else math.prod(self.target.field.shape)

    @property
    def tokens(self) -> int:
        """One more than the largest number of a token."""
        ids = [self.inputs[0], *([self.target] if goal_of(self.fields) == "next" else [])]
        return max(2, self.vocabulary, *(column.most + 1 for column in ids if whole(column)))


def whole(column: Column) -> bool:
    return is_whole(column.field)


def model_from(ready: Ready, table: Mapping[str, object], where: str) -> Model:
    """Raises JobFileError naming the key and what it may be."""
    sliders = {slider.name: slider for slider in ready.sliders}
    unknown = sorted(set(table) - set(sliders) - {"kind"})
    if unknown:
        raise JobFileError(
            f"{where} has an unknown key {', '.join(map(repr, unknown))}.",
            advice=f"Keys of {ready.kind}: kind, {', '.join(sliders)}.",
        )
    values: dict[str, Value] = {}
    for name, slider in sliders.items():
        given = table.get(name, slider.default)
        try:
            values[name] = slider.check(given)
        except ValueError as error:
            raise JobFileError(f"{name!r} of {where} is {given!r}.", advice=str(error)) from None
    advice = ready.check(values)
    if advice:
        told = ", ".join(f"{name} {value}" for name, value in values.items())
        raise JobFileError(f"{where} does not go together: {told}.", advice=advice)
    return Model(kind=ready.kind, values=values)
