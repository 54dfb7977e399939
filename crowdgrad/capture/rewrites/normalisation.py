"""Normalisation in plain arithmetic.

onnxscript 0.7.2 writes a *training* batch normalisation as the one used for inference: nothing
raises, and the gradients are 88 % off. So it is written out: the batch's mean and variance, and the
new running ones. Backward passes are taken apart by PyTorch itself.
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
    aten.native_batch_norm_backward.default,
    aten.native_layer_norm_backward.default,
    aten.native_group_norm_backward.default,
):
    _apart(_operator)


@rewrite(aten._native_batch_norm_legit_functional.default)
def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
    running_var: Tensor, training: bool, momentum: float, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Output, the batch's mean and 1/√(variance + ε), the new running mean and variance."""
    assert training, "in evaluation there is an operator of its own"
    out, mean, scale, var = _normalised(x, weight, bias, eps)
    count = x.numel() / x.shape[1]
    new_mean = momentum * mean + (1 - momentum) * running_mean
    new_var = momentum * (var * (count / (count - 1))) + (1 - momentum) * running_var
    return out, mean, scale, new_mean, new_var


@rewrite(aten._native_batch_norm_legit.no_stats)
def batch_norm_without_memory(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    return _normalised(x, weight, bias, eps)[:3]


def _normalised(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Normalised by channel; with the mean, the scale and the variance it was done with."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    wide = [1, x.shape[1], *[1] * (x.dim() - 2)]
    centre = x.mean(axes, keepdim=True)
    apart = x - centre
    var = (apart * apart).mean(axes, keepdim=True)
    scale = torch.rsqrt(var + eps)
    out = apart * scale
    if weight is not None:
        out = out * weight.reshape(wide)
    if bias is not None:
        out = out + bias.reshape(wide)
    channels = [x.shape[1]]
    return out, centre.reshape(channels), scale.reshape(channels), var.reshape(channels)


@rewrite(aten._weight_norm_interface_backward.default)
def weight_norm_backward(
    grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Of w = g · v / |v|, the norm taken over every axis but `dim`."""
    axes = [axis for axis in range(v.dim()) if axis != dim]
    along = (grad * v).sum(axes, keepdim=True)
    return grad * (g / norms) - v * (g * along / norms**3), along / norms
