"""Models as the torch engine takes them, uncaptured: no ONNX is at hand on a GPU box."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from crowdgrad.domain.data import Field
from crowdgrad.domain.program import MetricSpec, NoiseSpec, ProgramSpec, TensorSpec
from crowdgrad.domain.work import LocalRule, LocalSteps, Returns, Unit, UnitId
from crowdgrad.program.engines.base import Batch, UnitWork

CHANGING = ("running_mean", "running_var", "num_batches_tracked")


class Subject:
    """Model and loss of stored batches: one input, one target, and the loss as a metric."""

    groups: Mapping[str, tuple[str, ...]] = {}

    def __init__(
        self, model: nn.Module, loss: Callable[..., Tensor], fields: tuple[Field, ...]
    ) -> None:
        self.model = model
        self.loss = loss
        self._fields = fields

    def run(self, stored: Sequence[Tensor]) -> tuple[Any, dict[str, Tensor]]:
        inputs, targets = (_read(f, c) for f, c in zip(self._fields, stored, strict=True))
        output = self.model(inputs)
        return output, {"": self.loss(output, targets).to(torch.float32)}

    def evaluate(self, stored: Sequence[Tensor]) -> tuple[Any, Tensor, dict[str, Tensor]]:
        output, losses = self.run(stored)
        return output, losses[""], {"loss_again": losses[""]}


def spec_of(
    model: nn.Module, fields: tuple[Field, ...], noise: tuple[NoiseSpec, ...] = ()
) -> ProgramSpec:
    buffers = [_tensor(name, value) for name, value in model.named_buffers()]
    return ProgramSpec(
        parameters=tuple(_tensor(name, value) for name, value in model.named_parameters()),
        buffers=tuple(t for t in buffers if t.name.endswith(CHANGING)),
        fixed=tuple(t for t in buffers if not t.name.endswith(CHANGING)),
        inputs=tuple(TensorSpec(name=f.name, dtype=f.dtype, shape=f.shape) for f in fields),
        noise=noise,
        metrics=(MetricSpec(name="loss_again", better="lower"),),
        outputs=1,
        work_per_sample=1.0,
        opset=18,
        frozen=tuple(n for n, p in model.named_parameters() if not p.requires_grad),
    )


def unit_of(
    batches: Sequence[Batch],
    size: int,
    rule: LocalRule,
    rate: float,
    returns: Returns = "gradients",
    **local: float,
) -> UnitWork:
    unit = Unit(id=UnitId(1), kind="train", epoch=1, shard=0, first_batch=0, batches=len(batches))
    steps = LocalSteps(
        batch_size=size, batches_per_unit=len(batches), rule=rule, returns=returns,
        **local,  # type: ignore[arg-type]
    )  # fmt: skip
    return UnitWork(unit=unit, local=steps, seed=7, batches=batches, rate=rate)


def _tensor(name: str, value: Tensor) -> TensorSpec:
    dtype: Any = str(value.dtype).removeprefix("torch.")
    return TensorSpec(name=name, dtype=dtype, shape=tuple(value.shape))


def _read(field: Field, stored: Tensor) -> Tensor:
    if field.mean is None or field.std is None:
        return stored
    return (stored.to(torch.float32) - field.mean) / field.std
