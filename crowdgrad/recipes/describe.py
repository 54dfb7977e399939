"""What a recipe (or a part of one) is and what its fields mean, from its own source.

The docstring under a field is its description: read here, so that the command line, the
documentation's test and one day the control panel say the same.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from crowdgrad.numerics.rules import OPTIMISERS, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldInfo:
    name: str
    default: Any
    what: str
    """What it means, in a sentence or two."""
    choices: tuple[str, ...] = ()
    part: type | None = None
    """The dataclass of a part, which has fields of its own."""

    @property
    def default_text(self) -> str:
        """The default as a job file would write it; empty for a part."""
        if self.part is not None:
            return ""
        value = getattr(self.default, "name", self.default)
        return str(value).lower() if isinstance(value, bool) else str(value)


def describe(kind: type) -> list[FieldInfo]:
    """Every field of a recipe, a rule or a part, in order."""
    told, hints = _docstrings(kind), get_type_hints(kind)
    found = []
    for field in fields(kind):
        hint = hints[field.name]
        part = hint if is_dataclass(hint) and isinstance(hint, type) else None
        choices: tuple[str, ...] = OPTIMISERS if hint is Rule else ()
        if get_origin(hint) is not None:
            choices = tuple(map(str, get_args(hint)))
        found.append(
            FieldInfo(
                name=field.name,
                default=field.default,
                what=told.get(field.name, ""),
                choices=choices,
                part=part,
            )
        )
    return found


def _docstrings(kind: type) -> dict[str, str]:
    """Field → the docstring under it."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    told = {}
    for statement, following in zip(tree.body, tree.body[1:], strict=False):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            told[statement.target.id] = " ".join(str(following.value.value).split())
    return told
