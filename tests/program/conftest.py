"""One captured program for all tests of this folder: a classifier with dropout on stored bytes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.task import Task
from crowdgrad.domain.data import Field
from tests.contracts.engine_contract import pair, rich

__all__ = ["pair", "rich"]  # fixtures that all engines share

FIELDS = (
    Field(name="pixels", dtype="uint8", shape=(12,), mean=100.0, std=50.0),
    Field(name="label", dtype="uint8", shape=()),
)


@pytest.fixture(scope="session")
def model() -> nn.Module:
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Dropout(0.25), nn.Linear(9, 5))
    return layers


@pytest.fixture(scope="session")
def captured(model: nn.Module) -> Captured:
    x, y = torch.randn(6, 12), torch.tensor([0, 1, 2, 3, 4, 0])
    return capture(Task(model, nn.functional.cross_entropy, inputs=(x,), targets=(y,)), FIELDS)
