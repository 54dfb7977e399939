"""The onnxruntime engine: the contract, and what binding by address must not break."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.errors import ProgramRefused
from crowdgrad.numerics import noise
from crowdgrad.numerics.layout import Layout
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine
from tests.contracts.engine_contract import EngineContract, Job

SEED = 77
RATE = 0.05


class TestOnnxEngine(EngineContract):
    def make(self, job: Job) -> OnnxEngine:
        return OnnxEngine(job.captured.program)


@pytest.fixture
def engine(captured):
    return OnnxEngine(captured.program)


def batch(number: int, samples: int) -> Batch:
    random = np.random.default_rng(number)
    pixels = random.integers(0, 256, (samples, 12), dtype=np.uint8)
    return Batch(number=number, fields=(pixels, random.integers(0, 5, samples, dtype=np.uint8)))


def work(*batches: Batch, epoch: int = 2, **local) -> UnitWork:
    unit = Unit(
        id=UnitId(1),
        kind="train",
        epoch=epoch,
        shard=0,
        first_batch=batches[0].number,
        batches=len(batches),
    )
    steps = LocalSteps(batch_size=8, batches_per_unit=len(batches), **local)
    return UnitWork(unit=unit, local=steps, seed=SEED, batches=batches, rate=RATE)


def train(engine, captured, unit, parameters=None):
    parameters = captured.state if parameters is None else parameters
    update = np.full_like(parameters, np.nan)
    return engine.train(unit, parameters, update), update


def torch_gradient(captured, weights, one: Batch, epoch: int = 2):
    """Loss and flat gradient by autograd, dropout written out with the batch's noise."""
    spec = captured.program.spec
    named = {
        t.name: torch.tensor(v, requires_grad=True)
        for t, v in Layout(spec.parameters).views(weights)
    }
    x = (torch.from_numpy(one.fields[0]).float() - 100.0) / 50.0
    hidden = torch.relu(x @ named["0.weight"].T + named["0.bias"])
    drawn = torch.from_numpy(noise.uniform(SEED, epoch, one.number, 0, hidden.numel()))
    hidden = hidden * (drawn.reshape(hidden.shape) >= 0.25) / 0.75
    output = hidden @ named["3.weight"].T + named["3.bias"]
    loss = nn.functional.cross_entropy(output, torch.from_numpy(one.fields[1]).long())
    loss.backward()
    flat = torch.cat([tensor.grad.reshape(-1) for tensor in named.values()])
    return float(loss.detach()), flat.numpy()


def distance(got, wanted) -> float:
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def test_local_steps_are_those_of_single_gradients_to_the_last_bit(engine, captured):
    batches = [batch(3, 8), batch(4, 8), batch(5, 3)]
    together = train(engine, captured, work(*batches))[1]
    replica, total = captured.state.copy(), np.zeros_like(captured.state)
    for one in batches:
        gradient = train(engine, captured, work(one), replica)[1]
        total += gradient
        replica -= np.float32(RATE) * gradient
    assert np.array_equal(together, total)


def test_fifty_steps_equal_plain_sgd(engine, captured):
    ours, theirs = captured.state.copy(), captured.state.copy()
    for number in range(50):
        one = batch(number, 16)
        _, update = train(engine, captured, work(one), ours)
        ours -= RATE * update
        theirs -= RATE * torch_gradient(captured, theirs, one)[1]
    assert distance(ours, theirs) < 1e-5
    assert distance(ours, captured.state) > 1e-2


def test_the_same_unit_gives_the_same_bits_from_any_memory(engine, captured):
    unit = work(batch(0, 8), batch(1, 5))
    first = train(engine, captured, unit)[1]
    room = np.zeros(captured.state.size + 3, np.float32)
    for offset in (0, 1, 3):  # addresses that are not aligned to more than a float
        moved = room[offset : offset + captured.state.size]
        moved[:] = captured.state
        assert np.array_equal(train(engine, captured, unit, moved)[1], first)
    assert np.array_equal(train(OnnxEngine(captured.program), captured, unit)[1], first)


def test_many_buffers_and_sizes_stay_right(engine, captured):
    # More places than bindings are kept: old ones must go without harm.
    kept = []
    for samples in range(1, 30):
        one = batch(samples, samples)
        update = train(engine, captured, work(one))[1]
        kept.append(update)
        assert distance(update, torch_gradient(captured, captured.state, one)[1]) < 1e-5


def test_bytes_that_are_no_graph_are_refused(captured):
    with pytest.raises(ProgramRefused, match="cannot load"):
        OnnxEngine(replace(captured.program, gradient=b"nothing"))


def test_handling_programs_loads_no_runtime():
    code = (
        "import sys, crowdgrad.program.artifact, crowdgrad.program.check, "
        "crowdgrad.program.engines.base, crowdgrad.program.engines.replica; "
        "print([m for m in ('torch', 'onnxruntime', 'onnx', 'google') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
