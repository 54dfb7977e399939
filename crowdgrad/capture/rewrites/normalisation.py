"""Normalisation as PyTorch itself takes it apart.

onnxscript 0.7.2 writes a *training* batch normalisation as the one used for inference: nothing
raises, and the gradients are 88 % off. PyTorch's own decomposition computes the batch's mean and
variance with plain operators and returns the new running ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from crowdgrad.capture.rewrites import rewrite

aten = torch.ops.aten


def _apart(operator: Any) -> None:
    rewrite(operator)(decomposition_table[operator])


for _operator in (
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit.no_stats,
    aten.native_batch_norm_backward.default,
    aten.native_layer_norm_backward.default,
    aten.native_group_norm_backward.default,
):
    _apart(_operator)


@rewrite(aten._weight_norm_interface_backward.default)
def weight_norm_backward(
    grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Of w = g · v / |v|, the norm taken over every axis but `dim`."""
    axes = [axis for axis in range(v.dim()) if axis != dim]
    along = (grad * v).sum(axes, keepdim=True)
    return grad * (g / norms) - v * (g * along / norms**3), along / norms
