"""The torch engine: the contract, and what it has of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crowdgrad.domain.program import NoiseSpec, ProgramSpec, TensorSpec
from crowdgrad.domain.work import LocalRule
from crowdgrad.errors import GateError, ProgramError
from crowdgrad.numerics import noise
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.program.engines.base import Batch
from crowdgrad.program.engines.torch import TorchEngine, TorchOptions
from crowdgrad.program.engines.torch_feed import Feed
from crowdgrad.program.engines.torch_noise import SIZES_KEPT, DeviceNoise
from tests.contracts.engine_contract import EngineContract, Job, work

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "noise.json").read_text())
CPU = torch.device("cpu")


class TestTorchEngine(EngineContract):
    def make(self, job: Job) -> TorchEngine:
        return TorchEngine(job.captured.program.spec, job.objective(), TorchOptions())


class Images(nn.Module):
    """Convolutions, and a buffer that is put elsewhere with every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 3, 1)
        self.last = nn.Linear(48, 3)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = 0.5 * self.seen + x.mean((0, 2, 3))
        hidden = torch.tanh(self.norm(self.first(x)))
        return self.last(self.second(hidden).flatten(1))


class Subject:
    loss = groups = None

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.groups = {}

    def run(self, stored):
        output = self.model(stored[0])
        return output, {"": F.cross_entropy(output, stored[1])}

    def evaluate(self, stored):
        output, losses = self.run(stored)
        return output, losses[""], {}


def images() -> Images:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return Images()


def spec_of(model: nn.Module) -> ProgramSpec:
    def tensors(some):
        return tuple(
            TensorSpec(name=n, dtype=str(t.dtype)[6:], shape=tuple(t.shape)) for n, t in some
        )

    return ProgramSpec(
        parameters=tensors(model.named_parameters()),
        buffers=tensors(model.named_buffers()),
        inputs=(
            TensorSpec(name="x", dtype="float32", shape=(2, 4, 4)),
            TensorSpec(name="y", dtype="int64", shape=()),
        ),
        noise=(),
        metrics=(),
        outputs=1,
        work_per_sample=1.0,
        opset=18,
    )


def state_of(model: nn.Module, spec: ProgramSpec):
    every = (*model.named_parameters(), *model.named_buffers())
    return StateLayout(spec).pack({n: t.detach().numpy().copy() for n, t in every})


def image_batch(number: int, samples: int = 6) -> Batch:
    random = np.random.default_rng(number)
    pixels = random.standard_normal((samples, 2, 4, 4), np.float32)
    return Batch(number=number, fields=(pixels, random.integers(0, 3, samples)))


def image_unit(rule: str = "adam"):
    batches = [image_batch(number) for number in range(3)]
    return work(*batches, rule=LocalRule(name=rule), returns="weights")


def update_of(options: TorchOptions, unit=None):
    """What an engine of a new module returns for the unit."""
    model = images()
    spec = spec_of(model)
    state = state_of(model, spec)
    update = np.zeros(spec.update_words, np.float32)
    TorchEngine(spec, Subject(model), options).train(unit or image_unit(), state, update)
    return spec, update


def test_channels_last_changes_the_memory_and_no_result():
    spec, straight = update_of(TorchOptions())
    _, turned = update_of(TorchOptions(channels_last=True))
    for (tensor, one), (_, other) in zip(
        StateLayout(spec).parameters.views(straight[: spec.size]),
        StateLayout(spec).parameters.views(turned[: spec.size]),
        strict=True,
    ):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-5, err_msg=tensor.name)


def test_bfloat16_is_near_and_not_the_same():
    unit = work(image_batch(1, 32))
    spec, exact = update_of(TorchOptions(), unit)
    _, coarse = update_of(TorchOptions(bf16=True), unit)
    size = spec.size
    error = np.linalg.norm(coarse[:size] - exact[:size]) / np.linalg.norm(exact[:size])
    assert 1e-4 < error < 5e-2


def test_a_buffer_that_the_module_replaces_is_followed():
    spec, update = update_of(TorchOptions())
    seen = np.zeros(2, np.float32)
    for number in range(3):
        seen = np.float32(0.5) * seen + image_batch(number).fields[0].mean((0, 2, 3))
    found = {tensor.name: value for tensor, value in StateLayout(spec).buffers(update)}
    np.testing.assert_allclose(found["seen"], seen, rtol=1e-4, atol=1e-6)
    assert found["norm.num_batches_tracked"] == 3


def test_a_batch_that_failed_leaves_nothing_of_its_buffers():
    model = images()
    spec = spec_of(model)
    state, update = state_of(model, spec), np.zeros(spec.update_words, np.float32)
    engine = TorchEngine(spec, Subject(model), TorchOptions())
    pixels, classes = image_batch(7).fields
    odd = Batch(number=7, fields=(pixels, classes + 3))  # no such classes: the loss fails
    with pytest.raises(ProgramError, match="batch 7"):
        engine.train(work(odd), state, update)
    engine.train(image_unit(), state, update)
    np.testing.assert_array_equal(update, update_of(TorchOptions())[1])


class Unreadable(Sequence):
    """Batches of which the second cannot be gathered."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index == 1:
            raise IndexError("record 99 is out of bounds")
        return image_batch(index)


def test_a_mistake_in_gathering_records_is_not_the_end_of_the_unit():
    with pytest.raises(IndexError, match="record 99"):
        list(Feed(spec_of(images()), CPU).batches(Unreadable()))


def test_the_module_of_a_unit_is_plain_pytorch_stepping():
    model = images()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for number in range(3):
        x, y = (torch.from_numpy(column) for column in image_batch(number).fields)
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    spec, update = update_of(TorchOptions())
    got = {t.name: v for t, v in StateLayout(spec).parameters.views(update[: spec.size])}
    for name in ("first.weight", "second.bias", "last.weight"):
        wanted = dict(model.named_parameters())[name].detach().numpy()
        np.testing.assert_allclose(got[name], wanted, rtol=1e-3, atol=1e-4, err_msg=name)


def test_inside_exact_there_is_no_bfloat16():
    model = images()
    spec = spec_of(model)
    state, one = state_of(model, spec), image_batch(1)
    engine = TorchEngine(spec, Subject(model), TorchOptions(bf16=True))
    with engine.exact():
        (exact,) = engine.predict(one, state)
    (coarse,) = engine.predict(one, state)
    plain = TorchEngine(spec, Subject(images()), TorchOptions())
    assert np.array_equal(exact, plain.predict(one, state)[0])
    assert not np.array_equal(coarse, exact)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: setattr(m, "last", nn.Linear(48, 4)), r"'last.weight' is float32\(4, 48\)"),
        (lambda m: setattr(m, "more", nn.Linear(1, 1)), "parameter 'more.weight' that the program"),
        (lambda m: delattr(m, "second"), "no parameter 'second.weight'"),
        (lambda m: m.register_buffer("mask", torch.ones(1)), "buffer 'mask'"),
    ],
)
def test_another_module_is_refused_with_the_difference(change, said):
    spec, model = spec_of(images()), images()
    change(model)
    with pytest.raises(GateError, match=said):
        TorchEngine(spec, Subject(model), TorchOptions())


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # PyTorch's compiler uses its own old parts
def test_a_compiled_model_gives_the_same():
    _, plain = update_of(TorchOptions())
    _, compiled = update_of(TorchOptions(compile=True))
    size = spec_of(images()).size
    error = np.linalg.norm(compiled[:size] - plain[:size]) / np.linalg.norm(plain[:size])
    assert error < 1e-4


@pytest.mark.parametrize("case", VECTORS["numbers"])
def test_noise_by_tensor_operations_matches_the_vectors(case):
    count, stream = len(case["bits"]), case["stream"]
    spec = NoiseSpec(name="z", kind=case["kind"], shape=(count,), per_sample=False)
    maker = DeviceNoise([spec], CPU, stream)
    (made,) = maker.make_here(int(case["seed"]), case["epoch"], case["batch"], 1)
    assert [f"{bits:08x}" for bits in made.numpy().view(np.uint32)] == case["bits"]


def test_noise_tensors_made_together_are_those_made_alone():
    kinds = (("uniform", (7, 3)), ("normal", (5, 101)), ("uniform", ()), ("normal", (2,)))
    specs = [
        NoiseSpec(name=f"z{i}", kind=kind, shape=shape, per_sample=i != 3)
        for i, (kind, shape) in enumerate(kinds)
    ]
    for first in (0, noise.FORWARD_STREAM):
        maker = DeviceNoise(specs, CPU, first)
        for place in ((2**64 - 3, 5, 2**32 - 1, 6), (9, 2**32 - 1, 0, 33)):
            for index, (spec, made) in enumerate(zip(specs, maker.make_here(*place), strict=True)):
                *where, samples = place
                wanted = noise.fill(spec, *where, first + index, samples)
                bits = np.ascontiguousarray(made.numpy()).view(np.uint32)
                assert np.array_equal(bits, wanted.view(np.uint32))


def test_counters_of_few_batch_sizes_are_kept():
    spec = NoiseSpec(name="z", kind="uniform", shape=(3,), per_sample=True)
    maker = DeviceNoise([spec], CPU)
    for samples in range(1, SIZES_KEPT + 5):
        maker.make_here(1, 0, 0, samples)
    assert list(maker._groups) == list(range(5, SIZES_KEPT + 5))
    (again,) = maker.make_here(1, 0, 0, 2)
    assert np.array_equal(again.numpy(), noise.fill(spec, 1, 0, 0, 0, 2))
