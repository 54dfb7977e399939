"""Models that cannot travel: each is told why, where, and what to write instead."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crowdgrad.capture.capture import capture
from crowdgrad.capture.task import Task
from crowdgrad.errors import CaptureError, TaskError

TARGET = torch.tensor([0, 1, 2, 3, 4, 0])


def attempt(model: nn.Module, loss=F.cross_entropy, target: Tensor = TARGET, **changes) -> None:
    capture(Task(model, loss, inputs=(torch.randn(6, 8),), targets=(target,), **changes))


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 5)


class Branches(Base):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.a(x)
        return self.a(-x)


class Floats(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) * float(x.max())


class Shuffles(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x[:, torch.randperm(8)])


class Inverts(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) * torch.linalg.det(self.a.weight[:, :5])


class Twisted(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x * F.dropout(x @ x.t(), 0.5, self.training).sum(1, keepdim=True))


class Flags(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(8, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen |= (x > 0).any(0)
        return self.a(x)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Branches(), r"test_refusals.py:\d+: `if x.sum\(\) > 0:`.*torch.where"),
        (Floats(), r"test_refusals.py:\d+: `return self.a\(x\) \* float\(x.max\(\)\)`"),
        (Shuffles(), "randperm"),
        (Inverts(), "aten.linalg_.*no translation.*Linear algebra"),
        (Twisted(), "one dimension of what dropout"),
        (Flags(), "'seen', which holds truth values"),
        (nn.Linear(8, 5).double(), "float64"),
        (nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5, momentum=None)),
         r"1 is a BatchNorm\(momentum=None\).*momentum"),
        (nn.Sequential(nn.Linear(8, 5), nn.RReLU()), "rrelu"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_captured(model, reason):
    with pytest.raises(CaptureError, match=reason):
        attempt(model)


class LearningLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output * self.scale, target)


class CountingLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        self.calls += 1
        return F.cross_entropy(output, target) / self.calls


SCALE = nn.Parameter(torch.ones(5))


def scaled(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output * SCALE, target)


def broken(output: Tensor, target: Tensor) -> Tensor:
    return output[:, 99].mean()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": nn.Flatten()}, "no parameters"),
        ({"model": nn.Linear(8, 5).requires_grad_(False)}, "does not depend on any parameter"),
        ({"loss": lambda output, target: output}, "not a scalar"),
        ({"loss": LearningLoss()}, "'scale', that would never be trained"),
        ({"loss": scaled}, r"of its own, of shape \(5,\), that would never be trained"),
        ({"loss": CountingLoss()}, "changes a buffer of its own, 'calls'.*part of the model"),
        ({"loss": lambda output, target: 1.0}, "not a scalar"),
        ({"loss": lambda output, target: output.mean() * float("nan")}, "nan on the example"),
        ({"loss": broken}, r"IndexError.*at test_refusals.py:\d+: `return output\[:, 99\]"),
        ({"metrics": {"odd": lambda output, target: output}}, "odd gives"),
        ({"target": TARGET[:5]}, "batch sizes"),
    ],
)
def test_tasks_that_make_no_sense(change, reason):
    with pytest.raises(TaskError, match=reason):
        attempt(**{"model": nn.Linear(8, 5), **change})
