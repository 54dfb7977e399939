"""The torch engine on a GPU: is it right, and how near is it to a plain PyTorch loop?

NAME_vs_plain   samples/s of the engine over those of a plain loop: the same model, autocast,
                optimiser (PyTorch's fused one in the loop), batches in pinned memory moved one by
                one; a window is a unit of 100 batches, and the engine's includes moving the whole
                state in and the whole update out. Windows alternate.
NAME_per_s      samples/s of the engine
..._launched    without CUDA graphs: every kernel launched anew, as the plain loop does
..._weights     returns weights instead of the sum of gradients; ..._pageable: batches in ordinary
                memory, as a volunteer has them
*_error_ppm     how far the GPU is from the CPU on small models: relative L2, in millionths, the
                worst of all; at most 100 in float32 and 50000 in bfloat16
pinning_works   1 where memory shared between processes can be pinned
noise_wrong     numbers of the noise that are not bit for bit those of numpy

Needs torch, numpy and the source tree, nothing else:

    python benchmarks/gpu.py --json -          --device cpu tries the script itself, on tiny models
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))  # nothing is installed there
sys.path.insert(0, str(Path(__file__).parent))

from _gpu_cases import Subject, spec_of, unit_of
from _gpu_checks import check_models, check_noise, check_pinning
from _large import gpt, next_token_loss, resnet18
from _report import Report

from crowdgrad.domain.data import Field
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import LocalRule
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.torch import TorchEngine, TorchOptions

BATCHES = 100
RATE = 1e-3
PIXELS = Field(name="pixels", dtype="uint8", shape=(3, 32, 32), mean=120.0, std=60.0)
LABEL = Field(name="label", dtype="int64", shape=())


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    model: Callable[[], nn.Module]
    loss: Callable[..., Tensor]
    fields: tuple[Field, ...]
    classes: int
    batch: int
    rule: LocalRule
    optimiser: Callable[[Sequence[Tensor]], torch.optim.Optimizer]
    bf16: bool = False
    channels_last: bool = False


def cases(tiny: bool) -> list[Case]:
    def sgd(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, RATE, momentum=0.9, fused=True)

    def adamw(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, RATE, weight_decay=0.01, fused=True)

    length = 16 if tiny else 256
    ids = Field(name="ids", dtype="int64", shape=(length,))
    image = Case(
        name="resnet18", model=lambda: resnet18(width=4 if tiny else 64), loss=F.cross_entropy,
        fields=(PIXELS, LABEL), classes=10, batch=8 if tiny else 256,
        rule=LocalRule(name="momentum", settings={"momentum": 0.9}), optimiser=sgd,
        bf16=True, channels_last=True,
    )  # fmt: skip
    text = Case(
        name="gpt25m_bf16", loss=next_token_loss, fields=(ids, replace(ids, name="next")),
        model=lambda: gpt(length=length, width=16, layers=1) if tiny else gpt(),
        classes=256, batch=4 if tiny else 64, bf16=True,
        rule=LocalRule(name="adamw", settings={"decay": 0.01}), optimiser=adamw,
    )  # fmt: skip
    fp32 = replace(image, bf16=False)
    return [
        image,
        text,
        replace(fp32, name="resnet18_fp32", channels_last=False),
        replace(fp32, name="resnet18_fp32_channels_last"),
    ]


class Plain:
    """What somebody writes who trains this model on this GPU."""

    def __init__(self, case: Case, device: torch.device) -> None:
        self._case = case
        self._device = device
        self._model = case.model().to(device)
        if case.channels_last:
            self._model = self._model.to(memory_format=torch.channels_last)
        self._optimiser = case.optimiser(list(self._model.parameters()))

    def run(self, batches: list[tuple[Tensor, ...]]) -> float:
        losses = []
        self._model.train()
        for inputs, targets in batches:
            x = inputs.to(self._device, non_blocking=True)
            y = targets.to(self._device, non_blocking=True)
            if x.dtype == torch.uint8:
                x = (x.to(torch.float32) - 120.0) / 60.0
                if self._case.channels_last:
                    x = x.to(memory_format=torch.channels_last)
            self._optimiser.zero_grad(set_to_none=True)
            with torch.autocast(self._device.type, torch.bfloat16, enabled=self._case.bf16):
                loss = self._case.loss(self._model(x), y)
            loss.backward()
            self._optimiser.step()
            losses.append(loss.detach())
        return float(torch.stack(losses).mean())  # waits for the device


class Ours:
    """The same through the engine."""

    def __init__(self, case: Case, device: torch.device, *, graphs: bool = True) -> None:
        subject = Subject(case.model(), case.loss, case.fields)
        self.spec: ProgramSpec = spec_of(subject.model, case.fields)
        self._layout = StateLayout(self.spec)
        tensors = (*subject.model.named_parameters(), *subject.model.named_buffers())
        arrays = {name: tensor.detach().numpy().copy() for name, tensor in tensors}
        self._state = host_vector(self.spec.state_words, device)
        self._state[:] = self._layout.pack(arrays)
        self._update = host_vector(self.spec.update_words, device)
        options = TorchOptions(
            device=str(device), bf16=case.bf16, channels_last=case.channels_last, graphs=graphs
        )
        self._engine = TorchEngine(self.spec, subject, options)

    def run(self, work: UnitWork) -> float:
        return self._engine.train(work, self._state, self._update).loss


def host_vector(words: int, device: torch.device) -> Vector:
    """Pinned, as a trainer pins the memory it shares with its agent."""
    vector: Vector = torch.empty(words, pin_memory=device.type == "cuda").numpy()
    return vector


def make_batches(case: Case, device: torch.device, *, pinned: bool) -> list[Batch]:
    random = np.random.default_rng(0)
    made = []
    for number in range(BATCHES):
        columns = []
        for field in case.fields:
            high = 256 if field.dtype == "uint8" else case.classes
            values = random.integers(0, high, (case.batch, *field.shape), dtype=field.dtype)
            tensor = torch.from_numpy(values)
            columns.append(tensor.pin_memory().numpy() if pinned else values)
        made.append(Batch(number=number, fields=tuple(columns)))
    return made


def seconds(run: Callable[[], float], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    loss = run()
    spent = time.perf_counter() - began
    assert np.isfinite(loss), loss
    return spent


def measure(case: Case, device: torch.device, report: Report, windows: int, main: bool) -> None:
    on_gpu = device.type == "cuda"
    batches = make_batches(case, device, pinned=on_gpu)
    tensors = [tuple(torch.from_numpy(column) for column in b.fields) for b in batches]
    plain, ours = Plain(case, device), Ours(case, device)
    work = unit_of(batches, case.batch, case.rule, RATE)
    runs: dict[str, Callable[[], float]] = {
        "plain": lambda: plain.run(tensors),
        "": lambda: ours.run(work),
    }
    if main:
        ordinary = replace(work, batches=make_batches(case, device, pinned=False))
        weights = replace(work, local=replace(work.local, returns="weights"))
        launched = Ours(case, device, graphs=False)
        runs |= {
            "_launched": lambda: launched.run(work),
            "_weights": lambda: ours.run(weights),
            "_pageable": lambda: ours.run(ordinary),
        }
    for run in runs.values():  # kernels chosen, memory there
        seconds(run, device)
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(windows):
        for name, run in runs.items():
            spent[name].append(seconds(run, device))
    base = spent.pop("plain")
    for name, times in spent.items():
        ratios = [b / t for b, t in zip(base, times, strict=True)]
        report.add(f"{case.name}{name}_vs_plain", ratios)
    report.add(f"{case.name}_per_s", [BATCHES * case.batch / t for t in spent[""]])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the same figures, less exactly")
    parser.add_argument("--json", metavar="FILE", help="write the figures; - for stdout")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the script")
    parser.add_argument("--no-speed", action="store_true", help="only whether it is right")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit(
            f"PyTorch {torch.__version__} finds no CUDA device; --device cpu tries the script."
        )
    report = Report("gpu", args.quick)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # for both; sizes do not change
        report.machine["gpu"] = torch.cuda.get_device_name(device)
        report.add("pinning_works", [check_pinning()])
    report.add("noise_wrong", [check_noise(device)])
    for name, error in check_models(device).items():
        report.add(name, [error])
    for number, case in enumerate([] if args.no_speed else cases(tiny=device.type == "cpu")):
        measure(case, device, report, 5 if args.quick else 9, main=number < 2)
    report.write(args.json)
    if "OUT" in os.environ:
        report.write(str(Path(os.environ["OUT"], "gpu.json")))


if __name__ == "__main__":
    main()
