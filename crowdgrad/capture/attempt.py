"""The task tried as it is, in plain PyTorch, before anything is captured.

What it does tells us what it is: one loss, a loss for each sample or for each group of parameters;
how many tensors the model returns; whether it can train on a single sample; which parameters its
loss never reaches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
from crowdgrad.capture.quiet import silence
from crowdgrad.capture.task import Task, resolve_metrics
from crowdgrad.errors import CaptureError, TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one run of the task showed."""

    metrics: dict[str, Metric]
    outputs: int
    """How many tensors the model returns."""
    weighted: bool
    groups: dict[str, tuple[str, ...]]


def attempt(task: Task, holdings: Holdings) -> Attempt:
    """Run the task once; TaskError where it fails or gives something other than numbers.

    CaptureError where a layer is of a kind that cannot travel.
    """
    _refuse_learning_loss(task, holdings)
    task.model.train()
    _refuse_growing_average(task.model)
    kept = _own_buffers(task.loss, holdings)
    samples = len(task.inputs[0])
    with _told("the task fails on its own example batch"):
        output = task.model(*task.inputs)
        loss = task.loss(output, *task.targets)
        metrics = resolve_metrics(task, output)
        numbers = {name: metric(output, *task.targets) for name, metric in metrics.items()}
    _refuse_changed(kept, _own_buffers(task.loss, holdings))
    weighted = isinstance(loss, Tensor) and loss.shape == (samples,)
    losses = dict(loss) if isinstance(loss, Mapping) else {"loss": loss}
    for name, number in losses.items():
        _check_number(name, number, samples if weighted else None)
        if not number.requires_grad:
            raise TaskError(f"{name} does not depend on any parameter that requires a gradient.")
    for name, number in numbers.items():
        _check_number(name, number, samples)
    _refuse_strange_leaves(losses.values(), holdings)
    groups = taught_by(losses, holdings) if isinstance(loss, Mapping) else {}
    _refuse_same_names(metrics, groups)
    leaves = pytree.tree_leaves(output)
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise TaskError("the model returns something that is not a tensor.")
    return Attempt(metrics=metrics, outputs=len(leaves), weighted=weighted, groups=groups)


def smallest_batch(objective: Objective) -> int:
    """1, or 2 where the model cannot train on a single sample, as batch normalisation cannot.

    Nor where one sample has no finite loss (a spread over the batch), or loses its batch dimension
    (`squeeze`).
    """
    objective.model.train()
    stored = [reader.store(reader.example) for reader in objective.readers]
    with _told("the task fails on records like its example"):
        usual, _ = objective.run(stored)
    try:
        with silence():  # a warning about one sample would puzzle whoever has many
            output, losses = objective.run([column[:1] for column in stored])
    except Exception:  # the user's own code: with more samples it has just worked
        return 2
    finite = all(bool(torch.isfinite(loss)) for loss in losses.values())
    return 1 if finite and _ranks(output) == _ranks(usual) else 2


def _ranks(output: object) -> list[int]:
    return [leaf.dim() for leaf in pytree.tree_leaves(output)]


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
    except TaskError:
        raise
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
            raise _never_trained(repr(name))


def _refuse_strange_leaves(losses: Iterable[Tensor], holdings: Holdings) -> None:
    """What a loss that is a plain function learns by is seen in its graph only."""
    held = {id(tensor) for tensor in (*holdings.parameters.values(), *holdings.buffers.values())}
    for leaf in _leaves(losses):
        if id(leaf) not in held:
            raise _never_trained(f"of shape {tuple(leaf.shape)}")


def _leaves(losses: Iterable[Tensor]) -> Iterator[Tensor]:
    """Every tensor that a backward pass would leave a gradient in."""
    waiting = [loss.grad_fn for loss in losses]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)  # those that accumulate have one
        if isinstance(variable, Tensor):
            yield variable
        waiting += [following for following, _ in node.next_functions]


def _never_trained(what: str) -> TaskError:
    return TaskError(
        f"the loss has a parameter of its own, {what}, that would never be trained.",
        advice="Make it a part of the model, which may return it for the loss to use.",
    )


def _own_buffers(loss: object, holdings: Holdings) -> dict[str, Tensor]:
    """Copies of what a loss keeps that the model does not."""
    if not isinstance(loss, nn.Module):
        return {}
    held = {id(buffer) for buffer in holdings.buffers.values()}
    own = ((name, buffer) for name, buffer in loss.named_buffers() if id(buffer) not in held)
    return {name: buffer.detach().clone() for name, buffer in own}


def _refuse_changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    for name, value in before.items():
        if name not in after or not torch.equal(after[name], value):
            raise TaskError(
                f"the loss changes a buffer of its own, {name!r}, that would not travel.",
                advice="Make it part of the model.",
            )


def _refuse_growing_average(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if (
            isinstance(module, nn.modules.batchnorm._BatchNorm)
            and module.training
            and module.track_running_stats
            and module.momentum is None
        ):
            raise CaptureError(
                f"{name or 'the model'} is a BatchNorm(momentum=None), which cannot travel.",
                advice="Give it a momentum, such as 0.1.",
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
