"""With one volunteer, one batch a unit and lock-step exchange, we are plain PyTorch.

Downpour(push_every=1, fetch_every=1) with each of the rules against torch's optimiser of the same
name: two hundred steps, the same batches, the same dropout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from crowdgrad.capture.task import Task
from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.shards import shard_arrays
from crowdgrad.domain.job import StoppingRule
from crowdgrad.host.job import JobPlan, Prepared, prepare
from crowdgrad.numerics import rules
from crowdgrad.numerics.noise import fill, order, shard_order
from crowdgrad.numerics.rules import Rule
from crowdgrad.planner.batches import plan
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.settings import Settings
from tests.integration.conftest import Stage

STEPS, BATCH, SEED = 200, 20, 11
ALIKE = ("adagrad", "adadelta", "adamw", "nesterov", "rmsprop", "nadam")
"""Optimisers that tell nothing new of how host and volunteer step together: tried with --all."""
OPTIMISERS: dict[str, tuple[Rule, float, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": (rules.SGD(), 0.1, torch.optim.SGD),
    "momentum": (rules.Momentum(momentum=0.9), 0.02, partial(torch.optim.SGD, momentum=0.9)),
    "nesterov": (
        rules.Nesterov(momentum=0.9), 0.02, partial(torch.optim.SGD, momentum=0.9, nesterov=True),
    ),
    "adagrad": (rules.Adagrad(), 0.05, torch.optim.Adagrad),
    "adadelta": (rules.Adadelta(), 1.0, torch.optim.Adadelta),
    "rmsprop": (rules.RMSProp(), 0.002, torch.optim.RMSprop),
    "adam": (rules.Adam(), 0.005, torch.optim.Adam),
    "adamw": (rules.AdamW(decay=0.1), 0.005, partial(torch.optim.AdamW, weight_decay=0.1)),
    "nadam": (rules.NAdam(), 0.005, torch.optim.NAdam),
}  # fmt: skip


class Net(nn.Module):
    """Dropout by hand from given noise, so that PyTorch can be shown the volunteer's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 32), nn.Linear(32, 4)
        self.drop = nn.Dropout(0.25)

    def forward(self, x: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        kept = self.drop(hidden) if noise is None else hidden * (noise >= 0.25) / 0.75
        return self.second(kept)


def with_rule(rule: Rule, lr: float) -> Downpour:
    return Downpour(lr=lr, batch_size=BATCH, push_every=1, fetch_every=1, overlap=0, rule=rule)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    torch.manual_seed(3)
    rng = np.random.default_rng(5)
    records = STEPS * BATCH + 100
    x = rng.integers(0, 255, (records, 12), dtype=np.uint8)
    y = (x[:, :3].sum(1) // 200).clip(0, 3).astype(np.uint8)
    data = from_arrays(x, y, validation=100, seed=1)
    field = replace(data.fields[0], mean=127.0, std=70.0)
    task = Task(
        Net(),
        nn.functional.cross_entropy,
        inputs=(torch.zeros(4, 12),),
        targets=(torch.zeros(4, dtype=torch.int64),),
    )
    return prepare(
        JobPlan(
            task=task,
            data=replace(data, fields=(field, data.fields[1])),
            recipe=with_rule(rules.SGD(), 0.1),
            stop=StoppingRule(epochs=1),
            seed=SEED,
        )
    )


def plain_pytorch(
    prepared: Prepared, make: Callable[..., torch.optim.Optimizer], lr: float
) -> np.ndarray:
    """The same batches in the same order with the same noise, by torch alone."""
    torch.manual_seed(3)
    model = Net().train()
    optimiser = make(model.parameters(), lr=lr)
    manifest = prepared.manifest
    batches = plan(manifest, "train", BATCH)
    (noise_spec,) = prepared.program.spec.noise
    steps = 0
    for place in shard_order(SEED, 0, len(batches.shards)):
        shard = batches.shards[place]
        chunks = manifest.shards[shard].chunks
        x, y = shard_arrays(manifest, shard, b"".join(prepared.blobs[c.hash] for c in chunks))
        rows = order(SEED, 0, shard, len(x))
        for number in batches.of_shard(shard):
            start, stop = batches.rows(number)
            mine = rows[start:stop]
            inputs = (torch.tensor(x[mine]).float() - 127.0) / 70.0
            noise = torch.from_numpy(fill(noise_spec, SEED, 0, number, 0, len(mine)))
            loss = nn.functional.cross_entropy(
                model(inputs, noise), torch.tensor(y[mine].astype(np.int64))
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            steps += 1
    assert steps == STEPS
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


@pytest.mark.parametrize(
    "name",
    [  # every rule is its equation in tests/numerics/rules, always
        pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in OPTIMISERS
    ],
)
def test_two_hundred_steps(
    name: str, prepared: Prepared, settings: Settings, tmp_path: Path
) -> None:
    rule, lr, make = OPTIMISERS[name]
    recipe = with_rule(rule, lr)
    the_same = replace(prepared, recipe=recipe, job=replace(prepared.job, local=recipe.local()))

    async def scenario() -> np.ndarray:
        async with Stage(the_same, settings, tmp_path) as stage:
            outcome = await stage.outcome()
            assert outcome.status.updates == STEPS
            assert outcome.status.max_staleness == 0
            return (await stage.run.training.parameters.copy())[0]

    ours = asyncio.run(scenario())
    torchs = plain_pytorch(prepared, make, lr)
    moved = np.linalg.norm(torchs - prepared.initial)
    assert moved > 0.1, "the comparison would mean nothing"
    assert np.linalg.norm(ours - torchs) / np.linalg.norm(torchs) <= 1e-5
