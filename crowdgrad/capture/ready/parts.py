"""What ready-made models share: how they read a field, how they answer, how they are graded.

A model reads numbers that have mean 0 and deviation 1, and gives numbers in the target's own units;
where the data does not say its moments, they were measured and are constants of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdgrad.capture import metrics
from crowdgrad.capture.metrics import Metric, MetricFunction
from crowdgrad.capture.ready.base import Column, Told, whole
from crowdgrad.capture.ready.reading import is_length, is_mask
from crowdgrad.capture.task import Task
from crowdgrad.domain.data import Moment

EXAMPLES = 4
"""Records of the example batch."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What torch draws inside depends on the seed alone, and nothing outside depends on it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class Standard(nn.Module):
    """(x − mean) / std, with constants; where both are 0 and 1, x itself."""

    mean: Tensor
    std: Tensor

    def __init__(self, column: Column) -> None:
        super().__init__()
        self.needed = (column.mean, column.std) != (0.0, 1.0)
        if self.needed:
            after = max(0, len(column.field.shape) - 1)
            self.register_buffer("mean", _constant(column.mean, after))
            self.register_buffer("std", _constant(column.std, after))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std if self.needed else x


def _constant(moment: Moment, after: int) -> Tensor:
    if not isinstance(moment, tuple):
        return torch.tensor(moment)
    return torch.tensor(moment).reshape(-1, *[1] * after)


class Head(nn.Module):
    """The last layer: a score for each class, or numbers in the target's units."""

    mean: Tensor
    std: Tensor

    def __init__(self, width: int, told: Told) -> None:
        super().__init__()
        self.out = nn.Linear(width, told.outputs)
        self.numbers = told.goal == "number"
        self.single = self.numbers and told.target.field.shape == ()
        if self.numbers:
            self.register_buffer("mean", torch.tensor(told.target.mean))
            self.register_buffer("std", torch.tensor(told.target.std))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.out(x)
        if self.single:
            made = made.squeeze(1)
        return made * self.std + self.mean if self.numbers else made


def task_of(model: nn.Module, told: Told, inputs: tuple[Tensor, ...]) -> Task:
    """With the loss and the metrics that the target asks for."""
    loss, graded = _grading(told)
    return Task(model, loss, inputs=inputs, targets=(_target(told),), metrics=graded)


def example(column: Column, *, ids: bool = False) -> Tensor:
    """A batch of what the model reads of a field: numbers, or the ids of tokens and codes."""
    shape = (EXAMPLES, *column.field.shape)
    if ids:
        return torch.randint(column.least, column.most + 1, shape)
    return torch.zeros(shape)


def beside(told: Told) -> tuple[Tensor, ...]:
    """Examples of the mask or the length of padded records: nothing is padded."""
    first = told.inputs[0].field
    found: list[Tensor] = []
    for column in told.inputs[1:]:
        if is_mask(column.field, first):
            found.append(torch.ones((EXAMPLES, *column.field.shape), dtype=torch.bool))
        elif is_length(column.field, first):
            found.append(torch.full((EXAMPLES,), first.shape[0]))
    return tuple(found)


def dropout(share: float) -> tuple[nn.Module, ...]:
    return (nn.Dropout(share),) if share else ()


Grading = tuple[Callable[..., Tensor], Mapping[str, Metric | MetricFunction]]


def _grading(told: Told) -> Grading:
    if told.goal == "class":
        return functional.cross_entropy, {"accuracy": metrics.accuracy}
    if told.goal == "next":
        return _next_token, {"perplexity": metrics.perplexity, "accuracy": metrics.accuracy}
    std = torch.tensor(told.target.std)

    def squared(guess: Tensor, target: Tensor) -> Tensor:
        return ((guess - target) / std).square().mean()

    return squared, {
        "mean_absolute_error": metrics.mean_absolute_error,
        "root_mean_square_error": metrics.root_mean_square_error,
    }


def _next_token(guesses: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(guesses.flatten(0, 1), target.flatten())


def _target(told: Told) -> Tensor:
    if told.goal != "number":
        return example(told.target, ids=True)
    if whole(told.target):  # read as numbers
        return torch.full((EXAMPLES, *told.target.field.shape), float(told.target.least))
    return torch.zeros((EXAMPLES, *told.target.field.shape)) + torch.tensor(told.target.mean)
