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


class SixOnly(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x.reshape(6, 8))


class Shuffles(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x[:, torch.randperm(8)])


class AlwaysNoisy(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x + torch.randn_like(x))


class Sideways(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(F.dropout(x.t(), 0.5, self.training).t())


class Tied(Base):
    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Linear(8, 5)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + self.b(x)


class Table(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x * self.table)


class Convolves(Base):
    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv1d(1, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(self.c(x.unsqueeze(1)).squeeze(1))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Branches(), r"test_refusals.py:\d+: `if x.sum\(\) > 0:`.*torch.where"),
        (Floats(), r"test_refusals.py:\d+: `return self.a\(x\) \* float\(x.max\(\)\)`"),
        (SixOnly(), "one batch size only"),
        (Shuffles(), "randperm"),
        (AlwaysNoisy(), "evaluation mode"),
        (Sideways(), "batch dimension must come first"),
        (Tied(), "'b.weight' shares.*later version"),
        (Table(), "buffer 'table'.*later version.*nn.Parameter"),
        (Convolves(), "convolution_backward has no translation yet"),
        (nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5)), "BatchNorm1d.*later.*LayerNorm"),
        (nn.Linear(8, 5).double(), "float64"),
        (nn.Sequential(nn.Linear(8, 5), nn.RReLU()), "rrelu"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_captured(model, reason):
    with pytest.raises(CaptureError, match=reason):
        attempt(model)


def broken(output: Tensor, target: Tensor) -> Tensor:
    return output[:, 99].mean()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": nn.Flatten()}, "no parameters"),
        ({"model": nn.Linear(8, 5).requires_grad_(False)}, "does not depend on any parameter"),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, "not a scalar"),
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
