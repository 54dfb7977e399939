"""Random operators → arithmetic on noise the program is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crowdgrad.capture.rewrites import random

aten = torch.ops.aten


@random("uniform", aten.native_dropout.default)
def dropout(noise: Tensor, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    mask = noise >= p
    scale = 0.0 if p >= 1 else 1.0 / (1.0 - p)
    return x * mask.to(x.dtype) * scale, mask


@random("uniform", aten.bernoulli.p)
def bernoulli_p(noise: Tensor, x: Tensor, p: float, **_: Any) -> Tensor:
    return (noise >= 1.0 - p).to(x.dtype)


@random("uniform", aten.bernoulli.default)
def bernoulli(noise: Tensor, probabilities: Tensor, **_: Any) -> Tensor:
    return (noise < probabilities).to(probabilities.dtype)


@random("uniform", aten.rand.default, aten.rand_like.default)
def rand(noise: Tensor, *_args: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return noise if dtype is None else noise.to(dtype)


@random("uniform", aten.uniform.default)
def uniform(noise: Tensor, x: Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> Tensor:
    return (noise * (high - low) + low).to(x.dtype)


@random("normal", aten.normal_functional.default)
def normal(noise: Tensor, x: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return (noise * std + mean).to(x.dtype)


@random("normal", aten.normal.float_float)
def normal_of_size(noise: Tensor, mean: float, std: float, *_args: Any, **_: Any) -> Tensor:
    return noise * std + mean


@random("normal", aten.randn.default, aten.randn_like.default)
def randn(noise: Tensor, *_args: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return noise if dtype is None else noise.to(dtype)
