"""What one run of a task shows."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crowdgrad.capture.attempt import smallest_batch
from crowdgrad.capture.fields import readers
from crowdgrad.capture.objective import Objective
from crowdgrad.capture.task import Task


class Squeezed(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze()


def to_target(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output.reshape(-1), target)


def spread(output: Tensor, target: Tensor) -> Tensor:
    return to_target(output, target) + output.std(0).sum()


@pytest.mark.parametrize(
    ("model", "loss", "smallest"),
    [
        (nn.Linear(3, 1), to_target, 1),
        (nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1)), to_target, 2),
        (nn.Linear(3, 1), spread, 2),  # of one sample it is not a number
        (Squeezed(3, 1), to_target, 2),  # one sample loses its batch dimension
    ],
)
@pytest.mark.filterwarnings("error")  # what one sample is warned of, nobody needs to hear
def test_the_smallest_batch_that_a_task_can_train_on(model, loss, smallest):
    task = Task(model, loss, inputs=(torch.randn(4, 3),), targets=(torch.randn(4),))
    objective = Objective(model=model, loss=loss, readers=readers(task, None), metrics={})
    assert smallest_batch(objective) == smallest
