"""What the fields of a data set are, told from their names, types and shapes alone.

    picture   bytes or numbers with a height and a width, channels first or last
    table     single numbers and codes, side by side or in fields of their own
    sequence  steps of numbers, with a mask or a length beside them where they were padded
    text      numbers of tokens, with a mask or a length beside them where they were padded

Some are two things at once: a matrix of numbers may be a picture or a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from crowdgrad.domain.data import Field

Material = Literal["picture", "table", "sequence", "text"]
Goal = Literal["class", "number", "next"]
"""A class of the record, numbers to come close to, or at each place the token that comes next."""
MIN_SIDE = 4
"""A picture's height and width, at least."""
CHANNELS = (1, 3, 4)
MOST_STEPS = 200
"""Of records that a recurrent network reads: a program holds each step of it, and has an end."""


def materials(fields: Sequence[Field]) -> frozenset[Material]:
    """What the inputs can be read as; none: nothing we know."""
    inputs = tuple(fields[:-1])
    if not inputs:
        return frozenset()
    first, beside = inputs[0], inputs[1:]
    found: set[Material] = set()
    alone = not beside
    padded = len(beside) == 1 and (is_mask(beside[0], first) or is_length(beside[0], first))
    if is_whole(first) and first.mean is None and len(first.shape) == 1 and (alone or padded):
        found.add("text")
    if len(first.shape) == 2 and (padded or (alone and not is_whole(first))):
        found.add("sequence")
    if alone and channels_of(first) is not None:
        found.add("picture")
    rows = all(len(field.shape) <= 1 for field in inputs)
    if rows and not padded and goal_of(fields) != "next":
        found.add("table")
    return frozenset(found)


def goal_of(fields: Sequence[Field]) -> Goal | None:
    """What is to be learned; None: nothing we know."""
    if len(fields) < 2:
        return None
    first, target = fields[0], fields[-1]
    if not is_whole(target):
        return "number" if len(target.shape) <= 1 else None
    if target.shape == ():
        return "class"
    same = is_whole(first) and first.mean is None and first.shape == target.shape
    return "next" if same and len(target.shape) == 1 else None


def channels_of(field: Field) -> tuple[int, int, int] | None:
    """Channels, height and width of a picture; None: it is none."""
    if len(field.shape) == 2:
        channels, height, width = (1, *field.shape)
    elif len(field.shape) == 3:
        last = field.shape[0] not in CHANNELS and field.shape[2] in CHANNELS
        channels, height, width = field.shape if not last else (field.shape[2], *field.shape[:2])
    else:
        return None
    return (channels, height, width) if min(height, width) >= MIN_SIDE else None


def is_whole(field: Field) -> bool:
    return not field.dtype.startswith("float")


def is_mask(field: Field, of: Field) -> bool:
    return field.dtype == "bool" and field.shape == of.shape[:1]


def is_length(field: Field, of: Field) -> bool:
    """A whole number called so, beside something that has steps."""
    called = field.name == "length" or field.name.endswith("_length")
    return called and is_whole(field) and field.shape == () and len(of.shape) >= 1


def spell(fields: Sequence[Field]) -> str:
    """What the data is, for people who are told that a model does not fit."""
    found = materials(fields)
    goal = goal_of(fields)
    words = {
        "class": "with classes",
        "number": "with numbers to predict",
        "next": "with the token that comes next",
        None: "with a target of a form we do not know",
    }[goal]
    names = {"picture": "pictures", "table": "a table", "sequence": "sequences", "text": "texts"}
    kinds = " or ".join(names[name] for name in names if name in found)
    return f"{kinds or 'fields of a form we do not know'} {words}"
