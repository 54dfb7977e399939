"""With one volunteer, one batch a unit and lock-step exchange, we are plain PyTorch SGD."""

from __future__ import annotations

import asyncio
from dataclasses import replace
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
from crowdgrad.numerics.noise import fill, order, shard_order
from crowdgrad.planner.batches import plan
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.settings import Settings
from tests.integration.conftest import Stage

STEPS, BATCH, LR, SEED = 100, 20, 0.1, 11


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
            recipe=AsyncSGD(lr=LR, batch_size=BATCH, overlap=0),
            stop=StoppingRule(epochs=1),
            seed=SEED,
        )
    )


def plain_pytorch(prepared: Prepared) -> np.ndarray:
    """The same batches in the same order with the same noise, by torch alone."""
    torch.manual_seed(3)
    model = Net().train()
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
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


def test_a_hundred_steps(prepared: Prepared, settings: Settings, tmp_path: Path) -> None:
    async def scenario() -> np.ndarray:
        async with Stage(prepared, settings, tmp_path) as stage:
            outcome = await stage.outcome()
            assert outcome.status.updates == STEPS
            assert outcome.status.max_staleness == 0
            return (await stage.run.training.parameters.copy())[0]

    ours = asyncio.run(scenario())
    torchs = plain_pytorch(prepared)
    moved = np.linalg.norm(torchs - prepared.initial)
    assert moved > 0.1, "the comparison would mean nothing"
    assert np.linalg.norm(ours - torchs) / np.linalg.norm(torchs) <= 1e-5
