"""Trained parameters back into a PyTorch module."""

from __future__ import annotations

import copy

import torch
from torch import nn

from crowdgrad.domain.program import TensorSpec
from crowdgrad.numerics.layout import Layout
from crowdgrad.numerics.vectors import Vector


def with_parameters(model: nn.Module, specs: tuple[TensorSpec, ...], vector: Vector) -> nn.Module:
    """A copy of the module that holds these parameters."""
    trained = copy.deepcopy(model)
    named = dict(trained.named_parameters())
    with torch.no_grad():
        for tensor, view in Layout(specs).views(vector):
            named[tensor.name].copy_(torch.from_numpy(view.copy()))
    return trained
