"""Arithmetic with a number that follows from the batch size, as arithmetic on tensors.

The variance over a batch divides by one less than its samples. Where the batch size is free, that
number is no constant, and torch.onnx translates `Tensor · number` for constants only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import SymFloat, SymInt, Tensor

from crowdgrad.capture.rewrites import rewrite

aten = torch.ops.aten


def _on_tensors(scalar: Any, tensor: Any) -> Callable[..., Tensor]:
    def apply(x: Tensor, number: Any, *rest: Any, **named: Any) -> Tensor:
        if isinstance(number, SymFloat | SymInt):
            one: Any = number  # annotated for plain numbers only
            found: Tensor = tensor(x, torch.scalar_tensor(one, dtype=x.dtype), *rest, **named)
        else:
            found = scalar(x, number, *rest, **named)
        return found

    return apply


for _scalar, _tensor in (
    (aten.mul.Scalar, aten.mul.Tensor),
    (aten.div.Scalar, aten.div.Tensor),
    (aten.add.Scalar, aten.add.Tensor),
    (aten.sub.Scalar, aten.sub.Tensor),
):
    rewrite(_scalar)(_on_tensors(_scalar, _tensor))
