"""What a recipe says of itself: every field has its sentence, read from the source."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import pytest

from crowdgrad.numerics.rules import OPTIMISERS, RULES, Rule
from crowdgrad.numerics.rules.momentum import Momentum
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.recipes import RECIPES
from crowdgrad.recipes.base import Growth, Penalty
from crowdgrad.recipes.describe import FieldInfo, describe

KINDS: list[type] = [*RECIPES.values(), *RULES.values(), Schedule, Penalty, Growth]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_is_described_in_order(kind: type) -> None:
    found = describe(kind)
    assert [info.name for info in found] == [field.name for field in fields(kind)]
    for info, field in zip(found, fields(kind), strict=True):
        assert info.what.endswith((".", "…")), info.name
        assert "\n" not in info.what
        assert "  " not in info.what
        assert info.default == field.default
        assert info.part is not None or info.default_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    depth: int = 3
    """How deep."""


MOMENTUM, INNER = Momentum(), Inner()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Not a field's."""

    name: ClassVar[str] = "sample"
    speed: float = 0.5
    """How fast,
    told over two lines."""
    silent: int = 7
    loud: bool = True
    """Whether it shouts."""
    mode: Literal["slow", "fast"] = "slow"
    """How."""
    rule: Rule = MOMENTUM
    """What steps."""
    inner: Inner = INNER
    """A part."""

    def method(self) -> None:
        """Not a field's either."""


def test_what_is_read_from_the_source() -> None:
    assert describe(Sample) == [
        FieldInfo(name="speed", default=0.5, what="How fast, told over two lines."),
        FieldInfo(name="silent", default=7, what=""),
        FieldInfo(name="loud", default=True, what="Whether it shouts."),
        FieldInfo(name="mode", default="slow", what="How.", choices=("slow", "fast")),
        FieldInfo(name="rule", default=MOMENTUM, what="What steps.", choices=OPTIMISERS),
        FieldInfo(name="inner", default=INNER, what="A part.", part=Inner),
    ]


def test_defaults_are_written_as_in_a_job_file() -> None:
    texts = {info.name: info.default_text for info in describe(Sample)}
    assert texts == {
        "speed": "0.5", "silent": "7", "loud": "true", "mode": "slow", "rule": "momentum",
        "inner": "",
    }  # fmt: skip


@pytest.mark.parametrize("kind", RECIPES.values(), ids=RECIPES)
def test_parts_and_choices_of_recipes_are_found(kind: type) -> None:
    found = {info.name: info for info in describe(kind)}
    assert {name: info.part for name, info in found.items() if info.part} == {
        "schedule": Schedule, "penalty": Penalty, "growth": Growth,
    }  # fmt: skip
    choices = {name: info.choices for name, info in found.items() if info.choices}
    assert choices.pop("assignment") == ("leases", "segments")
    assert choices.pop("codec") == ("fp32", "fp16", "bf16")
    assert choices.pop("mode", None) == (("adaptive", "constant") if "mode" in found else None)
    assert set(choices.values()) <= {OPTIMISERS}
    assert choices.keys() == found.keys() & {"rule", "local_rule"}
