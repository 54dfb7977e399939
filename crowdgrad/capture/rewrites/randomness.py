"""Random operators → arithmetic on noise the program is given."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from crowdgrad.capture.rewrites import random

aten = torch.ops.aten

_TINY: Final = 2.0**-25


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


@random("normal", aten.normal.Tensor_Tensor, aten.normal.Tensor_float, aten.normal.float_Tensor)
def normal_of(noise: Tensor, mean: Tensor, std: Tensor, **_: Any) -> Tensor:
    return noise * std + mean


@random("normal", aten.log_normal.default)
def log_normal(noise: Tensor, x: Tensor, mean: float = 1.0, std: float = 2.0, **_: Any) -> Tensor:
    return (noise * std + mean).exp().to(x.dtype)


@random("uniform", aten.bernoulli.Tensor)
def bernoulli_tensor(noise: Tensor, x: Tensor, probabilities: Tensor, **_: Any) -> Tensor:
    return (noise < probabilities).to(x.dtype)


@random("uniform", aten.exponential.default)
def exponential(noise: Tensor, x: Tensor, rate: float = 1.0, **_: Any) -> Tensor:
    # Uniform numbers may be 0 but never 1. Zero itself would make a Gumbel infinite.
    return (torch.log(1.0 - noise).clamp(max=-_TINY) / -rate).to(x.dtype)


@random("uniform", aten.randint.low)
def randint(noise: Tensor, low: int, high: int, *_args: Any, **kwargs: Any) -> Tensor:
    dtype = kwargs.get("dtype") or torch.int64
    return (torch.floor(noise * (high - low)) + low).to(dtype)


@random("uniform", aten.randint.default)
def randint_below(noise: Tensor, high: int, *_args: Any, **kwargs: Any) -> Tensor:
    below: Tensor = randint(noise, 0, high, **kwargs)
    return below
