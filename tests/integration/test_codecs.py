"""Parameters that travel in half precision: a real host, a real agent, a real trainer.

One worker in lock-step, so that the only difference between two runs is how numbers travelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from torch import nn

from crowdgrad.capture.task import Task
from crowdgrad.data.dataset import from_arrays
from crowdgrad.domain.job import StoppingRule
from crowdgrad.domain.work import CodecName
from crowdgrad.host.job import JobPlan, Prepared, prepare
from crowdgrad.host.servers.hiring import Wanted
from crowdgrad.host.telling.status import Status
from crowdgrad.numerics.rules import SGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.settings import Settings
from tests.integration.conftest import Stage

RECORDS, BATCH = 1000, 20
UNITS = 25
NEAR: dict[CodecName, float] = {"fp16": 0.002, "bf16": 0.02}
"""How far from each other the two ends may be, as a part of the way gone."""


def recipe(codec: CodecName) -> Downpour:
    """Two fetches a unit: what is added up must not be rounded in between."""
    return Downpour(
        lr=0.1, batch_size=BATCH, push_every=2, fetch_every=1, overlap=0, rule=SGD(), codec=codec
    )


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    """A model with buffers and an odd number of parameters: buffers begin at an odd place. Large
    enough that its bytes tell, however often a busy host is asked for work."""
    torch.manual_seed(3)
    dice = np.random.default_rng(5)
    x = dice.standard_normal((RECORDS + 100, 12)).astype(np.float32)
    y = (x[:, :3].sum(1) > 0).astype(np.float32)[:, None]
    model = nn.Sequential(nn.Linear(12, 256), nn.BatchNorm1d(256), nn.Tanh(), nn.Linear(256, 1))
    task = Task(
        model,
        nn.functional.binary_cross_entropy_with_logits,
        inputs=(torch.zeros(4, 12),),
        targets=(torch.zeros(4, 1),),
    )
    data = from_arrays(x, y, validation=100, seed=1)
    stop = StoppingRule(epochs=1)
    return prepare(JobPlan(task=task, data=data, recipe=recipe("fp32"), stop=stop, seed=11))


Found = tuple[dict[str, NDArray[Any]], Status]
Train = Callable[[CodecName, int], Found]


def trained(prepared: Prepared, codec: CodecName, servers: int, folder: Path) -> Found:
    """The model a run ends with, and how it went."""
    settings = Settings(home=folder / "home", heartbeat_s=0.5, silence_s=3.0, lease_s=5.0)
    job = replace(prepared.job, local=recipe(codec).local())
    changed = replace(prepared, recipe=recipe(codec), job=job)

    async def scenario() -> Status:
        async with Stage(changed, settings, folder, servers=Wanted(own=servers)) as stage:
            return (await stage.outcome()).status

    status = asyncio.run(scenario())
    (model,) = folder.rglob("model.safetensors")
    return load_file(model), status


@pytest.fixture(scope="module")
def train(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Each codec and number of servers once."""
    return cache(
        lambda codec, servers: trained(
            prepared, codec, servers, tmp_path_factory.mktemp(f"{codec}-{servers}")
        )
    )


@pytest.mark.parametrize("codec", NEAR)
def test_it_ends_where_it_would_have_with_all_the_bytes(
    codec: CodecName, train: Train, prepared: Prepared
) -> None:
    spec = prepared.program.spec
    assert spec.size % 2 == 1
    (plain, _), (halved, status) = train("fp32", 0), train(codec, 0)
    assert (status.state, status.updates, status.refused) == ("finished", UNITS, 0)
    names = [tensor.name for tensor in spec.parameters]
    ours, theirs = (np.concatenate([m[n].ravel() for n in names]) for m in (halved, plain))
    way = np.linalg.norm(theirs - prepared.initial[: spec.size])
    assert way > 0.1, "the comparison would mean nothing"
    assert 0 < np.linalg.norm(ours - theirs) / way <= NEAR[codec], "rounded, but hardly"
    for tensor in spec.buffers:
        np.testing.assert_allclose(
            halved[tensor.name], plain[tensor.name], rtol=0.05, atol=0.01, err_msg=tensor.name
        )
    assert halved["1.num_batches_tracked"] == 2 * UNITS
    update = 2 * spec.size + 4 * (spec.update_words - spec.size)
    assert UNITS * update <= status.bytes_received < UNITS * 4 * spec.update_words


def test_cut_among_servers_it_is_the_same_to_the_last_bit(train: Train) -> None:
    """Rounding and rules go number by number, so where the cut is makes no difference."""
    (one, _), (parted, status) = train("fp16", 0), train("fp16", 2)
    assert (status.state, status.updates, status.refused) == ("finished", UNITS, 0)
    assert one.keys() == parted.keys()
    assert all(one[name].tobytes() == parted[name].tobytes() for name in one)
