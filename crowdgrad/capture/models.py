"""Ready-made tasks that a job file can name: `task = "crowdgrad.capture.models:mnist_mlp"`."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from crowdgrad.capture.task import Task

EXAMPLE_BATCH = 8
SEED = 1


def mlp(shape: tuple[int, ...], hidden: tuple[int, ...], classes: int) -> Task:
    """A classifier of fully connected layers; the same first weights whenever it is made."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        widths = (int(torch.Size(shape).numel()), *hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Linear(widths[-1], classes))
    return Task(
        model,
        nn.functional.cross_entropy,
        inputs=(torch.zeros(EXAMPLE_BATCH, *shape),),
        targets=(torch.zeros(EXAMPLE_BATCH, dtype=torch.int64),),
    )


def mnist_mlp() -> Task:
    """784-100-10."""
    return mlp((28, 28), (100,), 10)


def digits_mlp() -> Task:
    """64-64-10."""
    return mlp((8, 8), (64,), 10)


def spirals_mlp() -> Task:
    """2-64-64-3."""
    return mlp((2,), (64, 64), 3)
