"""Losses by group: which parameters each loss teaches.

A group is the name of a child module (or parameter) of the model: its loss teaches every parameter
below that name and no other. A parameter below none of the names learns nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from crowdgrad.capture.holdings import Holdings
from crowdgrad.errors import TaskError


def taught_by(groups: Iterable[str], holdings: Holdings) -> dict[str, tuple[str, ...]]:
    """The trainable parameters of each group; TaskError where a name fits none or one fits two."""
    owners: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    trainable = holdings.trainable()
    for group in groups:
        found[group] = []
        for name, first in holdings.first_names.items():
            if first not in trainable or not (name == group or name.startswith(f"{group}.")):
                continue
            if owners.setdefault(first, group) != group:
                raise TaskError(
                    f"the parameter {first!r} belongs to the groups {owners[first]!r} and "
                    f"{group!r} of the loss.",
                    advice="Each parameter learns from one loss: give groups that do not overlap.",
                )
            if first not in found[group]:
                found[group].append(first)
        if not found[group]:
            raise TaskError(
                f"the loss has a group {group!r}, but no trainable parameter of the model is "
                "below that name.",
                advice=f"Groups are named like the model's parts: {_parts(trainable)}.",
            )
    if not found:
        raise TaskError("the loss returned no group at all.", advice="Return at least one number.")
    return {group: tuple(names) for group, names in found.items()}


def _parts(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(repr(name.partition(".")[0]) for name in names))
