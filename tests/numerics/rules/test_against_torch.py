"""Two hundred steps of every optimiser beside PyTorch's own of that name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from crowdgrad.numerics.rules import OPTIMISERS, rule_from
from crowdgrad.numerics.rules.base import Step, begin
from tests.numerics.rules.streams import distance, gradients, start, wide

Settings = dict[str, float]
SIZE, STEPS = 3_000, 200


def torchs(name: str, w: torch.Tensor, rate: float, settings: Settings) -> torch.optim.Optimizer:
    """Its spelling of our settings."""
    rest: dict[str, Any] = dict(settings)
    betas = (rest.pop("beta1", 0.9), rest.pop("beta2", 0.999))
    of: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "sgd": lambda: torch.optim.SGD([w], rate),
        "momentum": lambda: torch.optim.SGD([w], rate, **{"momentum": 0.9, **rest}),
        "nesterov": lambda: torch.optim.SGD([w], rate, nesterov=True, **{"momentum": 0.9, **rest}),
        "adagrad": lambda: torch.optim.Adagrad([w], rate, **rest),
        "adadelta": lambda: torch.optim.Adadelta([w], rate, **rest),
        "rmsprop": lambda: torch.optim.RMSprop([w], rate, **rest),
        "adam": lambda: torch.optim.Adam([w], rate, betas, **rest),
        "adamw": lambda: torch.optim.AdamW(
            [w], rate, betas, weight_decay=rest.pop("decay", 0.01), **rest
        ),
        "nadam": lambda: torch.optim.NAdam([w], rate, betas, **rest),
    }
    return of[name]()


CASES: list[tuple[str, Settings]] = [
    *((name, {}) for name in OPTIMISERS),
    ("momentum", {"momentum": 0.5, "dampening": 0.2}),
    ("rmsprop", {"alpha": 0.9, "eps": 1e-4, "momentum": 0.7}),
    ("adamw", {"beta1": 0.8, "beta2": 0.95, "eps": 1e-5, "decay": 0.3}),
    ("nadam", {"beta1": 0.8, "beta2": 0.95, "eps": 1e-5, "momentum_decay": 0.1}),
]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_it_stays_beside_pytorch(name: str, settings: Settings) -> None:
    rates = {"adadelta": 1.0}
    ours, theirs = start(SIZE), torch.from_numpy(start(SIZE))
    rule, before = rule_from(name, settings), wide(start(SIZE))
    memory = begin(rule, SIZE)
    rate = rates.get(name, 0.01)
    optimiser = torchs(name, theirs, rate, settings)
    for number, g in enumerate(gradients(STEPS, SIZE)):
        changed = rate * (1.0 if number < 100 else 0.5)
        optimiser.param_groups[0]["lr"] = changed
        theirs.grad = torch.from_numpy(g.copy())
        optimiser.step()
        rule.step(ours, g, memory, Step(rate=changed))
        if number in (0, 1, 9, STEPS - 1):
            assert distance(ours, theirs.numpy()) < 1e-6
            assert distance(ours - before, theirs.numpy() - before) < 1e-5
    assert memory.steps == STEPS
    assert np.abs(ours - before).max() > 0.01  # it did go somewhere
