"""Models that can be followed for one batch size only."""

from __future__ import annotations

import pytest
import torch
import torch.export.experimental
import torch.nn.functional as F
from torch import Tensor, nn

from crowdgrad.capture.capture import capture
from crowdgrad.capture.task import Task
from crowdgrad.errors import CaptureError


class Counting(nn.Module):
    """`len(x)` is a plain number to PyTorch's exporter. Tied weights, buffers and dropout too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.one = nn.Linear(8, 5)
        self.two = nn.Linear(8, 5)
        self.two.weight = self.one.weight
        self.plain = torch.arange(8.0)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(self.norm(x), 0.3, self.training)
        return self.one(x).reshape(len(x), 5) + self.two(x * self.plain)


def task(model: nn.Module) -> Task:
    torch.manual_seed(3)
    return Task(model, F.cross_entropy, inputs=(torch.randn(6, 8),), targets=(torch.arange(6) % 5,))


def test_what_works_for_one_batch_size_is_captured_for_it_and_the_host_is_told():
    captured = capture(task(Counting()), batch_size=4)
    spec = captured.program.spec
    assert (spec.fixed_batch, len(spec.buffers)) == (4, 3)
    (note,) = captured.notes
    assert "exactly 4 samples" in note
    assert "left over" in note
    assert captured.max_gradient_error < 1e-5


def test_a_pytorch_without_the_joint_export_still_captures(monkeypatch):
    monkeypatch.delattr(torch.export.experimental, "_export_forward_backward")
    captured = capture(task(nn.Linear(8, 5)))
    assert captured.program.spec.fixed_batch == 6
    assert captured.notes


class SixOnly(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(6, 8))


def test_where_both_ways_fail_the_first_reason_is_given():
    with pytest.raises(CaptureError, match="one batch size only"):
        capture(task(SixOnly(8, 5)), batch_size=7)
