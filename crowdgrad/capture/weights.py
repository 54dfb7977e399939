"""A trained state back into a PyTorch module."""

from __future__ import annotations

import copy

import torch
from torch import nn

from crowdgrad.domain.program import ProgramSpec
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import Vector


def with_state(model: nn.Module, spec: ProgramSpec, state: Vector) -> nn.Module:
    """A copy of the module that holds these parameters and buffers; tied ones stay tied."""
    trained = copy.deepcopy(model)
    held = {**dict(trained.named_parameters()), **dict(trained.named_buffers())}
    with torch.no_grad():
        for tensor, view in StateLayout(spec).tensors(state):
            held[tensor.name].copy_(torch.from_numpy(view.copy()))
    return trained
