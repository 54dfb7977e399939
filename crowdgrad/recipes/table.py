"""From what a job file or a caller wrote to a recipe: every field known, every value of its type.

Scalars stand as they are; a part (schedule, penalty, growth) is a table of its own; a rule is a
name, or a table with `name` and the rule's hyperparameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from reprlib import repr as short
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from crowdgrad.errors import RecipeError
from crowdgrad.numerics.rules import OPTIMISERS, RULES, Rule

Made = TypeVar("Made")
LARGEST = 1 << 31
PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def make(kind: type[Made], table: Mapping[str, object], where: str) -> Made:
    """A dataclass from a table. Raises RecipeError naming what is wrong; `where` for people."""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(table) - set(known), key=str)
    if unknown:
        raise RecipeError(
            f"{where} has no field {', '.join(map(short, unknown[:5]))}.",
            advice=f"It has: {', '.join(sorted(known)) or 'none'}.",
        )
    hints = get_type_hints(kind)
    values = {key: convert(value, hints[key], key, where) for key, value in table.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise RecipeError(f"{where}: {error}.", advice="Change that value.") from None


def convert(value: object, wanted: Any, key: str, where: str) -> Any:
    """A value of the wanted type from what a job file or a caller wrote. Raises RecipeError."""
    if wanted is Rule:
        return _rule(value, key, where)
    if is_dataclass(wanted) and isinstance(wanted, type):
        if isinstance(value, wanted):
            value = _table(value)
        if isinstance(value, Mapping):
            return make(wanted, value, f"[{key}] of {where[:1].lower()}{where[1:]}")
        raise _wrong(value, key, where, f"Make it a table [recipe.{key}].")
    if get_origin(wanted) is Literal:
        if isinstance(value, str) and value in get_args(wanted):
            return value
        raise _wrong(value, key, where, f"Choose one of: {', '.join(get_args(wanted))}.")
    if wanted in (int, float) and isinstance(value, int) and abs(value) > LARGEST:
        raise _wrong(value, key, where, f"Give a number up to {LARGEST}.")
    if wanted is float and (type(value) is int or isinstance(value, float)):
        return float(value)  # numpy's, too
    if type(value) is wanted:
        return value
    raise _wrong(value, key, where, f"Give {PLAIN[wanted]}.")


def _rule(value: Any, key: str, where: str) -> Rule:
    table: dict[str, Any] = {"name": value}
    if isinstance(value, Mapping):
        table = dict(value)
    elif type(value) in RULES.values():
        table = {"name": value.name} | _table(value)
    name = table.pop("name", None)
    if not isinstance(name, str) or name not in OPTIMISERS:
        raise _wrong(value, key, where, f"Choose one of: {', '.join(OPTIMISERS)}.")
    return make(RULES[name], table, f"Rule {name}")


def as_table(recipe: Any) -> dict[str, object]:
    """A recipe as the table it could have been made from: `make` gives the same again."""
    told: dict[str, object] = {}
    for field in fields(recipe):
        value: Any = getattr(recipe, field.name)
        told[field.name] = value
        if is_dataclass(value):
            name = {"name": value.name} if type(value) in RULES.values() else {}  # type: ignore[union-attr]
            told[field.name] = name | as_table(value)
    return told


def _table(thing: Any) -> dict[str, object]:
    """What an object holds, so that it is converted and checked as a table would be."""
    return {field.name: getattr(thing, field.name) for field in fields(thing)}


def _wrong(value: object, key: str, where: str, advice: str) -> RecipeError:
    where = f"{where[:1].lower()}{where[1:]}"
    # Python refuses to write a number of more than 4300 digits.
    vast = isinstance(value, int) and value.bit_length() > 4096
    told = "a number of thousands of digits" if vast else short(value)
    return RecipeError(f"{key} of {where} is {told}.", advice=advice)
