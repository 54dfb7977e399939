"""Operators that compute nothing: views, fresh memory, and checks made while tracing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from crowdgrad.capture.rewrites import rewrite

aten = torch.ops.aten


@rewrite(aten.alias.default, aten.detach.default)
def same(x: Tensor) -> Tensor:
    return x


@rewrite(aten.empty_permuted.default)
def fresh(size: Sequence[int], *_args: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    # Memory that is overwritten before it is read; ONNX has no word for it.
    return torch.zeros(tuple(size), dtype=dtype)


@rewrite(aten._assert_tensor_metadata.default)
def nothing(*_args: Any, **_: Any) -> None:
    return None


@rewrite(aten.squeeze.dims)
def squeeze(x: Tensor, dims: Sequence[int]) -> Tensor:
    # One at a time, the last first: PyTorch's own way is an operator that cannot be exported again.
    for dim in sorted((dim % x.dim() for dim in dims), reverse=True):
        x = x.squeeze(dim)
    return x
