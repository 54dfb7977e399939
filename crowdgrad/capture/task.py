"""A task: what the host's owner writes. A model, a loss, and one example batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from crowdgrad.capture.metrics import Metric, MetricFunction, as_metrics, correct
from crowdgrad.errors import TaskError

Loss = Callable[..., Tensor | Mapping[str, Tensor]]
"""`loss(model(*inputs), *targets)` → one number; or one for each sample, which are then weighted;
or {"group": number}, each number teaching the parameters below that name only."""
ACCURACY: Final = Metric(correct)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Training starts from the weights `model` holds; the task never changes them."""

    model: nn.Module
    loss: Loss
    inputs: tuple[Tensor, ...]
    """One example batch: what the model reads, the batch dimension first."""
    targets: tuple[Tensor, ...] = ()
    """What the loss compares the model's output with."""
    metrics: Mapping[str, Metric | MetricFunction] | None = None
    """None: accuracy where the task is a classification; {}: none, the loss is watched."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise TaskError(f"the model is a {type(self.model).__name__}, not a torch.nn.Module.")
        if not callable(self.loss):
            raise TaskError(f"the loss is a {type(self.loss).__name__}, not a function.")
        for name in ("inputs", "targets"):
            object.__setattr__(self, name, _tensors(name, getattr(self, name)))
        if not self.inputs:
            raise TaskError("the task has no example inputs.", advice="Pass inputs=(x,).")
        sizes = {len(tensor) for tensor in self.example}
        if len(sizes) != 1 or 0 in sizes:
            raise TaskError(
                f"the example tensors have batch sizes {sorted(sizes)}.",
                advice="All inputs and targets hold the same number of samples, at least one.",
            )

    @property
    def example(self) -> tuple[Tensor, ...]:
        """Inputs, then targets: the order of the record fields."""
        return (*self.inputs, *self.targets)


def resolve_metrics(task: Task, output: object) -> dict[str, Metric]:
    """The task's metrics; for a classification that names none, accuracy."""
    if task.metrics is not None:
        return as_metrics(task.metrics)
    if len(task.targets) != 1 or not isinstance(output, Tensor) or output.dim() not in (2, 3):
        return {}
    target = task.targets[0]
    whole = not target.is_floating_point() and target.dtype != torch.bool
    fits = target.shape == output.shape[:-1] and output.shape[-1] > 1
    # In (batch, n, n) the classes may stand in either: who knows names the metric.
    clear = output.dim() == 2 or output.shape[1] != output.shape[2]
    return {"accuracy": ACCURACY} if whole and fits and clear else {}


def _tensors(name: str, value: object) -> tuple[Tensor, ...]:
    items = value if isinstance(value, (tuple, list)) else (value,)
    for item in items:
        if not isinstance(item, Tensor) or item.dim() == 0:
            raise TaskError(
                f"{name} must be tensors, the batch dimension first, not {type(item).__name__}.",
                advice=f"Pass {name}=(torch.tensor(...),).",
            )
        if item.device.type != "cpu":
            raise TaskError(
                f"{name} lie on {item.device}.", advice="Example tensors live on the CPU: x.cpu()."
            )
    return tuple(item.detach() for item in items)
