"""Whether the torch engine computes on a GPU what it computes on a CPU, where the tests compare it
with onnxruntime: noise to the last bit, units of small models within the bounds of the gate."""

from __future__ import annotations

import copy
import mmap
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from _gpu_cases import Subject, spec_of, unit_of
from torch import Tensor, nn

from crowdgrad.domain.data import Field
from crowdgrad.domain.program import NoiseSpec, ProgramSpec
from crowdgrad.domain.work import LocalRule
from crowdgrad.numerics import noise
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.rules import OPTIMISERS
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.torch import TorchEngine, TorchOptions
from crowdgrad.program.engines.torch_feed import pin
from crowdgrad.program.engines.torch_noise import DeviceNoise

SIZES = (8, 5, 8, 8, 2, 8, 8)
"""From the third batch of a size on the GPU replays a recording."""
PIXELS = Field(name="pixels", dtype="uint8", shape=(3, 8, 8), mean=120.0, std=60.0)
LABEL = Field(name="label", dtype="int64", shape=())


def check_noise(device: torch.device) -> float:
    """How many numbers differ in any bit from numpy's, over kinds, shapes, seeds and streams."""
    kinds = (("uniform", (33, 7)), ("normal", (1001,)), ("uniform", ()), ("normal", (64, 64)))
    specs = [
        NoiseSpec(name=f"n{i}", kind=kind, shape=shape, per_sample=i % 3 != 2)  # type: ignore[arg-type]
        for i, (kind, shape) in enumerate(kinds)
    ]
    wrong = 0
    for first in (0, noise.FORWARD_STREAM):
        maker = DeviceNoise(specs, device, first)
        for seed, epoch, number, samples in ((0, 0, 0, 1), (2**64 - 3, 7, 2**32 - 1, 65)):
            made = maker.make_here(seed, epoch, number, samples)
            for index, (spec, got) in enumerate(zip(specs, made, strict=True)):
                wanted = noise.fill(spec, seed, epoch, number, first + index, samples)
                bits = np.ascontiguousarray(got.cpu().numpy()).view(np.uint32)
                wrong += int((bits != wanted.view(np.uint32)).sum())
    return wrong


def check_pinning() -> float:
    """Whether shared memory can be pinned, and copies through it are right."""
    memory = mmap.mmap(-1, 1 << 20)
    pin(memoryview(memory))
    vector = torch.from_numpy(np.frombuffer(memory, np.float32))
    vector.copy_(torch.arange(len(vector)))
    there = vector.to("cuda", non_blocking=True)
    vector.copy_(there + 1, non_blocking=True)
    torch.cuda.synchronize()
    right = bool((vector == torch.arange(1, len(vector) + 1)).all())
    return float(right and vector.is_pinned())


class Sampler(nn.Module):
    """Draws normal noise while it trains, as a variational autoencoder does."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Linear(192, 16)
        self.out = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.mean(x.flatten(1))
        return self.out(hidden + 0.3 * torch.randn_like(hidden))


def _models() -> dict[str, tuple[nn.Module, tuple[NoiseSpec, ...]]]:
    torch.manual_seed(3)
    mlp = nn.Sequential(
        nn.Flatten(), nn.Linear(192, 64), nn.Tanh(), nn.Dropout(0.25), nn.Linear(64, 10)
    )
    conv = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2),
        nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10),
    )  # fmt: skip
    conv[0].bias.requires_grad_(False)
    dropped = NoiseSpec(name="dropped", kind="uniform", shape=(64,), per_sample=True)
    drawn = NoiseSpec(name="drawn", kind="normal", shape=(16,), per_sample=True)
    return {"mlp": (mlp, (dropped,)), "conv": (conv, ()), "sampler": (Sampler(), (drawn,))}


def check_models(device: torch.device) -> dict[str, float]:
    """The worst error of any model, by precision, and of any rule, in millionths."""
    fp32, bf16, rules = [], [], []
    with _exact():
        for model, drawn in _models().values():
            fp32.append(_error(model, drawn, TorchOptions(device=str(device), channels_last=False)))
            fp32.append(_error(model, drawn, TorchOptions(device=str(device), channels_last=True)))
            bf16.append(_error(model, drawn, TorchOptions(device=str(device), bf16=True)))
        model, drawn = _models()["mlp"]
        rules = [
            _error(model, drawn, TorchOptions(device=str(device)), name) for name in OPTIMISERS
        ]
    worst = {
        "fp32_error_ppm": max(fp32),
        "bf16_error_ppm": max(bf16),
        "rules_error_ppm": max(rules),
    }
    return {name: 1e6 * error for name, error in worst.items()}


def _error(
    model: nn.Module, drawn: tuple[NoiseSpec, ...], options: TorchOptions, rule: str = ""
) -> float:
    """Of an update; with a rule, of the weights after a unit with everything on."""
    spec = spec_of(model, (PIXELS, LABEL), drawn)
    tensors = (*model.named_parameters(), *model.named_buffers())
    state = StateLayout(spec).pack({n: t.detach().numpy().copy() for n, t in tensors})
    batches = [_batch(number, size) for number, size in enumerate(SIZES)]
    if rule:
        settled = unit_of(
            batches, 8, LocalRule(name=rule), 0.01, "weights", clip=0.5, l1=1e-3, l2=1e-2
        )
    else:
        few = batches[:1] if options.bf16 else batches  # steps would add up what rounding did
        settled = unit_of(few, 8, LocalRule(), 0.01)
    run = _runner(spec, model, settled, state)
    got, wanted = run(options), run(TorchOptions())
    error = float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
    return error if np.isfinite(error) else float("inf")


def _runner(
    spec: ProgramSpec, model: nn.Module, work: UnitWork, state: Vector
) -> Callable[[TorchOptions], Vector]:
    def run(options: TorchOptions) -> Vector:
        subject = Subject(copy.deepcopy(model), F.cross_entropy, (PIXELS, LABEL))
        update: Vector = np.full(spec.update_words, np.nan, np.float32)
        engine = TorchEngine(spec, subject, options)
        engine.train(work, state, update)
        return _as_numbers(spec, update)

    return run


def _as_numbers(spec: ProgramSpec, update: Vector) -> Vector:
    """Gradients, and buffers with counters as the numbers they are; not the gaps in between."""
    layout = StateLayout(spec)
    parts = [update[: spec.size]]
    parts += [np.ravel(value).astype(np.float32) for _, value in layout.buffers(update)]
    return np.concatenate(parts)


def _batch(number: int, samples: int) -> Batch:
    random = np.random.default_rng(number)
    pixels = random.integers(0, 256, (samples, *PIXELS.shape), dtype=np.uint8)
    return Batch(number=number, fields=(pixels, random.integers(0, 10, samples)))


class _exact:
    """Without TF32, whose ten bits would hide a mistake."""

    def __enter__(self) -> None:
        self._before = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = False

    def __exit__(self, *_: object) -> None:
        torch.backends.cudnn.allow_tf32 = self._before
