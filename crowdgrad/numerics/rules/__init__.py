"""How parameters change by an update: one rule a file, all of them in `RULES`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from reprlib import repr as short  # what strangers send may be long
from typing import Final

from crowdgrad.numerics.rules.adadelta import Adadelta
from crowdgrad.numerics.rules.adagrad import Adagrad
from crowdgrad.numerics.rules.adam import Adam
from crowdgrad.numerics.rules.adamw import AdamW
from crowdgrad.numerics.rules.averaging import Averaging
from crowdgrad.numerics.rules.base import Rule
from crowdgrad.numerics.rules.dc_adaptive import AdaptiveDelayCompensated
from crowdgrad.numerics.rules.dc_constant import DelayCompensated
from crowdgrad.numerics.rules.momentum import Momentum
from crowdgrad.numerics.rules.nadam import NAdam
from crowdgrad.numerics.rules.nesterov import Nesterov
from crowdgrad.numerics.rules.rmsprop import RMSProp
from crowdgrad.numerics.rules.sgd import SGD

__all__ = [
    "OPTIMISERS",
    "RULES",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "AdaptiveDelayCompensated",
    "Averaging",
    "DelayCompensated",
    "Momentum",
    "NAdam",
    "Nesterov",
    "RMSProp",
    "Rule",
    "rule_from",
]

_OPTIMISERS: Final[tuple[type[Rule], ...]] = (
    SGD,
    Momentum,
    Nesterov,
    Adagrad,
    Adadelta,
    RMSProp,
    Adam,
    AdamW,
    NAdam,
)
_OTHERS: Final[tuple[type[Rule], ...]] = (DelayCompensated, AdaptiveDelayCompensated, Averaging)

RULES: Final[dict[str, type[Rule]]] = {rule.name: rule for rule in (*_OPTIMISERS, *_OTHERS)}
OPTIMISERS: Final = tuple(rule.name for rule in _OPTIMISERS)
"""What a user may choose for the host, and what may step a volunteer's replica."""


_LARGEST: Final = sys.float_info.max  # an integer may be larger


def rule_from(name: str, settings: Mapping[str, float]) -> Rule:
    """The rule of that name. What the settings leave out has its default.

    Raises ValueError, whatever a stranger put into name and settings.
    """
    if not isinstance(name, str) or name not in RULES:
        raise ValueError(f"there is no rule {short(name)}, only {', '.join(RULES)}")
    make: Callable[..., Rule] = RULES[name]
    known = [field.name for field in fields(RULES[name])]
    for key, value in settings.items():
        if key not in known:
            has = ", ".join(known) or "none"
            raise ValueError(f"rule {name} has no setting {short(key)}; its settings: {has}")
        if type(value) not in (int, float) or not -_LARGEST <= value <= _LARGEST:
            raise ValueError(f"{key} of rule {name} is not a finite number: {short(value)}")
    return make(**{key: float(value) for key, value in settings.items()})
