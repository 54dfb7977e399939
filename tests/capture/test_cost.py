"""Work and memory, counted by hand on the traced graph alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from crowdgrad.capture.cost import Memory, activation_memory, work_per_sample
from crowdgrad.capture.fields import readers
from crowdgrad.capture.holdings import look
from crowdgrad.capture.objective import Objective
from crowdgrad.capture.task import Task
from crowdgrad.capture.trace import Batches, Traced, trace_evaluation, trace_training


def traced(model: nn.Module, *shape: int) -> tuple[tuple[Traced, ...], Traced]:
    target = torch.zeros(4, dtype=torch.int64)
    task = Task(model, F.cross_entropy, inputs=(torch.randn(4, *shape),), targets=(target,))
    objective = Objective(model=model, loss=task.loss, readers=readers(task, None), metrics={})
    holdings = look(model)
    batches = Batches()
    training = trace_training(objective, holdings, batches)
    return training, trace_evaluation(objective, holdings, batches)


def test_convolutions_count_forward_and_backward_but_not_the_inputs_gradient():
    first, second = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 6, 3, groups=2)
    model = nn.Sequential(first, nn.ReLU(), second, nn.Flatten(), nn.Linear(24, 3))
    training, evaluation = traced(model, 2, 6, 6)
    one = 4 * 4 * 4 * (2 * 3 * 3)  # 4×4 places of 4 outputs
    two = 2 * 2 * 6 * (2 * 3 * 3)
    linear = 24 * 3
    assert work_per_sample(training, evaluation) == 2 * (2 * one + 3 * two + 3 * linear)


def test_memory_grows_with_the_batch_by_what_is_kept_for_the_backward_pass():
    training, _ = traced(nn.Sequential(nn.Linear(10, 1000), nn.Tanh(), nn.Linear(1000, 3)), 10)
    memory = activation_memory(training)
    # tanh's output is kept; at the peak its gradient is made of it in a few steps.
    assert 2 * 4000 <= memory.bytes_per_sample <= 5 * 4000
    assert Memory(fixed_bytes=5, bytes_per_sample=3).at(10) == 35
