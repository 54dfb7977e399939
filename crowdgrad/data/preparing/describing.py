"""What is said of a data set that was made: its fields with their moments, its card. All pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from crowdgrad.data.preparing.fitting import FieldPlan, Fitted, listed, spelled
from crowdgrad.data.preparing.moments import joined, mean_and_std
from crowdgrad.data.preparing.stages import RunTold
from crowdgrad.domain.data import (
    MAX_CARD_WORDS,
    MAX_DATA_TITLE,
    Card,
    Field,
    Manifest,
    Shard,
)
from crowdgrad.domain.program import DType
from crowdgrad.errors import DataMalformed, one_line


class Origin(msgspec.Struct, frozen=True):
    """Where it comes from."""

    title: str
    source: str
    licence: str = ""
    classes: tuple[str, ...] = ()
    """Names that the source has for the numbers of its classes."""


def manifest_of(
    origin: Origin,
    fitted: Fitted,
    runs: Sequence[RunTold],
    shards: Sequence[Shard],
    *,
    left_out: int,
    notes: Sequence[str],
) -> Manifest:
    """Raises DataMalformed."""
    fields = tuple(_field(number, plan, runs) for number, plan in enumerate(fitted.fields))
    classes = listed(tuple(one_line(name) for name in _named(origin, fitted)))
    try:
        return Manifest(
            title=one_line(origin.title)[:MAX_DATA_TITLE],
            fields=fields,
            shards=tuple(shards),
            card=Card(
                source=one_line(origin.source),
                licence=one_line(origin.licence),
                classes=classes,
                counts=fitted.counts if classes else (),
                vocabulary=fitted.vocabulary,
                left_out=left_out,
                notes=tuple(one_line(note)[:MAX_CARD_WORDS] for note in notes),
            ),
        )
    except ValueError as error:
        raise DataMalformed(f"the data cannot travel: {error}.", advice="Mend that.") from None


def _field(number: int, plan: FieldPlan, runs: Sequence[RunTold]) -> Field:
    mean, std = mean_and_std(joined(run.moments[number] for run in runs), plan)
    dtype = cast(DType, plan.dtype)
    try:
        return Field(name=plan.name, dtype=dtype, shape=plan.shape, mean=mean, std=std)
    except ValueError as error:
        raise DataMalformed(
            f"the data cannot travel: {error}.", advice="Mend it, or ask for normalise = false."
        ) from None


def notes_on(fitted: Fitted, runs: Sequence[RunTold]) -> list[str]:
    """What people should know of how records became fields."""
    cut = sum(run.cut for run in runs)
    notes = [f"{cut:,} sequences were longer than their field and were cut"] if cut else []
    stacks = (plan for plan in fitted.fields if plan.make == "stack")
    return notes + [f"{plan.name} holds {spelled(plan)}" for plan in stacks]


def _named(origin: Origin, fitted: Fitted) -> tuple[str, ...]:
    """The classes, by the names the source has for their numbers."""
    if origin.classes and all(name.isdigit() for name in fitted.classes):
        numbers = list(map(int, fitted.classes))
        if numbers == list(range(len(origin.classes))):
            return origin.classes
    return fitted.classes
