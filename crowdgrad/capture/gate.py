"""The gate: no program is published unless it computes what autograd computes.

Exporters go wrong silently: a batch normalisation in the wrong mode, a dropout left out, and
nothing raises. So both graphs run on fresh random batches of several sizes, with the same noise,
against PyTorch itself, and the relative L2 distance of the loss, of every gradient and of every
metric must stay below a bound. An activation within rounding of a kink (ReLU at 0) can flip between
two correct engines, so of three draws one may miss the bound; a wrong program misses it on all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from crowdgrad.capture.fields import Reader
from crowdgrad.capture.replay import Replay
from crowdgrad.capture.task import Loss, Metric
from crowdgrad.domain.program import Program
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.errors import GateError
from crowdgrad.numerics import noise as philox
from crowdgrad.numerics.layout import Layout
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine

BOUND: Final = 1e-4
SIZES: Final = (1, 6)
_DRAWS: Final = 3
_FLOOR: Final = 1e-3
"""A gradient this much smaller than the whole may be all rounding: the whole is its scale."""
_SEED: Final = 0x67617465

Errors = dict[str, float]
"""Relative L2 distance by tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What PyTorch is asked to compute for comparison."""

    model: nn.Module
    loss: Loss
    metrics: Mapping[str, Metric]
    readers: tuple[Reader, ...]

    def split(self, stored: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        read = [reader.read(column) for reader, column in zip(self.readers, stored, strict=True)]
        inputs = sum(reader.is_input for reader in self.readers)
        return read[:inputs], read[inputs:]


def pass_gate(program: Program, parameters: NDArray[np.float32], subject: Subject) -> float:
    """The largest gradient error; GateError, naming the tensor, where the bound is missed."""
    gate = _Gate(
        engine=OnnxEngine(program),
        program=program,
        parameters=parameters,
        subject=subject,
        generator=torch.Generator().manual_seed(_SEED),
    )
    worst = 0.0
    for size in SIZES:
        errors = gate.draw(size)
        if max(errors.values()) > BOUND:
            again = [gate.draw(size) for _ in range(_DRAWS - 1)]
            if any(max(other.values()) > BOUND for other in again):
                raise _refusal(errors, size)
            errors = again[0]
        worst = max(worst, *(error for name, error in errors.items() if name.startswith("g:")))
    return worst


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    engine: OnnxEngine
    program: Program
    parameters: NDArray[np.float32]
    subject: Subject
    generator: torch.Generator

    def draw(self, size: int) -> Errors:
        """How far program and PyTorch are apart on one fresh batch."""
        stored = [reader.draw(size, self.generator) for reader in self.subject.readers]
        number = int(torch.randint(0, 1 << 20, (1,), generator=self.generator))
        batch = Batch(number=number, fields=tuple(column.numpy() for column in stored))
        unit = Unit(id=UnitId(0), kind="train", epoch=1, shard=0, first_batch=number, batches=1)
        local = LocalSteps(batch_size=size)
        work = UnitWork(unit=unit, local=local, seed=_SEED, batches=[batch])
        return {**self._training(stored, work), **self._evaluation(stored, work)}

    def _training(self, stored: list[Tensor], work: UnitWork) -> Errors:
        update = np.empty_like(self.parameters)
        result = self.engine.train(work, self.parameters, update)
        loss, wanted = self._autograd(stored, work)
        whole = math.hypot(*(float(np.linalg.norm(g.ravel())) for g in wanted.values()))
        errors = {"loss": _distance(result.loss, loss, 1e-6)}
        for spec, got in Layout(self.program.spec.parameters).views(update):
            errors[f"g:{spec.name}"] = _distance(got, wanted[spec.name], _FLOOR * whole)
        return errors

    def _autograd(
        self, stored: list[Tensor], work: UnitWork
    ) -> tuple[float, dict[str, NDArray[np.float32]]]:
        model = self.subject.model.train()
        place = (work.seed, work.unit.epoch, work.batches[0].number)
        noise = (
            torch.from_numpy(philox.fill(spec, *place, stream, len(stored[0])))
            for stream, spec in enumerate(self.program.spec.noise)
        )
        inputs, targets = self.subject.split(stored)
        with Replay(noise):
            loss = self.subject.loss(model(*inputs), *targets)
        named = dict(model.named_parameters())
        wanted = [name for name, parameter in named.items() if parameter.requires_grad]
        found = torch.autograd.grad(loss, [named[name] for name in wanted], allow_unused=True)
        gradients = {name: np.zeros(tuple(p.shape), np.float32) for name, p in named.items()}
        for name, gradient in zip(wanted, found, strict=True):
            if gradient is not None:
                gradients[name] = gradient.numpy()
        return float(loss.detach()), gradients

    def _evaluation(self, stored: list[Tensor], work: UnitWork) -> Errors:
        result = self.engine.evaluate(work, self.parameters)
        outputs = self.engine.predict(work.batches[0], self.parameters)
        model = self.subject.model.eval()
        inputs, targets = self.subject.split(stored)
        with torch.no_grad():
            output = model(*inputs)
            loss = float(self.subject.loss(output, *targets))
            metrics = {n: float(m(output, *targets)) for n, m in self.subject.metrics.items()}
        errors = {"evaluation loss": _distance(result.loss, loss, 1e-6)}
        for name, wanted in metrics.items():
            errors[f"metric {name}"] = _distance(result.metrics[name], wanted, 1e-6)
        for index, (got, leaf) in enumerate(zip(outputs, pytree.tree_leaves(output), strict=True)):
            errors[f"output {index}"] = _distance(got, leaf.numpy(), 1e-6)
        return errors


def _distance(got: ArrayLike, want: ArrayLike, floor: float) -> float:
    wanted = np.asarray(want, np.float64)
    error = float(np.linalg.norm((np.asarray(got, np.float64) - wanted).ravel()))
    if not math.isfinite(error):
        return math.inf
    return error / max(float(np.linalg.norm(wanted.ravel())), floor, 1e-30)


def _refusal(errors: Errors, size: int) -> GateError:
    name, error = max(errors.items(), key=lambda item: item[1])
    what = f"the gradient of {name[2:]!r}" if name.startswith("g:") else f"the {name}"
    return GateError(
        f"{what} differs from PyTorch's by {error:.1e} (relative L2, batch of {size}; "
        f"at most {BOUND:.0e} is allowed).",
        advice="Nothing was published. An operator is captured wrongly: try layer by layer.",
    )
