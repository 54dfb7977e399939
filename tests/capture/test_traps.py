"""Exporters that go wrong silently: the gate finds each, should its remedy ever be lost."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crowdgrad.capture import trace
from crowdgrad.capture.capture import capture
from crowdgrad.capture.rewrites import REWRITES
from crowdgrad.capture.task import Task
from crowdgrad.errors import CaptureError, GateError

aten = torch.ops.aten


def attempt(model: nn.Module, *shape: int) -> None:
    torch.manual_seed(3)
    example = torch.randn(6, *shape)
    capture(Task(model, F.cross_entropy, inputs=(example,), targets=(torch.arange(6) % 3,)))


def test_a_training_batch_norm_exported_in_inference_mode_is_found(monkeypatch):
    monkeypatch.delitem(REWRITES, aten._native_batch_norm_legit_functional.default)
    with pytest.raises(GateError, match=r"gradient|buffer|loss"):
        attempt(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), 4)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.GRU(2, 3, num_layers=2, dropout=0.5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[0][:, -1]


def test_dropout_between_recurrent_layers_left_out_is_found(monkeypatch):
    monkeypatch.setattr(trace, "mended", nullcontext)
    with pytest.raises((GateError, CaptureError), match=r"more random numbers|differs"):
        attempt(Recurrent(), 1, 2)  # one step of time: unrolling more takes longer to export


@pytest.mark.slow
def test_with_the_remedy_it_is_there_with_time_first_as_pytorch_draws_it():
    example = torch.randn(6, 2, 2)
    task = Task(Recurrent(), F.cross_entropy, inputs=(example,), targets=(torch.arange(6) % 3,))
    (noise,) = capture(task).program.spec.noise
    assert (noise.shape, noise.per_sample, noise.batch_axis) == ((2, 3), True, 1)
