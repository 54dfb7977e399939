"""Nothing is left changed, nothing chatters, and nobody else is let in meanwhile."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crowdgrad.capture import capture, trusted
from crowdgrad.capture.quiet import ALONE, silence, untouched
from crowdgrad.capture.task import Task
from crowdgrad.program.engines.torch import TorchOptions


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        self.seen += output.mean(0)
        return F.cross_entropy(output, target)


def test_a_loss_that_is_a_module_is_left_as_it_was():
    model, loss = nn.Linear(3, 2), Remembering()
    with untouched(model, loss), torch.no_grad():
        loss(model(torch.ones(4, 3)), torch.zeros(4, dtype=torch.int64))
        loss.eval()
        assert loss.seen.abs().sum() > 0
    assert loss.seen.tolist() == [0, 0]
    assert loss.training


def test_a_plain_function_needs_no_care():
    model = nn.Linear(3, 2)
    with untouched(model, F.cross_entropy):
        model.eval()
    assert model.training


def test_errors_that_exporters_log_are_not_shown():
    with silence():
        assert not logging.getLogger("exporter").isEnabledFor(logging.ERROR)
        assert logging.getLogger("exporter").isEnabledFor(logging.CRITICAL)
    assert logging.getLogger("exporter").isEnabledFor(logging.ERROR)


class Stopped(Exception):
    pass


def stop_if_alone(*_: object) -> None:
    """Raises Stopped where no other thread could begin now."""
    with ThreadPoolExecutor(1) as pool:
        if not pool.submit(ALONE.acquire, blocking=False).result():
            raise Stopped


def test_one_model_is_captured_or_compared_at_a_time(monkeypatch):
    monkeypatch.setattr(capture, "attempt", stop_if_alone)
    monkeypatch.setattr(trusted, "load_object", stop_if_alone)
    monkeypatch.setattr(trusted, "_check_options", lambda *_: None)
    task = Task(nn.Linear(3, 2), F.mse_loss, inputs=(torch.ones(4, 3),), targets=(torch.ones(4),))
    with pytest.raises(Stopped):
        capture.capture(task)
    with pytest.raises(Stopped):
        trusted.open_engine(_NoProgram(), (), "model:task", Path(), TorchOptions())


class _NoProgram:
    spec = None
