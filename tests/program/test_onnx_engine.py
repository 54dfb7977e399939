"""The engine contract, and that the numbers are PyTorch's."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from crowdgrad.domain.work import LocalRule, LocalSteps, Unit, UnitId
from crowdgrad.errors import ComputeError, DataMalformed, ProgramError, ProgramRefused
from crowdgrad.numerics import noise
from crowdgrad.numerics.layout import Layout
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine

SEED = 77
RATE = 0.05


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
    parameters = captured.parameters if parameters is None else parameters
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


@pytest.mark.parametrize("samples", [1, 2, 7, 64])
def test_one_batch_gives_autograds_gradient(engine, captured, samples):
    one = batch(5, samples)
    result, update = train(engine, captured, work(one))
    loss, gradient = torch_gradient(captured, captured.parameters, one)
    assert result.samples == samples
    assert result.loss == pytest.approx(loss, rel=1e-5)
    assert result.metrics == {}
    assert distance(update, gradient) < 1e-5


def test_a_unit_of_batches_is_the_sum_of_gradients_along_local_steps(engine, captured):
    batches = [batch(3, 8), batch(4, 8), batch(5, 3)]
    result, update = train(engine, captured, work(*batches))
    replica, total, losses = captured.parameters.copy(), np.zeros_like(captured.parameters), []
    for one in batches:
        loss, gradient = torch_gradient(captured, replica, one)
        total += gradient
        replica -= RATE * gradient
        losses.append(loss * one.samples)
    assert distance(update, total) < 1e-5
    assert result.samples == 19
    assert result.loss == pytest.approx(sum(losses) / 19, rel=1e-5)


def test_local_steps_are_those_of_single_gradients_to_the_last_bit(engine, captured):
    batches = [batch(3, 8), batch(4, 8), batch(5, 3)]
    together = train(engine, captured, work(*batches))[1]
    replica, total = captured.parameters.copy(), np.zeros_like(captured.parameters)
    for one in batches:
        gradient = train(engine, captured, work(one), replica)[1]
        total += gradient
        replica -= np.float32(RATE) * gradient
    assert np.array_equal(together, total)


def test_a_chain_goes_on_where_the_lane_left_off(engine, captured):
    rule = LocalRule(name="adam")
    batches = [batch(number, 8) for number in range(6)]
    long = work(*batches, rule=rule, returns="weights")
    wanted = {
        lane: train(engine, captured, replace(long, batches=batches[::step]))[1]
        for lane, step in ((0, 1), (1, -1))
    }
    for number in range(3):  # two lanes in turns, through the same engine
        for lane, step in ((0, 1), (1, -1)):
            part = work(*batches[::step][2 * number : 2 * number + 2], rule=rule, fetch_every=6)
            link = replace(part, lane=lane, fresh=number == 0)
            if number == 2:
                link = replace(link, local=replace(link.local, returns="weights"))
            update = train(engine, captured, link)[1]
            if number == 2:
                assert np.array_equal(update, wanted[lane])


def test_a_chain_without_a_beginning_is_an_error_and_the_engine_still_works(engine, captured):
    with pytest.raises(ComputeError, match="no replica"):
        train(engine, captured, replace(work(batch(0, 8), fetch_every=2), fresh=False))
    train(engine, captured, work(batch(0, 8)))


def test_fifty_steps_equal_plain_sgd(engine, captured):
    ours, theirs = captured.parameters.copy(), captured.parameters.copy()
    for number in range(50):
        one = batch(number, 16)
        _, update = train(engine, captured, work(one), ours)
        ours -= RATE * update
        theirs -= RATE * torch_gradient(captured, theirs, one)[1]
    assert distance(ours, theirs) < 1e-5
    assert distance(ours, captured.parameters) > 1e-2


def test_parameters_are_only_read(engine, captured):
    parameters = captured.parameters.copy()
    parameters.flags.writeable = False
    train(engine, captured, work(batch(0, 4), batch(1, 4)), parameters)
    assert np.array_equal(parameters, captured.parameters)


def test_the_same_unit_gives_the_same_bits_from_any_memory(engine, captured):
    unit = work(batch(0, 8), batch(1, 5))
    first = train(engine, captured, unit)[1]
    room = np.zeros(captured.parameters.size + 3, np.float32)
    for offset in (0, 1, 3):  # addresses that are not aligned to more than a float
        moved = room[offset : offset + captured.parameters.size]
        moved[:] = captured.parameters
        assert np.array_equal(train(engine, captured, unit, moved)[1], first)
    assert np.array_equal(train(OnnxEngine(captured.program), captured, unit)[1], first)


def test_noise_follows_epoch_and_batch_number(engine, captured):
    one = batch(9, 8)
    update = train(engine, captured, work(one))[1]
    other_epoch = train(engine, captured, work(one, epoch=3))[1]
    other_number = train(engine, captured, work(replace(one, number=10)))[1]
    assert not np.array_equal(update, other_epoch)
    assert not np.array_equal(update, other_number)
    assert np.array_equal(train(engine, captured, work(one))[1], update)


def test_many_buffers_and_sizes_stay_right(engine, captured):
    # More places than bindings are kept: old ones must go without harm.
    kept = []
    for samples in range(1, 30):
        one = batch(samples, samples)
        update = train(engine, captured, work(one))[1]
        kept.append(update)
        assert distance(update, torch_gradient(captured, captured.parameters, one)[1]) < 1e-5


def test_evaluation_uses_no_noise_and_weighs_by_samples(engine, captured, model):
    batches = [batch(1, 8), batch(2, 3)]
    result = engine.evaluate(work(*batches), captured.parameters)
    model.eval()
    pixels = torch.from_numpy(np.concatenate([b.fields[0] for b in batches]))
    labels = torch.from_numpy(np.concatenate([b.fields[1] for b in batches])).long()
    with torch.no_grad():
        output = model((pixels.float() - 100.0) / 50.0)
    assert result.samples == 11
    assert result.loss == pytest.approx(
        float(nn.functional.cross_entropy(output, labels)), rel=1e-5
    )
    right = float((output.argmax(1) == labels).float().mean())
    assert result.metrics == {"accuracy": pytest.approx(right, rel=1e-6)}


def test_evaluation_and_training_can_share_a_buffer(engine, captured):
    unit = work(batch(1, 8))
    before = train(engine, captured, unit)[1]
    engine.evaluate(unit, captured.parameters)
    assert np.array_equal(train(engine, captured, unit)[1], before)


def test_what_is_not_finite_is_passed_on(engine, captured):
    result, update = train(engine, captured, work(batch(1, 4)), captured.parameters * np.nan)
    assert np.isnan(result.loss)
    assert np.isnan(update).any()


@pytest.mark.parametrize(
    "fields",
    [
        (np.zeros((4, 12), np.uint8),),
        (np.zeros((4, 12), np.float32), np.zeros(4, np.uint8)),
        (np.zeros((4, 11), np.uint8), np.zeros(4, np.uint8)),
        (np.zeros((4, 12), np.uint8), np.zeros(3, np.uint8)),
        (np.zeros((0, 12), np.uint8), np.zeros(0, np.uint8)),
        (np.zeros((12, 4), np.uint8).T, np.zeros(4, np.uint8)),
    ],
)
def test_batches_that_do_not_fit_are_refused_before_memory_is_touched(engine, captured, fields):
    with pytest.raises(DataMalformed):
        train(engine, captured, work(Batch(number=0, fields=fields)))


def test_vectors_that_do_not_fit_are_refused(engine, captured):
    unit, good = work(batch(0, 4)), captured.parameters.copy()
    for bad in (good[:-1], good.astype(np.float64), np.zeros(2 * good.size, np.float32)[::2]):
        with pytest.raises(DataMalformed):
            engine.train(unit, bad, good)
        with pytest.raises(DataMalformed):
            engine.train(unit, good, bad)
        with pytest.raises(DataMalformed):
            engine.evaluate(unit, bad)


def test_a_label_out_of_range_is_an_error_with_the_batch_in_it(engine, captured):
    wrong = Batch(number=31, fields=(np.zeros((2, 12), np.uint8), np.full(2, 200, np.uint8)))
    with pytest.raises(ProgramError, match="batch 31"):
        train(engine, captured, work(wrong))
    train(engine, captured, work(batch(0, 2)))  # and the engine still works


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
