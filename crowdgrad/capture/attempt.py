"""The task tried as it is, in plain PyTorch, before anything is captured.

What it does tells us what it is: one loss, a loss for each sample or for each group of parameters;
how many tensors the model returns; whether it can train on a single sample; which parameters its
loss never reaches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from crowdgrad.capture.advice import user_line
from crowdgrad.capture.groups import taught_by
from crowdgrad.capture.holdings import Holdings
from crowdgrad.capture.metrics import Metric
from crowdgrad.capture.objective import Objective, loss_name
from crowdgrad.capture.task import Task, resolve_metrics
from crowdgrad.errors import TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one run of the task showed."""

    metrics: dict[str, Metric]
    outputs: int
    """How many tensors the model returns."""
    weighted: bool
    groups: dict[str, tuple[str, ...]]


def attempt(task: Task, holdings: Holdings) -> Attempt:
    """Run the task once; TaskError where it fails or gives something other than numbers."""
    _refuse_learning_loss(task, holdings)
    task.model.train()
    samples = len(task.inputs[0])
    with _told("the task fails on its own example batch"):
        output = task.model(*task.inputs)
        loss = task.loss(output, *task.targets)
        metrics = resolve_metrics(task, output)
        numbers = {name: metric(output, *task.targets) for name, metric in metrics.items()}
    weighted = isinstance(loss, Tensor) and loss.shape == (samples,)
    losses = dict(loss) if isinstance(loss, Mapping) else {"loss": loss}
    for name, number in losses.items():
        _check_number(name, number, samples if weighted else None)
        if not number.requires_grad:
            raise TaskError(f"{name} does not depend on any parameter that requires a gradient.")
    for name, number in numbers.items():
        _check_number(name, number, samples)
    groups = taught_by(losses, holdings) if isinstance(loss, Mapping) else {}
    _refuse_same_names(metrics, groups)
    leaves = pytree.tree_leaves(output)
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise TaskError("the model returns something that is not a tensor.")
    return Attempt(metrics=metrics, outputs=len(leaves), weighted=weighted, groups=groups)


def smallest_batch(objective: Objective) -> int:
    """1, or 2 where the model cannot train on a single sample, as batch normalisation cannot."""
    objective.model.train()
    one = [reader.store(reader.example)[:1] for reader in objective.readers]
    try:
        objective.run(one)
    except Exception:  # the user's own code: with more samples it has just worked
        return 2
    return 1


def freeze_unreached(objective: Objective, holdings: Holdings) -> None:
    """Parameters no loss reaches count as frozen while we trace: their gradient is zero."""
    objective.model.train()
    stored = [reader.store(reader.example) for reader in objective.readers]
    trainable = holdings.trainable()
    reached: set[str] = set()
    with _told("the task fails on records like its example"):
        _, losses = objective.run(stored)
    for group, loss in losses.items():
        wanted = list(objective.groups.get(group, trainable))
        found = torch.autograd.grad(
            loss, [trainable[name] for name in wanted], allow_unused=True, retain_graph=True
        )
        reached |= {name for name, g in zip(wanted, found, strict=True) if g is not None}
    for name, parameter in trainable.items():
        if name not in reached:
            parameter.requires_grad_(False)


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the user's own code: whatever it raises is the answer
        line = user_line(error)
        first = str(error).partition("\n")[0]
        raise TaskError(
            f"{what}: {type(error).__name__}: {first}" + (f", at {line}." if line else "."),
            advice="loss(model(*inputs), *targets) must work in plain PyTorch first.",
        ) from error


def _refuse_learning_loss(task: Task, holdings: Holdings) -> None:
    if not isinstance(task.loss, nn.Module):
        return
    held = {id(parameter) for parameter in holdings.parameters.values()}
    for name, parameter in task.loss.named_parameters():
        if parameter.requires_grad and id(parameter) not in held:
            raise TaskError(
                f"the loss has a parameter of its own, {name!r}, that would never be trained.",
                advice="Make it a part of the model, which may return it for the loss to use.",
            )


def _refuse_same_names(metrics: Mapping[str, Metric], groups: Mapping[str, Any]) -> None:
    for group in groups:
        if loss_name(group) in metrics:
            raise TaskError(
                f"the metric {loss_name(group)!r} has the name of a group's loss.",
                advice="Give it another name; the losses of groups are watched anyway.",
            )


def _check_number(name: str, number: object, samples: int | None) -> None:
    """One number for the batch or, where `samples` says how many those are, one for each."""
    shapes = [()] if samples is None else [(), (samples,)]
    if not isinstance(number, Tensor) or tuple(number.shape) not in shapes:
        found = tuple(number.shape) if isinstance(number, Tensor) else type(number).__name__
        raise TaskError(
            f"{name} gives {found}, not a scalar tensor.",
            advice="Return one number for the batch, for instance its mean, or one per sample.",
        )
    if not bool(torch.isfinite(number).all()):
        raise TaskError(
            f"{name} is {float(number.detach().reshape(-1)[0])} on the example batch.",
            advice="Check the example's values and the model's first weights.",
        )
